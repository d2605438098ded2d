import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A share consumer that meets a fault: BOOTSTRAP TOPIC GROUP RECORDS FAULT. FAULT is expire, finish or lose. The
 * topic has so many records, in one partition. Prints "wanted: ..." when the fault is to be ordered, and then what
 * the application sees.
 */
public class ShareFaults {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long WAIT_MS = 60_000;
    private static final int FETCH_MS = 50;
    /** The polls after which nothing more is expected. */
    private static final int EMPTY_POLLS = 6;

    public static void main(String[] arguments) throws Exception {
        int records = Integer.parseInt(arguments[3]);
        switch (arguments[4]) {
            case "expire" -> expire(arguments, records);
            case "finish" -> finish(arguments, records);
            case "lose" -> lose(arguments, records);
            default -> throw new IllegalArgumentException(arguments[4]);
        }
        System.exit(0);
    }

    /** One member has all records when their locks are ended, and another one gets them. */
    private static void expire(String[] arguments, int records) throws Exception {
        try (KafkaShareConsumer<String, String> first = member(arguments);
                 KafkaShareConsumer<String, String> second = member(arguments)) {
            List<ConsumerRecord<String, String>> held = taken(first, records);
            System.out.println("the first has: " + deliveries(held));
            // The client may have one fetch more at the broker, which would get the records again.
            Thread.sleep(20 * FETCH_MS);
            want("end the locks");
            List<ConsumerRecord<String, String>> again = taken(second, records);
            System.out.println("the second has: " + deliveries(again));
            held.forEach(record -> first.acknowledge(record, AcknowledgeType.ACCEPT));
            System.out.println("the first is told: " + outcome(first));
            again.forEach(record -> second.acknowledge(record, AcknowledgeType.ACCEPT));
            System.out.println("the second is told: " + outcome(second));
        }
    }

    /** One member has all records when its locks end; another one gets and rejects them before the first accepts. */
    private static void finish(String[] arguments, int records) throws Exception {
        try (KafkaShareConsumer<String, String> first = member(arguments);
                 KafkaShareConsumer<String, String> second = member(arguments)) {
            List<ConsumerRecord<String, String>> held = taken(first, records);
            System.out.println("the first has: " + deliveries(held));
            Thread.sleep(20 * FETCH_MS);
            want("end the locks");
            List<ConsumerRecord<String, String>> again = taken(second, records);
            System.out.println("the second has: " + deliveries(again));
            again.forEach(record -> second.acknowledge(record, AcknowledgeType.REJECT));
            System.out.println("the second is told: " + outcome(second));
            held.forEach(record -> first.acknowledge(record, AcknowledgeType.ACCEPT));
            System.out.println("the first is told: " + outcome(first));
        }
    }

    /** A member accepts all records, and the request, or its answer, is lost with the connection. */
    private static void lose(String[] arguments, int records) throws Exception {
        try (KafkaShareConsumer<String, String> consumer = member(arguments)) {
            List<ConsumerRecord<String, String>> held = taken(consumer, records);
            want("lose the acknowledgement");
            held.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
            System.out.println("it is told: " + outcome(consumer));
            List<ConsumerRecord<String, String>> again = new ArrayList<>();
            for (int empty = 0; empty < EMPTY_POLLS && again.size() < records; empty++) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    again.add(record);
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
            }
            System.out.println("it has again: " + deliveries(again));
            System.out.println("it is told: " + outcome(consumer));
        }
    }

    private static KafkaShareConsumer<String, String> member(String[] arguments) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", arguments[0]);
        config.put("group.id", arguments[2]);
        config.put("share.acknowledgement.mode", "explicit");
        config.put("fetch.max.wait.ms", FETCH_MS);
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(arguments[1]));
        return consumer;
    }

    private static List<ConsumerRecord<String, String>> taken(
            KafkaShareConsumer<String, String> consumer, int records) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + WAIT_MS;
        while (found.size() < records && System.currentTimeMillis() < end) {
            consumer.poll(POLL).forEach(found::add);
        }
        return found;
    }

    /** The offsets, with the number of their deliveries. */
    private static String deliveries(List<ConsumerRecord<String, String>> records) {
        Map<Long, Short> counts = new TreeMap<>();
        records.forEach(record -> counts.put(record.offset(), record.deliveryCount().orElse((short) 0)));
        return counts.toString();
    }

    /** The outcome of the acknowledgements: "ok", or the error of the partition. */
    private static String outcome(KafkaShareConsumer<String, String> consumer) {
        Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync();
        List<String> found = new ArrayList<>();
        results.values().forEach(
            each -> found.add(each.map(problem -> problem.getClass().getSimpleName()).orElse("ok")));
        return String.join(", ", found);
    }

    private static void want(String what) throws Exception {
        System.out.println("wanted: " + what);
        System.in.read();
    }
}
