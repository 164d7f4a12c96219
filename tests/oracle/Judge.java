import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.message.ShareFetchResponseData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * Kafka's own message classes, asked over standard input and output: one question a line, one answer a line.
 *
 * <pre>
 * apis                                 key:name:newest:flexible versions, for every API
 * make SIDE KEY VERSION SEED           an arbitrary frame; for a request also where its body begins
 * get SIDE KEY VERSION FIELD FRAME     a number of the message, found through dots ("replicaState.replicaId")
 * set SIDE KEY VERSION FIELD VALUE FRAME   the frame with another number
 * move KEY VERSION FRAME               the answer as one that hides odd brokers and moves the others
 * nodes KEY VERSION FRAME              the endpoints, and the frame without them and without unknown tags
 * empty VERSION CORRELATION SESSION THROTTLE   an empty Fetch answer
 * </pre>
 *
 * SIDE is "request" or "response", FRAME is hexadecimal with its length prefix. A failure is answered with "!".
 */
public final class Judge {
    private static final HexFormat HEX = HexFormat.of();
    private static final int CORRELATION_ID = 7;

    public static void main(String[] args) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (Exception error) {
                answer = "! " + error;
            }
            System.out.println(answer.replace('\n', ' '));
            System.out.flush();
        }
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "apis":
                return apis();
            case "make":
                return make(words[1].equals("request"), number(words[2]), number(words[3]), Long.parseLong(words[4]));
            case "get":
            case "set":
                return field(words);
            case "move":
                return move(number(words[1]), number(words[2]), words[3]);
            case "nodes":
                return nodes(number(words[1]), number(words[2]), words[3]);
            case "empty":
                return empty(number(words[1]), words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static short number(String word) {
        return Short.parseShort(word);
    }

    private static String apis() {
        List<String> rows = new ArrayList<>();
        for (ApiMessageType type : ApiMessageType.values()) {
            int newest = type.highestSupportedVersion(true);
            String flexible = IntStream.rangeClosed(type.lowestSupportedVersion(), newest)
                .mapToObj(v -> type.requestHeaderVersion((short) v) >= 2 ? v + "+" : v + "-")
                .collect(Collectors.joining(","));
            rows.add(type.apiKey() + ":" + type.name + ":" + newest + ":" + flexible);
        }
        return String.join(";", rows);
    }

    private static String make(boolean request, short key, short version, long seed) throws Exception {
        ApiMessage message = blank(request, key);
        fill(message, version, new Random(seed));
        String frame = frame(request, key, version, message, CORRELATION_ID);
        int body = written(message, version).remaining();
        return frame + " " + (frame.length() / 2 - body);
    }

    private static String field(String[] words) throws Exception {
        boolean request = words[1].equals("request");
        short key = number(words[2]);
        short version = number(words[3]);
        ApiMessage message = parse(request, key, version, words[words.length - 1]);
        Object owner = message;
        String[] path = words[4].split("\\.");
        for (int i = 0; i < path.length - 1; i++) {
            owner = owner.getClass().getMethod(path[i]).invoke(owner);
        }
        String name = path[path.length - 1];
        if (words[0].equals("get")) {
            return String.valueOf(owner.getClass().getMethod(name).invoke(owner));
        }
        Method setter = setter(owner.getClass(), name);
        long value = Long.parseLong(words[5]);
        setter.invoke(owner, setter.getParameterTypes()[0] == short.class ? (Object) (short) value : (Object) (int) value);
        return frame(request, key, version, message, CORRELATION_ID);
    }

    private static Method setter(Class<?> owner, String name) {
        String wanted = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : owner.getMethods()) {
            if (method.getName().equals(wanted)) {
                return method;
            }
        }
        throw new IllegalArgumentException(wanted);
    }

    /** Brokers with an odd id go, the others are at proxy.example:(1000 + id mod 1000), as the tests' address map has it. */
    private static String move(short key, short version, String hex) throws Exception {
        ApiMessage message = parse(false, key, version, hex);
        for (String array : new String[] {"brokers", "nodeEndpoints"}) {
            Collection<?> entries = collection(message, array);
            if (entries == null) {
                continue;
            }
            List<Message> kept = new ArrayList<>();
            for (Object entry : entries) {
                int id = (int) entry.getClass().getMethod(array.equals("brokers") && key == 60 ? "brokerId" : "nodeId").invoke(entry);
                if (id % 2 == 0) {
                    Message copy = ((Message) entry).duplicate();
                    setter(copy.getClass(), "host").invoke(copy, "proxy.example");
                    setter(copy.getClass(), "port").invoke(copy, 1000 + Math.floorMod(id, 1000));
                    kept.add(copy);
                }
            }
            replace(entries, kept);
        }
        return frame(false, key, version, message, CORRELATION_ID);
    }

    private static String nodes(short key, short version, String hex) throws Exception {
        ApiMessage message = parse(false, key, version, hex);
        Collection<?> entries = collection(message, "nodeEndpoints");
        List<String> nodes = new ArrayList<>();
        for (Object entry : entries) {
            Class<?> type = entry.getClass();
            nodes.add(type.getMethod("nodeId").invoke(entry) + "@" + type.getMethod("host").invoke(entry) + ":"
                + type.getMethod("port").invoke(entry));
        }
        entries.clear();
        message.unknownTaggedFields().clear();
        return String.join(",", nodes) + " " + frame(false, key, version, message, CORRELATION_ID);
    }

    private static String empty(short version, String[] words) throws Exception {
        ApiMessage message = blank(false, (short) 1);
        setter(message.getClass(), "sessionId").invoke(message, version >= 7 ? Integer.parseInt(words[3]) : 0);
        setter(message.getClass(), "throttleTimeMs").invoke(message, Integer.parseInt(words[4]));
        return frame(false, (short) 1, version, message, Integer.parseInt(words[2]));
    }

    private static Collection<?> collection(Object message, String name) throws Exception {
        try {
            return (Collection<?>) message.getClass().getMethod(name).invoke(message);
        } catch (NoSuchMethodException none) {
            return null;
        }
    }

    @SuppressWarnings("unchecked")
    private static void replace(Collection<?> entries, List<Message> kept) {
        entries.clear();
        ((Collection<Message>) entries).addAll(kept);
    }

    private static ApiMessage blank(boolean request, short key) {
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        return request ? type.newRequest() : type.newResponse();
    }

    private static String frame(boolean request, short key, short version, ApiMessage message, int correlationId) {
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        Message header = request
            ? new RequestHeaderData().setRequestApiKey(key).setRequestApiVersion(version)
                .setCorrelationId(correlationId).setClientId("judge")
            : new ResponseHeaderData().setCorrelationId(correlationId);
        short headerVersion = request ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
        ByteBuffer head = written(header, headerVersion);
        ByteBuffer body = written(message, version);
        ByteBuffer frame = ByteBuffer.allocate(4 + head.remaining() + body.remaining());
        frame.putInt(head.remaining() + body.remaining()).put(head).put(body);
        return HEX.formatHex(frame.array());
    }

    /** Not with MessageUtil, whose methods have other names in older releases. */
    private static ByteBuffer written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.flip();
    }

    private static ApiMessage parse(boolean request, short key, short version, String hex) {
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(HEX.parseHex(hex)));
        int length = readable.readInt();
        if (length != readable.remaining()) {
            throw new IllegalArgumentException("length " + length + " before " + readable.remaining() + " bytes");
        }
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        if (request) {
            new RequestHeaderData(readable, type.requestHeaderVersion(version));
        } else {
            new ResponseHeaderData(readable, type.responseHeaderVersion(version));
        }
        ApiMessage message = blank(request, key);
        message.read(readable, version);
        if (readable.remaining() != 0) {
            throw new IllegalArgumentException(readable.remaining() + " bytes are left over");
        }
        return message;
    }

    /** Sets every field that this version has, and only those: others would be refused when the message is written. */
    private static void fill(Object message, short version, Random random) throws Exception {
        Map<String, Field> fields = new HashMap<>();
        Schema schema = ((Schema[]) message.getClass().getField("SCHEMAS").get(null))[version];
        for (var bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields tagged) {
                // Its method came with Kafka 4.0.
                java.lang.reflect.Field inside = TaggedFields.class.getDeclaredField("fields");
                inside.setAccessible(true);
                ((Map<?, ?>) inside.get(tagged)).values().stream().map(Field.class::cast)
                    .forEach(field -> fields.put(field.name, field));
            } else {
                fields.put(bound.def.name, bound.def);
            }
        }
        for (Method method : message.getClass().getMethods()) {
            String name = method.getName();
            if (!name.startsWith("set") || method.getParameterCount() != 1) {
                continue;
            }
            Field field = fields.get(name.substring(3).replaceAll("(?<!^)(?=[A-Z])", "_").toLowerCase());
            if (field != null) {
                boolean unset = field.type.isNullable() && isWritten(message, name) && random.nextInt(4) == 0;
                boolean unsigned = field.type == org.apache.kafka.common.protocol.types.Type.UINT16;
                Type type = method.getGenericParameterTypes()[0];
                method.invoke(message, unset ? null : unsigned ? random.nextInt(65536) : value(type, version, random));
            }
        }
    }

    /** Whether null is written where a field may be null by its type: some releases fail at records without bytes. */
    private static boolean isWritten(Object message, String setter) {
        boolean shared = message instanceof ShareFetchResponseData.PartitionData && setter.equals("setRecords");
        return !setter.equals("setUnalignedRecords") // FetchSnapshot's, before Kafka 4.1
            && !(shared && System.getProperty("kafka.release").compareTo("4.3") < 0);
    }

    private static Object value(Type type, short version, Random random) throws Exception {
        if (type instanceof ParameterizedType list) {
            return entries(new ArrayList<>(), list.getActualTypeArguments()[0], version, random);
        }
        Class<?> plain = (Class<?>) type;
        switch (plain.getSimpleName()) {
            case "boolean": case "Boolean":
                return random.nextBoolean();
            case "byte": case "Byte":
                return (byte) random.nextInt();
            case "short": case "Short":
                return (short) random.nextInt();
            case "int": case "Integer":
                return random.nextInt();
            case "long": case "Long":
                return random.nextLong();
            case "double": case "Double":
                return random.nextDouble();
            case "String":
                return "s".repeat(random.nextInt(200) - random.nextInt(150) < 0 ? 0 : random.nextInt(150));
            case "Uuid":
                return new Uuid(random.nextLong(), random.nextLong());
            case "byte[]":
                return bytes(random);
            case "ByteBuffer":
                return ByteBuffer.wrap(bytes(random));
            case "BaseRecords":
                // By name: older releases have both classes in another package.
                return Class.forName(plain.getPackageName() + ".MemoryRecords")
                    .getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes(random)));
            default:
                break;
        }
        if (Collection.class.isAssignableFrom(plain)) {
            Type element = ((ParameterizedType) plain.getGenericSuperclass()).getActualTypeArguments()[0];
            return entries((Collection<?>) plain.getConstructor().newInstance(), element, version, random);
        }
        Object struct = plain.getConstructor().newInstance();
        fill(struct, version, random);
        return struct;
    }

    @SuppressWarnings("unchecked")
    private static Object entries(Collection<?> empty, Type element, short version, Random random) throws Exception {
        Collection<Object> entries = (Collection<Object>) empty;
        for (int left = random.nextInt(4); left > 0; left--) {
            entries.add(value(element, version, random));
        }
        return entries;
    }

    private static byte[] bytes(Random random) {
        byte[] bytes = new byte[random.nextBoolean() ? random.nextInt(10) : random.nextInt(20_000)];
        random.nextBytes(bytes);
        return bytes;
    }
}
