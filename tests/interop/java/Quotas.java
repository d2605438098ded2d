import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Set a quota, be throttled by it, remove it: BOOTSTRAP. Prints "so many of so many steps".
 */
public class Quotas {
    private static int good = 0;
    private static int all = 0;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String name = "java-quotas-" + UUID.randomUUID();
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, name));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
            alter(admin, entity, 10_000.0);
            check("described", until(admin, name, Map.of(entity, Map.of("producer_byte_rate", 10_000.0))));
            // Kafka describes a quota a moment before it keeps to it.
            Thread.sleep(1000);
            check("throttled", throttledMs(bootstrap, name) > 0);
            alter(admin, entity, null);
            check("removed", until(admin, name, Map.of()));
        }
        System.out.println(good + " of " + all + " steps");
    }

    private static void check(String step, boolean fine) {
        all++;
        if (fine) {
            good++;
        } else {
            System.out.println("not " + step);
        }
    }

    private static void alter(Admin admin, ClientQuotaEntity entity, Double rate) throws Exception {
        Collection<ClientQuotaAlteration.Op> ops = List.of(new ClientQuotaAlteration.Op("producer_byte_rate", rate));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, ops))).all().get();
    }

    private static boolean until(Admin admin, String name, Map<ClientQuotaEntity, Map<String, Double>> wanted)
        throws Exception {
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(
            List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, name)));
        for (int turn = 0; turn < 300; turn++) {
            if (admin.describeClientQuotas(filter).entities().get().equals(wanted)) {
                return true;
            }
            Thread.sleep(100);
        }
        return false;
    }

    /** The longest wait that the producer was told. */
    private static double throttledMs(String bootstrap, String name) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "client.id", name);
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < 3; number++) {
                producer.send(new ProducerRecord<>(name, new byte[40_000])).get();
            }
            return producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("produce-throttle-time-max"))
                .mapToDouble(metric -> (Double) metric.metricValue())
                .max().orElse(0);
        }
    }
}
