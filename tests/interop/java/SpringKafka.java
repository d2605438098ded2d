import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.ContainerProperties.AckMode;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.listener.ShareKafkaMessageListenerContainer;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.Acknowledgment;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/** What applications do with spring-kafka: ADDRESS NAME FOLDER. Topics and groups have names that begin with NAME. */
public class SpringKafka {
    private static final int RECORDS = 300;
    private static final long WAIT_MS = 60_000;
    private static String address;
    private static String name;

    private static Map<String, Object> consumers(String group) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", address);
        config.put("group.id", name + "-" + group);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        return config;
    }

    private static Map<String, Object> producers() {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", address);
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", StringSerializer.class);
        return config;
    }

    private static boolean waited(BooleanSupplier condition) throws InterruptedException {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!condition.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        return condition.getAsBoolean();
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

    private static void send(KafkaTemplate<String, String> template, String topic, int from, int to, String prefix)
            throws Exception {
        for (int number = from; number < to; number++) {
            template.send(topic, "k" + number % 7, prefix + number);
        }
        template.flush();
    }

    /** The committed values of a topic, each with how often it is there, once so many have come. */
    private static Map<String, Integer> read(String topic, int wanted) {
        Map<String, Integer> found = new TreeMap<>();
        Map<String, Object> config = consumers("reader-" + System.nanoTime());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of(topic));
            long end = System.currentTimeMillis() + WAIT_MS;
            int silent = 0;
            int count = 0;
            while (System.currentTimeMillis() < end && (count < wanted || silent < 5)) {
                int before = count;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(300))) {
                    found.merge(record.value(), 1, Integer::sum);
                    count++;
                }
                silent = count == before ? silent + 1 : 0;
            }
        }
        return found;
    }

    private static Set<String> numbered(String prefix, int count) {
        Set<String> all = new TreeSet<>();
        for (int number = 0; number < count; number++) {
            all.add(prefix + number);
        }
        return all;
    }

    private static boolean eachOnce(Map<String, Integer> found, Set<String> wanted) {
        return found.keySet().equals(wanted) && found.values().stream().allMatch(times -> times == 1);
    }

    /** Listeners by annotation: a batch with acknowledgements, requests with replies, and topics for retries. */
    @Configuration
    @EnableKafka
    @EnableKafkaRetryTopic
    public static class Application {
        final Set<String> batch = ConcurrentHashMap.newKeySet();
        final Map<String, Integer> tries = new ConcurrentHashMap<>();
        final Set<String> dead = ConcurrentHashMap.newKeySet();

        @Bean
        public ConsumerFactory<String, String> consumerFactory() {
            return new DefaultKafkaConsumerFactory<>(consumers("app"));
        }

        @Bean
        public ProducerFactory<String, String> producerFactory() {
            return new DefaultKafkaProducerFactory<>(producers());
        }

        @Bean
        public KafkaTemplate<String, String> kafkaTemplate(ProducerFactory<String, String> factory) {
            return new KafkaTemplate<>(factory);
        }

        @Bean
        public KafkaAdmin kafkaAdmin() {
            return new KafkaAdmin(Map.of("bootstrap.servers", address));
        }

        @Bean
        public KafkaAdmin.NewTopics topics() {
            List<NewTopic> topics = new ArrayList<>();
            for (String each : List.of("plain", "letters", "in", "out", "batch", "asked", "answers", "retried", "shared")) {
                topics.add(TopicBuilder.name(name + "-" + each).partitions(3).replicas(1).build());
            }
            topics.add(TopicBuilder.name(name + "-letters-dlt").partitions(3).replicas(1).build());
            return new KafkaAdmin.NewTopics(topics.toArray(NewTopic[]::new));
        }

        @Bean
        public ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
                ConsumerFactory<String, String> consumers, KafkaTemplate<String, String> template) {
            ConcurrentKafkaListenerContainerFactory<String, String> factory =
                new ConcurrentKafkaListenerContainerFactory<>();
            factory.setConsumerFactory(consumers);
            factory.setReplyTemplate(template);
            return factory;
        }

        @Bean
        public ConcurrentKafkaListenerContainerFactory<String, String> batches(
                ConsumerFactory<String, String> consumers) {
            ConcurrentKafkaListenerContainerFactory<String, String> factory =
                new ConcurrentKafkaListenerContainerFactory<>();
            factory.setConsumerFactory(consumers);
            factory.setBatchListener(true);
            factory.getContainerProperties().setAckMode(AckMode.MANUAL_IMMEDIATE);
            return factory;
        }

        @Bean
        public TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @KafkaListener(topics = "#{T(SpringKafka).topic('batch')}", groupId = "#{T(SpringKafka).topic('batch')}",
            containerFactory = "batches")
        public void read(List<String> values, Acknowledgment acknowledgment) {
            batch.addAll(values);
            acknowledgment.acknowledge();
        }

        @KafkaListener(topics = "#{T(SpringKafka).topic('asked')}", groupId = "#{T(SpringKafka).topic('asked')}")
        @SendTo
        public String answer(String value) {
            return value.toUpperCase();
        }

        @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 200), numPartitions = "1", replicationFactor = "1")
        @KafkaListener(topics = "#{T(SpringKafka).topic('retried')}", groupId = "#{T(SpringKafka).topic('retried')}")
        public void retry(String value) {
            tries.merge(value, 1, Integer::sum);
            throw new IllegalStateException("never good");
        }

        @DltHandler
        public void letter(String value) {
            dead.add(value);
        }
    }

    /** The name of a topic, for annotations. */
    public static String topic(String suffix) {
        return name + "-" + suffix;
    }

    private static ConcurrentMessageListenerContainer<String, String> container(
            String topic, ContainerProperties properties, MessageListener<String, String> listener) {
        properties.setGroupId(topic(topic));
        properties.setMessageListener(listener);
        Map<String, Object> config = consumers(topic);
        ConcurrentMessageListenerContainer<String, String> container =
            new ConcurrentMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(config), properties);
        container.setConcurrency(2);
        container.setBeanName(topic);
        return container;
    }

    private static void plain(KafkaTemplate<String, String> template) throws Exception {
        Map<String, Integer> heard = new ConcurrentHashMap<>();
        var container = container("plain", new ContainerProperties(topic("plain")),
            record -> heard.merge(record.value(), 1, Integer::sum));
        container.start();
        send(template, topic("plain"), 0, RECORDS / 2, "v");
        waited(() -> heard.size() == RECORDS / 2);
        check("a listener container with two consumers", eachOnce(heard, numbered("v", RECORDS / 2)), heard.size());
        restart();
        send(template, topic("plain"), RECORDS / 2, RECORDS, "v");
        boolean all = waited(() -> heard.keySet().equals(numbered("v", RECORDS)));
        check("the container goes on when the broker was killed", all, heard.size());
        container.stop();
    }

    private static void letters(KafkaTemplate<String, String> template) throws Exception {
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        var container = container("letters", new ContainerProperties(topic("letters")), record -> {
            tries.merge(record.value(), 1, Integer::sum);
            if (record.value().endsWith("7")) {
                throw new IllegalStateException("a bad record");
            }
        });
        container.setCommonErrorHandler(
            new DefaultErrorHandler(new DeadLetterPublishingRecoverer(template), new FixedBackOff(50, 2)));
        container.start();
        send(template, topic("letters"), 0, 30, "v");
        boolean tried = waited(() -> tries.keySet().equals(numbered("v", 30)) && tries.values().stream()
            .mapToInt(Integer::intValue).sum() >= 36);
        check("the error handler tries bad records three times", tried && tries.get("v7") == 3 && tries.get("v1") == 1,
            tries);
        Map<String, Integer> dead = read(topic("letters-dlt"), 3);
        check("dead letters", eachOnce(dead, Set.of("v7", "v17", "v27")), dead);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumers("headers"))) {
            consumer.subscribe(List.of(topic("letters-dlt")));
            List<String> origins = new ArrayList<>();
            long end = System.currentTimeMillis() + WAIT_MS;
            while (origins.size() < 3 && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(300))) {
                    origins.add(new String(record.headers().lastHeader(KafkaHeaders.DLT_ORIGINAL_TOPIC).value()));
                }
            }
            check("headers of dead letters", origins.equals(List.of(topic("letters"), topic("letters"), topic("letters"))),
                origins);
        }
        container.stop();
    }

    private static void transactions(KafkaTemplate<String, String> plain) throws Exception {
        DefaultKafkaProducerFactory<String, String> factory = new DefaultKafkaProducerFactory<>(producers());
        factory.setTransactionIdPrefix(topic("tx-"));
        KafkaTemplate<String, String> template = new KafkaTemplate<>(factory);
        KafkaTransactionManager<String, String> manager = new KafkaTransactionManager<>(factory);
        Set<String> failed = ConcurrentHashMap.newKeySet();
        AtomicInteger rolledBack = new AtomicInteger();
        ContainerProperties properties = new ContainerProperties(topic("in"));
        properties.setKafkaAwareTransactionManager(manager);
        var container = container("in", properties, record -> {
            template.send(topic("out"), record.key(), "of " + record.value());
            if (record.value().endsWith("5") && failed.add(record.value())) {
                rolledBack.incrementAndGet();
                throw new IllegalStateException("the first time");
            }
        });
        container.start();
        send(plain, topic("in"), 0, 60, "v");
        Map<String, Integer> first = read(topic("out"), 60);
        check("listeners in transactions, some rolled back", eachOnce(first, numbered("of v", 60))
            && rolledBack.get() == 6, first.size() + " " + rolledBack);
        send(plain, topic("in"), 60, 90, "v");
        restart();
        send(plain, topic("in"), 90, 120, "v");
        Map<String, Integer> all = read(topic("out"), 120);
        check("transactions while the broker is killed: each record once", eachOnce(all, numbered("of v", 120)),
            all.size() + " values");
        container.stop();
        template.executeInTransaction(operations -> operations.send(topic("plain"), "local"));
        try {
            template.executeInTransaction(operations -> {
                operations.send(topic("plain"), "undone");
                throw new IllegalStateException("on purpose");
            });
        } catch (IllegalStateException expected) {
            // The transaction is aborted.
        }
        Map<String, Integer> values = read(topic("plain"), RECORDS + 1);
        check("local transactions", values.containsKey("local") && !values.containsKey("undone"), values.keySet());
        factory.destroy();
    }

    private static void annotated(Application application, KafkaTemplate<String, String> template) throws Exception {
        send(template, topic("batch"), 0, RECORDS, "v");
        boolean all = waited(() -> application.batch.equals(numbered("v", RECORDS)));
        check("a batch listener with acknowledgements", all, application.batch.size());
        ContainerProperties properties = new ContainerProperties(topic("answers"));
        var answers = container("answers", properties, null);
        ReplyingKafkaTemplate<String, String, String> asking =
            new ReplyingKafkaTemplate<>(new DefaultKafkaProducerFactory<>(producers()), answers);
        asking.afterPropertiesSet();
        asking.start();
        asking.waitForAssignment(Duration.ofSeconds(60));
        String answer = asking.sendAndReceive(new ProducerRecord<>(topic("asked"), "question"), Duration.ofSeconds(30))
            .get(60, TimeUnit.SECONDS).value();
        check("a request and its reply", answer.equals("QUESTION"), answer);
        asking.stop();
        template.send(topic("retried"), "hopeless").get(30, TimeUnit.SECONDS);
        boolean dead = waited(() -> application.dead.contains("hopeless"));
        check("topics for retries, made by its admin", dead && application.tries.get("hopeless") == 3, application.tries);
    }

    private static void shared(KafkaTemplate<String, String> template) throws Exception {
        String group = topic("shared");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            AlterConfigOp earliest = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
        }
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", address);
        config.put("group.id", group);
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        Map<String, Integer> heard = new ConcurrentHashMap<>();
        ContainerProperties properties = new ContainerProperties(topic("shared"));
        properties.setGroupId(group);
        properties.setMessageListener((MessageListener<String, String>) record ->
            heard.merge(record.value(), 1, Integer::sum));
        ShareKafkaMessageListenerContainer<String, String> container = new ShareKafkaMessageListenerContainer<>(
            new DefaultShareConsumerFactory<>(config), properties);
        container.setBeanName("shared");
        container.start();
        send(template, topic("shared"), 0, RECORDS, "v");
        boolean all = waited(() -> heard.keySet().equals(numbered("v", RECORDS)));
        check("a container for a share group", all, heard.size());
        container.stop();
    }

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        name = arguments[1];
        try (AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext(Application.class)) {
            @SuppressWarnings("unchecked")
            KafkaTemplate<String, String> template = context.getBean("kafkaTemplate", KafkaTemplate.class);
            KafkaAdmin admin = context.getBean(KafkaAdmin.class);
            int partitions = admin.describeTopics(topic("plain")).get(topic("plain")).partitions().size();
            check("topics of its admin", partitions == 3, partitions);
            plain(template);
            letters(template);
            transactions(template);
            annotated(context.getBean(Application.class), template);
            shared(template);
        }
        System.exit(0);
    }
}
