import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** consume --group-protocol share: a share group's member (KIP-932). Apart, since 3.9's jars lack the class. */
final class ShareDriver {
    private ShareDriver() {
    }

    static void consume(Report.Options options) {
        startAtEarliest(options);
        Report.Tally tally = new Report.Tally(options);
        Properties properties = Driver.base(options);
        properties.put("group.id", options.text("group"));
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(options.text("topic")));
            while (!tally.over() && options.more(tally.records)) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        tally.consumed(record.value());
                    }
                    consumer.commitSync();
                } catch (KafkaException error) {
                    tally.error(error);
                }
            }
        }
        tally.consumedLine();
    }

    /** A share group begins at the latest offset, and only the group's own configuration can say otherwise. */
    private static void startAtEarliest(Report.Options options) {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, options.text("group"));
        AlterConfigOp earliest = new AlterConfigOp(
            new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        try (Admin admin = Admin.create(Driver.base(options))) {
            admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        } catch (InterruptedException | ExecutionException error) {
            throw new IllegalStateException(error);
        }
    }
}
