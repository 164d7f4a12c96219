import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The driver for Kafka's own Java client (tests/interop/drivers/README.md); runs with 3.9's jars as well. */
public final class Driver {
    private Driver() {
    }

    public static void main(String[] arguments) throws Exception {
        Report.Options options = new Report.Options(arguments);
        switch (options.command) {
            case "capabilities" -> Report.emit("capabilities", "client", "Java " + version(),
                "compressions", List.of("none", "gzip", "snappy", "lz4", "zstd"), "transactions", true);
            case "produce" -> produce(options);
            case "consume" -> consume(options);
            case "transact" -> transact(options);
            case "admin" -> admin(options);
            case "create-topics", "create-partitions", "delete-topics" -> Mutations.run(options);
            case "quotas" -> quotas(options);
            default -> throw new IllegalArgumentException(options.command);
        }
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream stream = Driver.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(stream);
        }
        return properties.getProperty("version");
    }

    static Properties base(Report.Options options) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", options.text("bootstrap"));
        properties.put("client.id", options.text("client-id"));
        String authority = System.getenv("INTEROP_CA_FILE");
        if (authority != null) {
            properties.put("security.protocol", "SSL");
            properties.put("ssl.truststore.type", "PEM");
            properties.put("ssl.truststore.location", authority);
        }
        for (String pair : options.text("properties").split(",")) {
            if (!pair.isEmpty()) {
                properties.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            }
        }
        return properties;
    }

    private static KafkaProducer<byte[], byte[]> producer(Properties properties) {
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static ProducerRecord<byte[], byte[]> record(Report.Options options, int index, int first) {
        int partition = index % options.number("partitions");
        byte[] value = Report.payload(first + index, options.number("size"));
        return new ProducerRecord<>(options.text("topic"), partition, null, value);
    }

    private static void produce(Report.Options options) throws InterruptedException {
        int size = options.number("size");
        for (String compression : options.text("compression").split(",")) {
            Report.Tally tally = new Report.Tally(options);
            Properties properties = base(options);
            // Without enable.idempotence the client leaves idempotence out by itself where acks is not all.
            if (!options.text("acks").equals("default")) {
                properties.put("acks", options.text("acks"));
            }
            if (!options.text("idempotence").equals("default")) {
                properties.put("enable.idempotence", options.text("idempotence").equals("on"));
            }
            properties.put("compression.type", compression);
            Semaphore room = new Semaphore(options.number("outstanding"));
            try (KafkaProducer<byte[], byte[]> producer = producer(properties)) {
                for (int index = 0; !tally.over() && options.more(index); ) {
                    if (!room.tryAcquire(100, TimeUnit.MILLISECONDS)) {
                        continue;
                    }
                    long sentMs = tally.nowMs();
                    int sent = index++;
                    producer.send(record(options, sent, 0), (metadata, error) -> {
                        room.release();
                        if (error == null) {
                            tally.acknowledged(sent, size, sentMs);
                        } else {
                            tally.failed(sent, error);
                        }
                    });
                    Thread.sleep(options.number("watch-ms"));
                }
                producer.flush();
            }
            tally.producedLine(compression);
        }
    }

    private static ConsumerRebalanceListener listener(Report.Tally tally) {
        return new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tally.assigned(partitions.stream().map(TopicPartition::partition).sorted().toList());
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            }
        };
    }

    private static Properties consumerProperties(Report.Options options) {
        Properties properties = base(options);
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", options.text("isolation"));
        if (options.number("fetch-bytes") > 0) {
            properties.put("fetch.max.bytes", options.number("fetch-bytes"));
            properties.put("max.partition.fetch.bytes", options.number("fetch-bytes"));
        }
        if (options.text("group").isEmpty()) {
            properties.put("enable.auto.commit", false);
        } else {
            properties.put("group.id", options.text("group"));
            if (!options.text("group-protocol").equals("classic")) {
                properties.put("group.protocol", options.text("group-protocol"));
            }
        }
        return properties;
    }

    private static void consume(Report.Options options) {
        if (options.text("group-protocol").equals("share")) {
            ShareDriver.consume(options);
            return;
        }
        Report.Tally tally = new Report.Tally(options);
        String topic = options.text("topic");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                consumerProperties(options), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (options.text("group").isEmpty()) {
                List<TopicPartition> all = IntStream.range(0, options.number("partitions"))
                    .mapToObj(partition -> new TopicPartition(topic, partition)).toList();
                consumer.assign(all);
                consumer.seekToBeginning(all);
            } else {
                consumer.subscribe(List.of(topic), listener(tally));
            }
            while (!tally.over() && options.more(tally.records)) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        tally.consumed(record.value());
                    }
                } catch (KafkaException error) {
                    tally.error(error);
                }
            }
        }
        tally.consumedLine();
    }

    private static void transact(Report.Options options) {
        Properties properties = base(options);
        properties.put("transactional.id", options.text("transactional-id"));
        int records = options.number("records");
        try (KafkaProducer<byte[], byte[]> producer = producer(properties)) {
            producer.initTransactions();
            for (boolean commit : List.of(true, false)) {
                producer.beginTransaction();
                for (int index = 0; index < records; index++) {
                    producer.send(record(options, index, commit ? 0 : Report.ABORTED_BASE));
                }
                producer.flush();
                if (commit) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        Report.emit("transacted", "committed", records, "aborted", records, "errors", 0);
    }

    private static void admin(Report.Options options) throws ExecutionException, InterruptedException {
        String topic = options.text("topic");
        try (Admin admin = Admin.create(base(options))) {
            NewTopic created = new NewTopic(topic, options.number("partitions"),
                (short) options.number("replication"));
            try {
                admin.createTopics(List.of(created)).all().get();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof TopicExistsException)) {
                    throw error;
                }
            }
            Report.emit("described",
                "topics", admin.listTopics().names().get().stream().sorted().toList(),
                "partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
                    .partitions().size(),
                "brokers", admin.describeCluster().nodes().get().stream()
                    .map(node -> node.id() + "@" + node.host() + ":" + node.port()).sorted().toList());
        }
    }

    private static void quotas(Report.Options options) throws ExecutionException, InterruptedException {
        try (Admin admin = Admin.create(base(options))) {
            alter(admin, options, 1_000_000.0, 12.5);
            Map<String, Double> set = described(admin, options).values().iterator().next();
            String refused = "";
            try {
                alter(admin, options, -1.0, 12.5);
            } catch (ExecutionException error) {
                refused = error.getCause().getMessage();
            }
            alter(admin, options, null, null);
            Report.emit("quotas", "rate", set.get("producer_byte_rate").intValue(),
                "percentage", set.get("request_percentage").toString(),
                "left", described(admin, options).size(), "refused", refused);
        }
    }

    private static void alter(Admin admin, Report.Options options, Double rate, Double percentage)
            throws ExecutionException, InterruptedException {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, options.text("topic")));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", rate),
            new ClientQuotaAlteration.Op("request_percentage", percentage))))).all().get();
    }

    private static Map<ClientQuotaEntity, Map<String, Double>> described(Admin admin, Report.Options options)
            throws ExecutionException, InterruptedException {
        return admin.describeClientQuotas(ClientQuotaFilter.containsOnly(List.of(
            ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, options.text("topic")))))
            .entities().get();
    }
}
