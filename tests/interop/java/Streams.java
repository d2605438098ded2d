import java.nio.file.Files;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams with exactly_once_v2: BOOTSTRAP RECORDS PROTOCOL. Counts records by key, through a repartition
 * topic and a state store with a changelog; halfway the application is closed and started anew. The counts that
 * are read as committed must be 1, 2, 3, ... for each key, without a gap or a repetition. PROTOCOL is that of the
 * group, classic or streams. Prints "so many of so many records".
 */
public class Streams {
    private static final int KEYS = 7;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int records = Integer.parseInt(arguments[1]);
        String protocol = arguments[2];
        String name = "java-streams-" + UUID.randomUUID();
        String input = name + "-in";
        String output = name + "-out";
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(
                List.of(new NewTopic(input, 3, (short) 1), new NewTopic(output, 3, (short) 1))).all().get();
        }
        Properties config = new Properties();
        config.put("application.id", name);
        config.put("bootstrap.servers", bootstrap);
        config.put("group.protocol", protocol);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("commit.interval.ms", 100);
        config.put("num.stream.threads", 2);
        config.put("statestore.cache.max.bytes", 0);
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("state.dir", Files.createTempDirectory("streams").toString());
        Map<String, Long> counts = new HashMap<>();
        long read = 0;
        for (int half = 0; half < 2; half++) {
            KafkaStreams streams = started(config, input, output);
            produce(bootstrap, input, half * records / 2, (half + 1) * records / 2);
            read = follow(bootstrap, output, (half + 1) * records / 2);
            streams.close(Duration.ofSeconds(30));
        }
        System.out.println(read + " of " + records + " records");
        if (read != records) {
            System.exit(1);
        }
    }

    private static KafkaStreams started(Properties config, String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(input).groupBy((key, value) -> key).count().toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(problem -> {
            System.out.println("a thread ended: " + problem);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                .StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        return streams;
    }

    private static void produce(String bootstrap, String input, int from, int to) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                 Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++) {
                producer.send(new ProducerRecord<>(input, "k" + number % KEYS, "v" + number));
            }
        }
    }

    /** Reads the output from its beginning; how many counts came, each the one that was due. */
    private static long follow(String bootstrap, String output, long wanted) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", output + UUID.randomUUID());
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        Map<String, Long> counts = new HashMap<>();
        long read = 0;
        try (KafkaConsumer<String, Long> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of(output));
            long end = System.currentTimeMillis() + 90_000;
            while (read < wanted && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    long due = counts.merge(record.key(), 1L, Long::sum);
                    if (record.value() != due) {
                        throw new IllegalStateException(
                            record.key() + " is counted " + record.value() + " where " + due + " was due");
                    }
                    read++;
                }
            }
        }
        return read;
    }
}
