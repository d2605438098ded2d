import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Flink's source and its exactly-once sink: ADDRESS NAME FOLDER. A job copies a topic; it fails in the middle, the
 * broker is killed, and with a savepoint the job is stopped and started anew. Both ways to name transactions.
 */
public class FlinkSink {
    private static final int RECORDS = 6000;
    private static final int PARTITIONS = 3;
    private static final long WAIT_MS = 120_000;
    private static final AtomicInteger copied = new AtomicInteger();
    private static final AtomicBoolean fails = new AtomicBoolean();
    private static String address;
    private static String name;
    private static String folder;

    /** Copies slowly, and fails once if that is wanted. */
    public static class Copy implements MapFunction<String, String> {
        @Override
        public String map(String value) throws Exception {
            Thread.sleep(2);
            if (copied.incrementAndGet() > RECORDS / 3 && fails.compareAndSet(true, false)) {
                throw new IllegalStateException("on purpose");
            }
            return value;
        }
    }

    private static void check(String what, boolean well, Object found) {
        String told = String.valueOf(found).replace("\n", " ");
        System.out.println(well ? "ok " + what : "failed " + what + ": found " + told);
    }

    private static void restart() throws Exception {
        System.out.println("wanted: restart");
        System.out.flush();
        System.in.read();
    }

    private static void produce(String topic, int from, int to) {
        Map<String, Object> config = Map.of("bootstrap.servers", address);
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++) {
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, "v" + number));
            }
        }
    }

    private static JobClient started(String run, TransactionNamingStrategy naming, String savepoint)
            throws Exception {
        Configuration config = new Configuration();
        config.setString("execution.checkpointing.interval", "500ms");
        config.setString("execution.checkpointing.dir", "file://" + folder + "/" + run);
        config.setString("restart-strategy.type", "fixed-delay");
        config.setString("restart-strategy.fixed-delay.attempts", "30");
        config.setString("restart-strategy.fixed-delay.delay", "1s");
        if (savepoint != null) {
            config.setString("execution.state-recovery.path", savepoint);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, config);
        KafkaSourceBuilder<String> source = KafkaSource.<String>builder().setBootstrapServers(address)
            .setTopics(name + "-" + run + "-in").setGroupId(name + "-" + run)
            .setStartingOffsets(OffsetsInitializer.earliest()).setValueOnlyDeserializer(new SimpleStringSchema());
        KafkaSink<String> sink = KafkaSink.<String>builder().setBootstrapServers(address)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE).setTransactionalIdPrefix(name + "-" + run)
            .setTransactionNamingStrategy(naming).setProperty("transaction.timeout.ms", "600000")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder().setTopic(name + "-" + run + "-out")
                .setValueSerializationSchema(new SimpleStringSchema()).build()).build();
        environment.fromSource(source.build(), WatermarkStrategy.noWatermarks(), "in").uid("in").map(new Copy())
            .uid("copy").sinkTo(sink).uid("out");
        return environment.executeAsync(run);
    }

    /** Stops a job with a savepoint, once all its tasks run. */
    private static String stop(JobClient job, String run) throws Exception {
        String target = "file://" + folder + "/" + run + "-saved";
        long end = System.currentTimeMillis() + WAIT_MS;
        while (true) {
            try {
                return job.stopWithSavepoint(false, target, SavepointFormatType.CANONICAL)
                    .get(WAIT_MS, TimeUnit.MILLISECONDS);
            } catch (ExecutionException early) {
                if (System.currentTimeMillis() > end) {
                    throw early;
                }
                Thread.sleep(500);
            }
        }
    }

    private static void waitUntilCopied(int count) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (copied.get() < count && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
    }

    /** What is wrong with the committed records of a topic; empty if each value is there once. */
    private static String wrong(String topic) {
        Map<String, Object> config = Map.of("bootstrap.servers", address, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        Map<String, Integer> found = new HashMap<>();
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> all =
                IntStream.range(0, PARTITIONS).mapToObj(number -> new TopicPartition(topic, number)).toList();
            consumer.assign(all);
            long end = System.currentTimeMillis() + WAIT_MS;
            int silent = 0;
            while (System.currentTimeMillis() < end && (found.size() < RECORDS || silent < 5) && silent < 100) {
                int before = found.values().stream().mapToInt(Integer::intValue).sum();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(300))) {
                    found.merge(record.value(), 1, Integer::sum);
                }
                silent = found.values().stream().mapToInt(Integer::intValue).sum() == before ? silent + 1 : 0;
            }
        }
        long twice = found.values().stream().filter(times -> times > 1).count();
        return found.size() == RECORDS && twice == 0 ? "" : found.size() + " values, " + twice + " more than once";
    }

    private static long committed(Admin admin, String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values().stream()
            .mapToLong(OffsetAndMetadata::offset).sum();
    }

    private static void tried(Admin admin, TransactionNamingStrategy naming) throws Exception {
        String run = naming.name().toLowerCase();
        for (String suffix : List.of("-in", "-out")) {
            admin.createTopics(List.of(new NewTopic(name + "-" + run + suffix, PARTITIONS, (short) 1))).all().get();
        }
        produce(name + "-" + run + "-in", 0, RECORDS / 2);
        copied.set(0);
        fails.set(true);
        JobClient job = started(run, naming, null);
        waitUntilCopied(RECORDS / 3 + 200);
        check(run + ", a job fails on purpose", !fails.get(), copied.get());
        produce(name + "-" + run + "-in", RECORDS / 2, RECORDS * 3 / 4);
        restart();
        waitUntilCopied(copied.get() + 200);
        String savepoint = stop(job, run);
        check(run + ", the job stops with a savepoint", savepoint.startsWith("file:"), savepoint);
        produce(name + "-" + run + "-in", RECORDS * 3 / 4, RECORDS);
        job = started(run, naming, savepoint);
        String wrong = wrong(name + "-" + run + "-out");
        check(run + ", each record once", wrong.isEmpty(), wrong);
        stop(job, run);
        long offsets = committed(admin, name + "-" + run);
        check(run + ", its group has offsets", offsets > 0 && offsets <= RECORDS, offsets);
    }

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        name = arguments[1];
        folder = arguments[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            tried(admin, TransactionNamingStrategy.INCREMENTING);
            tried(admin, TransactionNamingStrategy.POOLING);
        } catch (Exception problem) {
            problem.printStackTrace();
            System.exit(1);  // Flink's threads would go on.
        }
        System.exit(0);
    }
}
