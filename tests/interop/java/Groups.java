import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Produce and read in a group: BOOTSTRAP RECORDS CODEC PROTOCOL, where PROTOCOL is classic or consumer. One
 * member reads alone, two more join it, one leaves. Every record must be read, and none
 * after its position was committed. Prints "so many of so many records".
 */
public class Groups {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int records = Integer.parseInt(arguments[1]);
        String topic = "java-groups-" + UUID.randomUUID();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 6, (short) 1))).all().get();
        }
        AtomicInteger refused = new AtomicInteger();
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", arguments[2]);
        Set<String> read = ConcurrentHashMap.newKeySet();
        AtomicInteger twice = new AtomicInteger();
        Member first = new Member(bootstrap, topic, arguments[3], read, twice);
        Member second = new Member(bootstrap, topic, arguments[3], read, twice);
        Member third = new Member(bootstrap, topic, arguments[3], read, twice);
        first.start();
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < records; number++) {
                producer.send(new ProducerRecord<>(topic, "k" + number, "v" + number), (sent, problem) -> {
                    if (problem != null) {
                        refused.incrementAndGet();
                    }
                });
                if (number == records / 4) {
                    second.start();
                } else if (number == records / 2) {
                    third.start();
                } else if (number == records * 3 / 4) {
                    first.leave();
                }
                if (number % (records / 40 + 1) == 0) {
                    Thread.sleep(100);
                }
            }
        }
        long end = System.currentTimeMillis() + 60_000;
        while (read.size() < records && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        first.leave();
        second.leave();
        third.leave();
        System.out.println(read.size() + " of " + records + " records");
        if (read.size() != records || refused.get() > 0 || twice.get() > 0) {
            System.out.println(refused + " refused, " + twice + " read twice");
            System.exit(1);
        }
    }

    private static final class Member extends Thread {
        private final Map<String, Object> config = new HashMap<>();
        private final String topic;
        private final Set<String> read;
        private final AtomicInteger twice;
        private volatile boolean leaves;

        Member(String bootstrap, String topic, String protocol, Set<String> read, AtomicInteger twice) {
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", topic);
            config.put("group.protocol", protocol);
            config.put("auto.offset.reset", "earliest");
            config.put("enable.auto.commit", false);
            this.topic = topic;
            this.read = read;
            this.twice = twice;
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> consumer =
                     new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                while (!leaves) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        if (!read.add(record.value())) {
                            twice.incrementAndGet();
                        }
                    }
                    consumer.commitSync();
                }
            }
        }

        void leave() throws InterruptedException {
            leaves = true;
            join();
        }
    }
}
