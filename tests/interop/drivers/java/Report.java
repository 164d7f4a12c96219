import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Arguments, the payload, JSON lines and the tallies (tests/interop/drivers/README.md); no Kafka class. */
final class Report {
    static final int INDEX_DIGITS = 10;
    static final int ABORTED_BASE = 1_000_000;

    private Report() {
    }

    /** The command line: --name value pairs after the command. */
    static final class Options {
        final String command;
        private final Map<String, String> values = new HashMap<>(Map.ofEntries(
            Map.entry("bootstrap", "127.0.0.1:9092"), Map.entry("client-id", "interop"),
            Map.entry("topic", "interop"), Map.entry("group", ""), Map.entry("group-protocol", "classic"),
            Map.entry("acks", "all"), Map.entry("compression", "none"),
            Map.entry("isolation", "read_uncommitted"), Map.entry("transactional-id", ""),
            Map.entry("stop-file", ""), Map.entry("retry", "true"), Map.entry("idempotence", "default"),
            Map.entry("records", "0"), Map.entry("size", "1000"), Map.entry("partitions", "1"),
            Map.entry("replication", "1"), Map.entry("outstanding", "500"), Map.entry("fetch-bytes", "0"),
            Map.entry("seconds", "0"), Map.entry("watch-ms", "0"), Map.entry("properties", "")));

        Options(String[] arguments) {
            command = arguments[0];
            for (int at = 1; at < arguments.length; at += 2) {
                String name = arguments[at].substring(2);
                if (values.put(name, arguments[at + 1]) == null) {
                    throw new IllegalArgumentException("unknown option " + arguments[at]);
                }
            }
        }

        String text(String name) {
            return values.get(name);
        }

        int number(String name) {
            return Integer.parseInt(values.get(name));
        }

        double seconds() {
            return Double.parseDouble(values.get("seconds"));
        }

        boolean more(int index) {
            return number("records") == 0 || index < number("records");
        }
    }

    /** Prints one JSON line, at once; fields are name, value, name, value… */
    static synchronized void emit(String event, Object... fields) {
        StringBuilder line = new StringBuilder("{\"event\": ").append(json(event));
        for (int at = 0; at < fields.length; at += 2) {
            line.append(", ").append(json(fields[at])).append(": ").append(json(fields[at + 1]));
        }
        System.out.println(line.append('}'));
        System.out.flush();
    }

    private static String json(Object value) {
        if (value instanceof Collection<?> many) {
            List<String> parts = new ArrayList<>();
            many.forEach(one -> parts.add(json(one)));
            return "[" + String.join(", ", parts) + "]";
        }
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : String.valueOf(value).toCharArray()) {
            quoted.append(c == '"' || c == '\\' ? "\\" + c : c < ' ' ? " " : String.valueOf(c));
        }
        return quoted.append('"').toString();
    }

    static byte[] payload(int index, int size) {
        byte[] number = String.format("%0" + INDEX_DIGITS + "d", index).getBytes(StandardCharsets.US_ASCII);
        byte[] value = Arrays.copyOf(number, Math.max(size, number.length));
        Arrays.fill(value, number.length, value.length, (byte) 's');
        return value;
    }

    /** What was produced or consumed so far. */
    static final class Tally {
        private final long started = System.nanoTime();
        private final double seconds;
        private final File stopFile;
        private final boolean watched;
        int records;
        private long bytes;
        private int errors;
        private long indexSum;
        private int assignments;
        private long slowest;
        private long first = -1;
        private long last = -1;
        private long progress;

        Tally(Options options) {
            this.seconds = options.seconds();
            this.stopFile = new File(options.text("stop-file"));
            this.watched = options.number("watch-ms") > 0;
        }

        long nowMs() {
            return (System.nanoTime() - started) / 1_000_000;
        }

        boolean over() {
            return seconds > 0 && nowMs() >= seconds * 1000 || stopFile.exists();
        }

        synchronized void error(Object message) {
            errors++;
            emit("error", "at_ms", nowMs(), "message", message);
        }

        synchronized void failed(int index, Object message) {
            emit("failed", "indexes", List.of(index));
            error(message);
        }

        private void record(int size, long index) {
            if (watched) {
                emit("record", "index", index, "unix_ms", System.currentTimeMillis());
            }
            last = nowMs();
            first = first < 0 ? last : first;
            records++;
            bytes += size;
        }

        synchronized void acknowledged(int index, int size, long sentMs) {
            record(size, index);
            slowest = Math.max(slowest, last - sentMs);
        }

        synchronized void consumed(byte[] value) {
            long index = Long.parseLong(new String(value, 0, INDEX_DIGITS, StandardCharsets.US_ASCII));
            record(value.length, index);
            indexSum += index;
            if (last - progress >= 1000 || records == 1) {
                progress = last;
                emit("progress", "at_ms", last, "records", records, "bytes", bytes);
            }
        }

        synchronized void assigned(List<Integer> partitions) {
            assignments++;
            emit("assigned", "at_ms", nowMs(), "partitions", partitions);
        }

        synchronized void producedLine(String compression) {
            emit("produced", "compression", compression, "records", records, "bytes", bytes,
                "errors", errors, "slowest_ms", slowest, "first_ms", first, "last_ms", last);
        }

        synchronized void consumedLine() {
            emit("consumed", "records", records, "bytes", bytes, "errors", errors,
                "rebalances", Math.max(0, assignments - 1), "index_sum", indexSum,
                "first_ms", first, "last_ms", last);
        }
    }
}
