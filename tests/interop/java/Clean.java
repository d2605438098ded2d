import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's own log cleaner, once over each directory of a list.
 *
 * A line of the file that is the argument: directory, segment.bytes, index.interval.bytes,
 * delete.retention.ms, first dirty offset, the time. The last line of the output says of how many of how
 * many directories it cleaned.
 */
public class Clean {
    /** A clock that stands still: producers do not expire. */
    static final class Still implements Time {
        private final long nowMs;

        Still(long nowMs) {
            this.nowMs = nowMs;
        }

        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(arguments[0]));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        int cleaned = 0;
        for (String line : lines) {
            clean(line.split(" "), scheduler);
            cleaned++;
        }
        scheduler.shutdown();
        System.out.println(cleaned + " of " + lines.size());
    }

    private static void clean(String[] fields, KafkaScheduler scheduler) throws Exception {
        long firstDirty = Long.parseLong(fields[4]);
        long nowMs = Long.parseLong(fields[5]);
        Time time = new Still(nowMs);
        Properties given = new Properties();
        given.put("cleanup.policy", "compact");
        given.put("segment.bytes", "1048576");
        given.put("index.interval.bytes", fields[2]);
        given.put("delete.retention.ms", fields[3]);
        given.put("internal.segment.bytes", fields[1]);
        UnifiedLog log = UnifiedLog.create(new File(fields[0]), new LogConfig(given), 0L, 0L, scheduler,
            new BrokerTopicStats(), time, 900_000, new ProducerStateManagerConfig(86_400_000, false),
            600_000, new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        long bound = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
        LogToClean found = new LogToClean(log, firstDirty, Math.max(firstDirty, bound), false);
        if (found.cleanableBytes() > 0) {
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(4 << 20), 65536, 1 << 20, 0.9,
                new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time), time, partition -> { });
            long end = cleaner.doClean(found, nowMs).getKey();
            System.out.println(fields[0] + " is clean to " + end);
        }
        log.close();
    }
}
