import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's own start over each directory of a list, as after a kill.
 *
 * A line of the file that is the argument is a directory. Each line of the output is a directory, and the
 * offsets where its log starts and ends.
 */
public class Load {
    public static void main(String[] arguments) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(arguments[0]));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (String line : lines) {
            Properties given = new Properties();
            given.put("cleanup.policy", "compact");
            given.put("segment.bytes", "1048576");
            given.put("index.interval.bytes", "100");
            UnifiedLog log = UnifiedLog.create(new File(line), new LogConfig(given), 0L, 0L, scheduler,
                new BrokerTopicStats(), Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false),
                600_000, new LogDirFailureChannel(1), false, Optional.empty());
            System.out.println(line + " " + log.logStartOffset() + " " + log.logEndOffset());
            log.close();
        }
        scheduler.shutdown();
    }
}
