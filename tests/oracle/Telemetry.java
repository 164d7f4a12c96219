import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.PushTelemetryRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.requests.RequestUtils;
import org.apache.kafka.common.telemetry.internals.ClientTelemetryUtils;
import org.apache.kafka.common.telemetry.internals.MetricNamingStrategy;
import org.apache.kafka.common.telemetry.internals.SinglePointMetric;
import org.apache.kafka.common.telemetry.internals.TelemetryMetricNamingConvention;

/**
 * PushTelemetry requests as Kafka's own client makes them, asked over standard input and output.
 *
 * <pre>
 * COMPRESSION GROUP/NAME=VALUE...     gauges of a client by Kafka's names, in a request of the client id "a"
 * </pre>
 *
 * The answer is hexadecimal, with its length prefix.
 */
public final class Telemetry {
    private static final MetricNamingStrategy<MetricName> NAMES =
        TelemetryMetricNamingConvention.getClientTelemetryMetricNamingStrategy("org.apache.kafka");

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);  // what Kafka's classes log
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(answer(line.split(" ")));
            answers.flush();
        }
    }

    private static String answer(String[] words) throws Exception {
        List<SinglePointMetric> metrics = new ArrayList<>();
        for (int i = 1; i < words.length; i++) {
            String[] parts = words[i].split("[/=]");
            MetricName name = new MetricName(parts[1], parts[0], "a description", Map.of("client-id", "a"));
            Number value = parts[2].contains(".") || parts[2].equals("NaN") ? (Number) Double.valueOf(parts[2]) : Long.valueOf(parts[2]);
            metrics.add(SinglePointMetric.gauge(NAMES.metricKey(name), value, Instant.now(), Set.of()));
        }
        CompressionType type = CompressionType.forName(words[0]);
        PushTelemetryRequestData data = new PushTelemetryRequestData()
            .setClientInstanceId(Uuid.randomUuid())
            .setSubscriptionId(7)
            .setCompressionType((byte) type.id)
            .setMetrics(ClientTelemetryUtils.compressMetrics(metrics, type));
        RequestHeaderData header = new RequestHeaderData()
            .setRequestApiKey(data.apiKey()).setRequestApiVersion((short) 0).setCorrelationId(1).setClientId("a");
        ByteBuffer frame = RequestUtils.serialize(header, (short) 2, data, (short) 0);
        return HexFormat.of().toHexDigits(frame.remaining())
            + HexFormat.of().formatHex(frame.array(), frame.arrayOffset(), frame.arrayOffset() + frame.remaining());
    }
}
