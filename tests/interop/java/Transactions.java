import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions one right after the other, without a pause: BOOTSTRAP ROUNDS HOW, where HOW is commit,
 * abort, or both in turns. Each round sends one record. What a consumer reads as committed must
 * be what was committed. Prints "so many of so many rounds".
 */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int rounds = Integer.parseInt(arguments[1]);
        String how = arguments[2];
        String topic = "java-transactions-" + UUID.randomUUID();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
        }
        Set<String> committed = new TreeSet<>();
        int passed = 0;
        KafkaProducer<String, String> producer = producer(bootstrap);
        for (int round = 0; round < rounds; round++) {
            boolean commits = how.equals("commit") || how.equals("both") && round % 2 == 0;
            try {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "k" + round, "v" + round));
                if (commits) {
                    producer.commitTransaction();
                    committed.add("v" + round);
                } else {
                    producer.abortTransaction();
                }
                passed++;
            } catch (Exception problem) {
                System.out.println("round " + round + ": " + problem);
                producer.close(Duration.ZERO);
                producer = producer(bootstrap);
            }
        }
        producer.close();
        Set<String> read = readCommitted(bootstrap, topic);
        System.out.println(passed + " of " + rounds + " rounds");
        if (passed != rounds || !read.equals(committed)) {
            System.out.println("committed " + committed.size() + ", read " + read.size());
            System.exit(1);
        }
    }

    private static KafkaProducer<String, String> producer(String bootstrap) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", "java-" + UUID.randomUUID());
        KafkaProducer<String, String> made =
            new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    private static Set<String> readCommitted(String bootstrap, String topic) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("isolation.level", "read_committed");
        Set<String> read = new TreeSet<>();
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> places = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(
                found -> places.add(new TopicPartition(topic, found.partition())));
            consumer.assign(places);
            consumer.seekToBeginning(places);
            int quiet = 0;
            while (quiet < 4) {
                int before = read.size();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    if (!read.add(record.value())) {
                        throw new IllegalStateException(record.value() + " was read twice");
                    }
                }
                quiet = read.size() == before ? quiet + 1 : 0;
            }
        }
        return read;
    }
}
