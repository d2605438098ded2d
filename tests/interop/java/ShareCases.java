import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Share consumers of Java in many situations: BOOTSTRAP [CASE...], all cases if none is named. Prints a line for each
 * step, with what is the same on every broker: values of records and how often they were delivered, names of errors,
 * states.
 */
public class ShareCases {
    private static final Duration SHORT = Duration.ofMillis(500);
    private static String bootstrap;
    private static Admin admin;

    /** What may fail: the name of its error becomes the result. */
    interface Step {
        Object run() throws Exception;
    }

    /** Several steps with a topic of their own. */
    interface Case {
        void run() throws Exception;
    }

    static void say(String name, Step step) {
        String result;
        try {
            result = String.valueOf(step.run());
        } catch (ExecutionException problem) {
            result = problem.getCause().getClass().getSimpleName();
        } catch (Exception problem) {
            result = problem.getClass().getSimpleName();
        }
        System.out.println(name + ": " + result);
    }

    static String topic(int partitions, Map<String, String> settings) throws Exception {
        String name = "cases-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(settings))).all().get();
        return name;
    }

    static void configure(String group, String... settings) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int i = 0; i < settings.length; i += 2) {
            changes.add(new AlterConfigOp(new ConfigEntry(settings[i], settings[i + 1]), AlterConfigOp.OpType.SET));
        }
        Map<ConfigResource, Collection<AlterConfigOp>> all =
            Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes);
        admin.incrementalAlterConfigs(all).all().get();
    }

    static KafkaProducer<String, String> producer(String... settings) {
        Properties given = new Properties();
        given.put("bootstrap.servers", bootstrap);
        // A batch ends when the producer is flushed or closed, so that its size does not depend on the machine.
        given.put("linger.ms", "60000");
        for (int i = 0; i < settings.length; i += 2) {
            given.put(settings[i], settings[i + 1]);
        }
        return new KafkaProducer<>(given, new StringSerializer(), new StringSerializer());
    }

    /** Records with the numbers as values, in one batch for each partition. */
    static void produce(String topic, int partitions, int from, int to) {
        try (KafkaProducer<String, String> sender = producer()) {
            for (int number = from; number < to; number++) {
                sender.send(new ProducerRecord<>(topic, number % partitions, null, "" + number));
            }
        }
    }

    static KafkaShareConsumer<String, String> member(String topic, String group, String... settings) {
        Properties given = new Properties();
        given.put("bootstrap.servers", bootstrap);
        given.put("group.id", group);
        given.put("share.acknowledgement.mode", "explicit");
        // A member that looks for a deleted topic would make it again, with one partition.
        given.put("allow.auto.create.topics", "false");
        for (int i = 0; i < settings.length; i += 2) {
            given.put(settings[i], settings[i + 1]);
        }
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(given, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    /** The first records that come, none acknowledged. */
    static List<ConsumerRecord<String, String>> first(KafkaShareConsumer<String, String> member) {
        long deadline = System.currentTimeMillis() + 30_000;
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        while (found.isEmpty() && System.currentTimeMillis() < deadline) {
            member.poll(SHORT).forEach(found::add);
        }
        return found;
    }

    static Object commit(KafkaShareConsumer<String, String> member) {
        Set<String> errors = new TreeSet<>();
        for (var each : member.commitSync().values()) {
            errors.add(each.map(problem -> problem.getClass().getSimpleName()).orElse("ok"));
        }
        return errors;
    }

    /** Values with their deliveries, all accepted: until so many came, and what comes within a second after. */
    static Map<Integer, Integer> accept(KafkaShareConsumer<String, String> member, int wanted) {
        long deadline = System.currentTimeMillis() + 30_000;
        Map<Integer, Integer> found = new TreeMap<>();
        int empty = 0;
        while (empty < 2 && System.currentTimeMillis() < deadline) {
            var records = member.poll(SHORT);
            for (ConsumerRecord<String, String> record : records) {
                found.put(Integer.parseInt(record.value()), (int) record.deliveryCount().get());
                member.acknowledge(record, AcknowledgeType.ACCEPT);
            }
            member.commitSync();
            empty = records.isEmpty() && found.size() >= wanted ? empty + 1 : 0;
        }
        return found;
    }

    /** Ranges of values with the same count of deliveries, which is short to print. */
    static String ranges(Map<Integer, Integer> found) {
        StringBuilder text = new StringBuilder();
        Integer start = null, last = null, count = null;
        for (var each : found.entrySet()) {
            if (start == null || each.getKey() != last + 1 || !each.getValue().equals(count)) {
                text.append(start == null ? "" : start + "-" + last + "x" + count + " ");
                start = each.getKey();
                count = each.getValue();
            }
            last = each.getKey();
        }
        return (text + (start == null ? "none" : start + "-" + last + "x" + count)).trim();
    }

    static String group(String... settings) throws Exception {
        String name = "cases-" + UUID.randomUUID();
        configure(name, "share.auto.offset.reset", "earliest");
        if (settings.length > 0) {
            configure(name, settings);
        }
        return name;
    }

    static void acquireModes() throws Exception {
        for (String mode : List.of("batch_optimized", "record_limit")) {
            String topic = topic(1, Map.of());
            produce(topic, 1, 0, 100);
            String group = group();
            try (var member = member(topic, group, "share.acquire.mode", mode, "max.poll.records", "10")) {
                var records = first(member);
                say(mode + ", records of a poll", records::size);
                records.forEach(record -> member.acknowledge(record, AcknowledgeType.ACCEPT));
                say(mode + ", commit", () -> commit(member));
                say(mode + ", the rest", () -> ranges(accept(member, 100 - records.size())));
            }
        }
    }

    static void isolation() throws Exception {
        String topic = topic(1, Map.of());
        try (var sender = producer("transactional.id", topic)) {
            sender.initTransactions();
            for (int part = 0; part < 4; part++) {
                sender.beginTransaction();
                for (int number = 0; number < 10; number++) {
                    sender.send(new ProducerRecord<>(topic, "" + (part * 10 + number)));
                }
                sender.flush();
                if (part % 2 == 0) {
                    sender.abortTransaction();
                } else if (part == 1) {
                    sender.commitTransaction();
                } else {
                    for (String level : List.of("read_committed", "read_uncommitted")) {
                        String group = group("share.isolation.level", level);
                        try (var member = member(topic, group)) {
                            int wanted = level.equals("read_committed") ? 10 : 40;
                            say(level + ", one open", () -> ranges(accept(member, wanted)));
                            if (level.equals("read_committed")) {
                                sender.commitTransaction();
                                say(level + ", then committed", () -> ranges(accept(member, 10)));
                                configure(group, "share.isolation.level", "read_uncommitted");
                                say(level + ", all there is", () -> ranges(accept(member, 0)));
                            }
                        }
                    }
                }
            }
        }
    }

    static void resets() throws Exception {
        String topic = topic(1, Map.of("retention.ms", "-1"));
        long now = System.currentTimeMillis();
        try (var sender = producer()) {
            for (int number = 0; number < 10; number++) {
                long age = number < 6 ? 7_200_000 : 60_000;
                sender.send(new ProducerRecord<>(topic, 0, now - age, null, "" + number));
            }
        }
        for (String reset : List.of("earliest", "by_duration:PT1H", "by_duration:PT3H", "latest")) {
            String group = group("share.auto.offset.reset", reset);
            int wanted = reset.equals("latest") ? 0 : reset.endsWith("PT1H") ? 4 : 10;
            try (var member = member(topic, group)) {
                say(reset, () -> ranges(accept(member, wanted)));
            }
        }
        for (String wrong : List.of("by_duration:1h", "by_duration:-PT1H", "none", "by_duration")) {
            say("refused " + wrong, () -> {
                group("share.auto.offset.reset", wrong);
                return "taken";
            });
        }
    }

    static Object offsets(String group, String topic) throws Exception {
        Map<TopicPartition, SharePartitionOffsetInfo> found = admin.listShareGroupOffsets(
            Map.of(group, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group).get();
        return found.values().stream()
            .map(each -> each == null ? "none" : each.startOffset() + " lag " + each.lag().orElse(-1L)).toList();
    }

    static String state(String group) throws Exception {
        var found = admin.describeShareGroups(List.of(group)).describedGroups().get(group).get();
        return found.groupState() + ", members " + found.members().size() + ", partitions "
            + found.members().stream().map(each -> each.assignment().topicPartitions().size()).toList();
    }

    static void administration() throws Exception {
        String topic = topic(1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        produce(topic, 1, 0, 20);
        String group = group();
        say("describe before", () -> state(group));
        try (var member = member(topic, group)) {
            say("reads", () -> ranges(accept(member, 20)));
            say("describe with a member", () -> state(group));
            say("delete with a member", () -> admin.deleteShareGroups(List.of(group)).all().get());
            say("alter with a member", () -> admin.alterShareGroupOffsets(group, Map.of(partition, 5L)).all().get());
            say("delete offsets with a member",
                () -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get());
        }
        say("describe empty", () -> state(group));
        say("offsets", () -> offsets(group, topic));
        say("alter empty", () -> admin.alterShareGroupOffsets(group, Map.of(partition, 5L)).all().get());
        say("alter, no such topic", () -> admin.alterShareGroupOffsets(
            group, Map.of(new TopicPartition("cases-none", 0), 5L)).all().get());
        say("alter, no such partition", () -> admin.alterShareGroupOffsets(
            group, Map.of(new TopicPartition(topic, 7), 5L)).all().get());
        say("offsets", () -> offsets(group, topic));
        try (var member = member(topic, group)) {
            say("reads again", () -> ranges(accept(member, 15)));
        }
        say("alter beyond the end", () -> admin.alterShareGroupOffsets(group, Map.of(partition, 500L)).all().get());
        say("offsets", () -> offsets(group, topic));
        try (var member = member(topic, group)) {
            produce(topic, 1, 20, 25);
            say("reads from beyond the end", () -> ranges(accept(member, 0)));
        }
        say("delete offsets", () -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get());
        say("offsets", () -> offsets(group, topic));
        say("delete offsets again", () -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get());
        say("delete offsets, no such topic",
            () -> admin.deleteShareGroupOffsets(group, Set.of("cases-none")).all().get());
        say("delete", () -> admin.deleteShareGroups(List.of(group)).all().get());
        say("delete again", () -> admin.deleteShareGroups(List.of(group)).all().get());
        say("describe deleted", () -> state(group));
        say("offsets of a deleted group", () -> offsets(group, topic));
        say("alter of a new group", () -> admin.alterShareGroupOffsets(group, Map.of(partition, 22L)).all().get());
        say("listed", () -> admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
            .filter(each -> each.groupId().equals(group)).map(each -> each.groupState().get()).toList());
        try (var member = member(topic, group)) {
            say("reads a third time", () -> ranges(accept(member, 3)));
        }
    }

    static void pollsTooLate() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 1, 0, 10);
        String group = group();
        try (var slow = member(topic, group, "max.poll.interval.ms", "2000"); var other = member(topic, group)) {
            var records = first(slow);
            say("slow member has", records::size);
            say("the other gets", () -> ranges(accept(other, 10)));
            say("the slow one accepts", () -> {
                records.forEach(record -> slow.acknowledge(record, AcknowledgeType.ACCEPT));
                return commit(slow);
            });
            other.close();
            produce(topic, 1, 10, 20);
            say("the slow one polls again", () -> ranges(accept(slow, 10)));
        }
    }

    static void gaps() throws Exception {
        String topic = topic(1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        produce(topic, 1, 0, 100);
        String group = group();
        try (var member = member(topic, group, "max.poll.records", "10", "share.acquire.mode", "record_limit")) {
            var records = first(member);
            records.forEach(record -> member.acknowledge(record, AcknowledgeType.ACCEPT));
            say("before the deletion", () -> records.size() + " " + commit(member));
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(60))).all().get();
            say("after the deletion", () -> {
                Map<Integer, Integer> found = accept(member, 40);
                // Up to ten were fetched before.
                found.keySet().removeIf(value -> value < 20);
                return ranges(found);
            });
            say("offsets", () -> offsets(group, topic));
        }
    }

    static void compaction() throws Exception {
        String topic = topic(1, Map.of("cleanup.policy", "compact", "segment.ms", "500",
            "min.cleanable.dirty.ratio", "0.0", "delete.retention.ms", "0"));
        try (var sender = producer()) {
            for (int number = 0; number < 60; number++) {
                sender.send(new ProducerRecord<>(topic, "k" + number % (number < 40 ? 5 : 30), "" + number));
            }
        }
        Thread.sleep(700);
        try (var sender = producer()) {
            sender.send(new ProducerRecord<>(topic, "last", "60"));
        }
        try (var reader = new KafkaConsumer<>(Map.<String, Object>of("bootstrap.servers", bootstrap),
                new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            reader.assign(List.of(partition));
            int read = 61;
            for (long end = System.currentTimeMillis() + 60_000; read > 40 && System.currentTimeMillis() < end;) {
                reader.seekToBeginning(List.of(partition));
                read = 0;
                while (reader.position(partition) < 61) {
                    read += reader.poll(SHORT).count();
                }
            }
            int kept = read;
            say("kept by the cleaner", () -> kept);
            String group = group();
            try (var member = member(topic, group, "max.poll.records", "7", "share.acquire.mode", "record_limit")) {
                say("read of a compacted topic", () -> ranges(accept(member, kept)));
                say("offsets", () -> offsets(group, topic));
            }
        }
    }

    static void recreated() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 1, 0, 10);
        String group = group();
        try (var member = member(topic, group)) {
            say("first topic", () -> ranges(accept(member, 10)));
            admin.deleteTopics(List.of(topic)).all().get();
            say("while there is none", () -> ranges(accept(member, 0)));
            for (int attempt = 0; attempt < 100; attempt++) {
                try {
                    admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
                    break;
                } catch (ExecutionException problem) {
                    Thread.sleep(100);
                }
            }
            produce(topic, 2, 100, 120);
            say("second topic", () -> ranges(accept(member, 20)));
            say("offsets", () -> offsets(group, topic));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            produce(topic, 4, 200, 240);
            say("more partitions", () -> ranges(accept(member, 40)));
        }
    }

    static void manyPartitions() throws Exception {
        String topic = topic(100, Map.of());
        produce(topic, 100, 0, 1000);
        String group = group();
        try (var one = member(topic, group); var two = member(topic, group)) {
            Map<Integer, Integer> found = new TreeMap<>();
            long end = System.currentTimeMillis() + 30_000;
            while (found.size() < 1000 && System.currentTimeMillis() < end) {
                found.putAll(accept(one, 0));
                found.putAll(accept(two, 0));
            }
            say("100 partitions", () -> ranges(found));
            say("members", () -> state(group).replaceAll("partitions.*", ""));
        }
    }

    static void otherGroups() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 1, 0, 5);
        for (String protocol : List.of("classic", "consumer")) {
            String taken = "cases-" + UUID.randomUUID();
            Map<String, Object> given = Map.of("bootstrap.servers", bootstrap, "group.id", taken,
                "group.protocol", protocol, "auto.offset.reset", "earliest");
            try (var reader = new KafkaConsumer<>(given, new StringDeserializer(), new StringDeserializer())) {
                reader.subscribe(List.of(topic));
                int read = 0;
                for (long end = System.currentTimeMillis() + 30_000; read < 5 && System.currentTimeMillis() < end;) {
                    read += reader.poll(SHORT).count();
                }
                say("a " + protocol + " group's name for a share consumer", () -> {
                    try (var member = member(topic, taken)) {
                        return first(member).size();
                    }
                });
            }
            String group = group();
            try (var member = member(topic, group)) {
                accept(member, 5);
                say("a share group's name for a consumer, " + protocol, () -> {
                    Map<String, Object> wrong = new HashMap<>(given);
                    wrong.put("group.id", group);
                    try (var reader = new KafkaConsumer<>(wrong, new StringDeserializer(), new StringDeserializer())) {
                        reader.subscribe(List.of(topic));
                        return IntStream.range(0, 10).map(any -> reader.poll(SHORT).count()).sum();
                    }
                });
            }
        }
    }

    static void outcomes() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 1, 0, 10);
        String group = group("share.delivery.count.limit", "2");
        try (var member = member(topic, group)) {
            for (int round = 0; round < 2; round++) {
                var records = first(member);
                records.forEach(record -> member.acknowledge(record, AcknowledgeType.RELEASE));
                say("released, round " + round, () -> records.size() + " " + commit(member));
            }
            say("beyond the limit", () -> ranges(accept(member, 0)));
            say("offsets", () -> offsets(group, topic));
            produce(topic, 1, 10, 20);
            var records = first(member);
            records.forEach(record -> member.acknowledge(record, AcknowledgeType.RENEW));
            say("renewed", () -> records.size() + " " + commit(member));
            configure(group, "share.renew.acknowledge.enable", "false");
            for (var each : first(member)) {
                member.acknowledge(each, AcknowledgeType.RENEW);
            }
            say("renewal switched off", () -> commit(member));
        }
        say("offsets", () -> offsets(group, topic));
    }

    static void locks() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 1, 0, 300);
        String group = group("share.partition.max.record.locks", "100", "share.record.lock.duration.ms", "2000");
        String[] small = {"max.poll.records", "50", "share.acquire.mode", "record_limit"};
        try (var one = member(topic, group, small); var two = member(topic, group, small)) {
            var records = first(one);
            say("one member holds", records::size);
            Thread.sleep(3_000);
            records.forEach(record -> one.acknowledge(record, AcknowledgeType.ACCEPT));
            say("accepted after the lock", () -> commit(one));
            Map<Integer, Integer> found = accept(two, 200);
            found.putAll(accept(one, 0));
            found.putAll(accept(two, 0));
            say("all in the end", () -> found.size() + " " + found.get(0) + " " + found.get(299));
        }
    }

    static void large() throws Exception {
        String topic = topic(1, Map.of());
        try (var sender = producer()) {
            for (int number = 0; number < 5; number++) {
                sender.send(new ProducerRecord<>(topic, 0, "x".repeat(50_000), "" + number));
            }
        }
        try (var member = member(topic, group(), "fetch.max.bytes", "1000")) {
            say("records larger than a fetch", () -> ranges(accept(member, 5)));
        }
    }

    static void codecs() throws Exception {
        List<AcknowledgeType> types =
            List.of(AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT);
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            String topic = topic(1, Map.of());
            try (KafkaProducer<String, String> sender = producer("compression.type", codec)) {
                for (int number = 0; number < 30; number++) {
                    sender.send(new ProducerRecord<>(topic, 0, null, "" + number));
                }
            }
            for (String mode : List.of("record_limit", "batch_optimized")) {
                try (var member = member(topic, group(), "share.acquire.mode", mode, "max.poll.records", "7")) {
                    var records = first(member);
                    int index = 0;
                    for (var each : records) {
                        member.acknowledge(each, types.get(index++ % 3));
                    }
                    say(codec + ", " + mode, () -> records.size() + " " + commit(member));
                    say("the rest", () -> ranges(accept(member, 10)));
                }
            }
        }
    }

    static void lateTopic() throws Exception {
        String name = "cases-late-" + UUID.randomUUID();
        String group = group();
        try (var member = member(name, group)) {
            say("no topic", () -> ranges(accept(member, 0)));
            say("state", () -> state(group));
            admin.createTopics(List.of(new NewTopic(name, 2, (short) 1))).all().get();
            produce(name, 2, 0, 10);
            say("the topic is there", () -> ranges(accept(member, 10)));
            say("state", () -> state(group));
        }
    }

    static void closing() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 1, 0, 30);
        String group = group();
        List<AcknowledgeType> types = List.of(AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT,
            AcknowledgeType.REJECT, AcknowledgeType.RELEASE);
        try (var member = member(topic, group, "max.poll.records", "10", "share.acquire.mode", "record_limit")) {
            int index = 0;
            for (var each : first(member)) {
                if (index < types.size()) {
                    member.acknowledge(each, types.get(index++));
                }
            }
        }
        say("offsets after close", () -> offsets(group, topic));
        try (var member = member(topic, group)) {
            say("the rest", () -> ranges(accept(member, 27)));
        }
        say("offsets", () -> offsets(group, topic));
    }

    /** Members that leave without a word, until the last delivery of their records. */
    static void leaving() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 1, 0, 10);
        String group = group("share.delivery.count.limit", "3");
        for (int round = 1; round <= 3; round++) {
            try (var member = member(topic, group)) {
                Map<Integer, Integer> found = new TreeMap<>();
                first(member).forEach(
                    each -> found.put(Integer.parseInt(each.value()), (int) each.deliveryCount().get()));
                say("delivered", () -> ranges(found));
            }
            say("offsets", () -> offsets(group, topic));
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        List<String> wanted = List.of(arguments).subList(1, arguments.length);
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("acquire modes", ShareCases::acquireModes);
        cases.put("isolation", ShareCases::isolation);
        cases.put("resets", ShareCases::resets);
        cases.put("administration", ShareCases::administration);
        cases.put("polls too late", ShareCases::pollsTooLate);
        cases.put("gaps", ShareCases::gaps);
        cases.put("compaction", ShareCases::compaction);
        cases.put("recreated", ShareCases::recreated);
        cases.put("many partitions", ShareCases::manyPartitions);
        cases.put("other groups", ShareCases::otherGroups);
        cases.put("outcomes", ShareCases::outcomes);
        cases.put("locks", ShareCases::locks);
        cases.put("large", ShareCases::large);
        cases.put("codecs", ShareCases::codecs);
        cases.put("late topic", ShareCases::lateTopic);
        cases.put("closing", ShareCases::closing);
        cases.put("leaving", ShareCases::leaving);
        for (var each : cases.entrySet()) {
            if (wanted.isEmpty() || wanted.contains(each.getKey())) {
                say("end of " + each.getKey(), () -> {
                    each.getValue().run();
                    return "ok";
                });
            }
        }
        System.exit(0);
    }
}
