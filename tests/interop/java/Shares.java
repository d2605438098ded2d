import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Share consumers: two members of a group accept, release, reject and renew records.
 *
 * Arguments: address, name of the topic and the group, number of records.
 */
public class Shares {
    private static int checks = 0;
    private static int passed = 0;

    static void check(boolean holds, String what) {
        checks++;
        if (holds) {
            passed++;
        } else {
            System.out.println("NOT: " + what);
        }
    }

    static KafkaShareConsumer<String, String> member(String address, String group, String topic, String mode) {
        Properties given = new Properties();
        given.put("bootstrap.servers", address);
        given.put("group.id", group);
        given.put("share.acknowledgement.mode", mode);
        given.put("max.poll.records", "50");
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(given, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static void prepare(String address, String name, int count) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.updateFeatures(
                Map.of("share.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
                new UpdateFeaturesOptions()).all().get();
            admin.createTopics(List.of(new NewTopic(name, 2, (short) 1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(
                Map.of(group, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", address, "linger.ms", "5"),
                new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(name, i % 2, null, "" + i));
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String name = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        prepare(address, name, count);
        Map<Integer, List<Short>> deliveries = new TreeMap<>();
        TreeSet<Integer> accepted = new TreeSet<>();
        TreeSet<Integer> rejected = new TreeSet<>();
        boolean twice = false;
        int failed = 0;
        List<KafkaShareConsumer<String, String>> members = List.of(
            member(address, name, name, "explicit"), member(address, name, name, "explicit"));
        int[] served = new int[2];
        long deadline = System.currentTimeMillis() + 120_000;
        while (accepted.size() + rejected.size() < count && System.currentTimeMillis() < deadline) {
            for (int i = 0; i < 2; i++) {
                KafkaShareConsumer<String, String> member = members.get(i);
                List<ConsumerRecord<String, String>> got = new ArrayList<>();
                member.poll(Duration.ofMillis(500)).forEach(got::add);
                for (ConsumerRecord<String, String> record : got) {
                    int number = Integer.parseInt(record.value());
                    short delivery = record.deliveryCount().get();
                    deliveries.computeIfAbsent(number, any -> new ArrayList<>()).add(delivery);
                    served[i]++;
                    if (number % 10 == 3 && delivery < 3) {
                        member.acknowledge(record, AcknowledgeType.RELEASE);
                    } else if (number % 50 == 7) {
                        member.acknowledge(record, AcknowledgeType.REJECT);
                        twice |= !rejected.add(number);
                    } else {
                        member.acknowledge(record, AcknowledgeType.ACCEPT);
                        twice |= !accepted.add(number);
                    }
                }
                for (var result : member.commitSync().entrySet()) {
                    failed += result.getValue().isPresent() ? 1 : 0;
                }
            }
        }
        check(accepted.size() + rejected.size() == count, "all records: " + accepted.size());
        check(!twice, "no record is finished twice");
        check(failed == 0, failed + " acknowledgements failed");
        check(served[0] > 0 && served[1] > 0, "both members have records");
        for (var each : deliveries.entrySet()) {
            List<Short> expected = each.getKey() % 10 == 3 ? List.of((short) 1, (short) 2, (short) 3) : List.of((short) 1);
            if (!each.getValue().equals(expected)) {
                check(false, "deliveries of " + each.getKey() + ": " + each.getValue());
            }
        }
        prepareMore(address, name);
        KafkaShareConsumer<String, String> first = members.get(0);
        members.get(1).close();
        List<ConsumerRecord<String, String>> held = new ArrayList<>();
        while (held.size() < 1 && System.currentTimeMillis() < deadline) {
            first.poll(Duration.ofMillis(500)).forEach(held::add);
        }
        for (ConsumerRecord<String, String> record : held) {
            first.acknowledge(record, AcknowledgeType.RENEW);
        }
        check(first.commitSync().values().stream().allMatch(error -> error.isEmpty()), "renewed");
        first.close();
        int again = 0;
        try (KafkaShareConsumer<String, String> last = member(address, name, name, "implicit")) {
            while (again < 20 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : last.poll(Duration.ofMillis(500))) {
                    again++;
                }
            }
            check(last.commitSync().values().stream().allMatch(error -> error.isEmpty()), "implicit");
        }
        check(again == 20, "what a closed member had is delivered again: " + again);
        System.out.println(passed + " of " + checks + " checks");
    }

    static void prepareMore(String address, String name) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", address), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 20; i++) {
                producer.send(new ProducerRecord<>(name, i % 2, null, "" + (1_000_000 + i)));
            }
        }
    }
}
