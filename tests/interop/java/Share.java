import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A work queue: BOOTSTRAP RECORDS CONSUMERS MODE [SECONDS]. MODE is implicit or explicit. Explicit consumers
 * release some records at their first delivery and reject others. Every record must end, and no record may be
 * delivered after its acknowledgement was confirmed. Prints "ready" when the records are there, and at the end
 * "so many of so many records". One consumer leaves when half of the records have ended.
 */
public class Share {
    private static final Set<String> ENDED = ConcurrentHashMap.newKeySet();
    private static final Map<String, String> VALUES = new ConcurrentHashMap<>();
    private static final AtomicInteger DELIVERED = new AtomicInteger();
    private static final AtomicInteger AGAIN = new AtomicInteger();
    private static final AtomicInteger RELEASED = new AtomicInteger();
    private static final AtomicInteger COUNTED_WRONG = new AtomicInteger();
    private static final AtomicInteger REFUSED = new AtomicInteger();
    private static final Set<String> FAILURES = ConcurrentHashMap.newKeySet();

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int records = Integer.parseInt(arguments[1]);
        int members = Integer.parseInt(arguments[2]);
        boolean explicit = arguments[3].equals("explicit");
        int seconds = arguments.length > 4 ? Integer.parseInt(arguments[4]) : 120;
        String topic = "java-share-" + UUID.randomUUID();
        String group = "share-" + UUID.randomUUID();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
            Collection<AlterConfigOp> earliest = List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(
                Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), earliest)).all().get();
        }
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < records; number++) {
                producer.send(new ProducerRecord<>(topic, "k" + number, "v" + number));
            }
        }
        System.out.println("ready");
        List<Member> all = new ArrayList<>();
        for (int number = 0; number < members; number++) {
            all.add(new Member(bootstrap, topic, group, explicit));
            all.get(number).start();
        }
        long end = System.currentTimeMillis() + seconds * 1000L;
        boolean left = members < 2;
        while (ENDED.size() < records && System.currentTimeMillis() < end) {
            if (!left && ENDED.size() > records / 2) {
                all.get(0).leave();
                left = true;
            }
            Thread.sleep(50);
        }
        for (Member member : all) {
            member.leave();
        }
        System.out.println("delivered " + DELIVERED + ", released " + RELEASED + ", refused " + REFUSED);
        System.out.println(ENDED.size() + " of " + records + " records");
        if (ENDED.size() != records || AGAIN.get() > 0 || COUNTED_WRONG.get() > 0 || !FAILURES.isEmpty()) {
            System.out.println(AGAIN + " delivered again, " + COUNTED_WRONG + " with a wrong count, " + FAILURES);
            System.exit(1);
        }
        System.exit(0);
    }

    private static final class Member extends Thread {
        private final Map<String, Object> config = new HashMap<>();
        private final String topic;
        private final boolean explicit;
        private final Set<String> unfinished = ConcurrentHashMap.newKeySet();
        private volatile boolean leaves;

        Member(String bootstrap, String topic, String group, boolean explicit) {
            this.topic = topic;
            this.explicit = explicit;
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", group);
            config.put("share.acknowledgement.mode", explicit ? "explicit" : "implicit");
        }

        void leave() throws InterruptedException {
            leaves = true;
            join(30_000);
        }

        private void confirmed(Map<TopicIdPartition, Set<Long>> offsets, Exception problem) {
            offsets.forEach((partition, these) -> these.forEach(offset -> {
                String name = partition.partition() + "@" + offset;
                if (problem != null) {
                    REFUSED.incrementAndGet();
                } else if (unfinished.remove(name)) {
                    ENDED.add(name);
                }
            }));
        }

        @Override
        public void run() {
            try (KafkaShareConsumer<String, String> consumer =
                     new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                consumer.setAcknowledgementCommitCallback(this::confirmed);
                consumer.subscribe(List.of(topic));
                while (!leaves) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        take(consumer, record);
                    }
                    consumer.commitSync();
                }
            } catch (Exception problem) {
                FAILURES.add(problem.toString());
            }
        }

        private void take(KafkaShareConsumer<String, String> consumer, ConsumerRecord<String, String> record) {
            DELIVERED.incrementAndGet();
            String name = record.partition() + "@" + record.offset();
            if (ENDED.contains(name)) {
                AGAIN.incrementAndGet();
            }
            String before = VALUES.putIfAbsent(name, record.value());
            if (before != null && !before.equals(record.value())) {
                FAILURES.add(name + " has two values");
            }
            short count = record.deliveryCount().orElse((short) -1);
            if (count < 1 || count > 5) {
                COUNTED_WRONG.incrementAndGet();
            }
            if (!explicit) {
                unfinished.add(name);
                return;
            }
            if (record.offset() % 10 == 3 && count == 1) {
                RELEASED.incrementAndGet();
                consumer.acknowledge(record, AcknowledgeType.RELEASE);
                return;
            }
            unfinished.add(name);
            boolean poison = record.offset() % 17 == 5;
            consumer.acknowledge(record, poison ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
        }
    }
}
