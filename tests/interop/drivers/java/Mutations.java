import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;

/** Topics created, grown and deleted by Kafka's admin client, several with one call (KIP-599). */
final class Mutations {
    private Mutations() {
    }

    /** Tells of each topic what became of it, then how long the whole call took. */
    static void run(Report.Options options) throws InterruptedException {
        List<String> topics = Arrays.asList(options.text("topic").split(","));
        boolean retry = Boolean.parseBoolean(options.text("retry"));
        long started = System.nanoTime();
        try (Admin admin = Admin.create(Driver.base(options))) {
            for (Map.Entry<String, KafkaFuture<Void>> entry : call(admin, options, topics, retry).entrySet()) {
                tell(entry.getKey(), entry.getValue());
            }
            Report.emit("mutated", "ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - started));
        }
    }

    private static Map<String, KafkaFuture<Void>> call(Admin admin, Report.Options options, List<String> topics,
                                                       boolean retry) {
        int partitions = options.number("partitions");
        return switch (options.command) {
            case "create-topics" -> admin.createTopics(
                topics.stream().map(topic -> new NewTopic(topic, partitions, (short) 1)).toList(),
                new CreateTopicsOptions().retryOnQuotaViolation(retry)).values();
            case "create-partitions" -> admin.createPartitions(
                ordered(topics, topic -> NewPartitions.increaseTo(partitions)),
                new CreatePartitionsOptions().retryOnQuotaViolation(retry)).values();
            default -> admin.deleteTopics(topics, new DeleteTopicsOptions().retryOnQuotaViolation(retry))
                .topicNameValues();
        };
    }

    private static <V> Map<String, V> ordered(List<String> topics, Function<String, V> value) {
        return topics.stream().collect(
            Collectors.toMap(topic -> topic, value, (one, other) -> one, LinkedHashMap::new));
    }

    private static void tell(String topic, KafkaFuture<Void> done) throws InterruptedException {
        String error = "";
        int throttleMs = 0;
        try {
            done.get();
        } catch (ExecutionException failed) {
            error = failed.getCause().getClass().getSimpleName();
            if (failed.getCause() instanceof ThrottlingQuotaExceededException exceeded) {
                throttleMs = exceeded.throttleTimeMs();
            }
        }
        Report.emit("mutation", "topic", topic, "error", error, "throttle_ms", throttleMs);
    }
}
