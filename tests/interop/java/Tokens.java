import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Authenticate with a delegation token: BOOTSTRAP MECHANISM ID HMAC TOPIC. Prints a line for each call: what it brought,
 * or the name of its error.
 */
public class Tokens {
    private interface Call {
        Object run() throws Exception;
    }

    private static void say(String name, Call call) {
        String told;
        try {
            told = String.valueOf(call.run());
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            told = cause.getClass().getSimpleName();
        }
        System.out.println(name + ": " + told);
    }

    public static void main(String[] arguments) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", arguments[1]);
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
            + arguments[2] + "\" password=\"" + arguments[3] + "\" tokenauth=\"true\";");
        try (Admin admin = Admin.create(settings)) {
            say("nodes", () -> admin.describeCluster().nodes().get().size());
            say("create", () -> admin.createDelegationToken().delegationToken().get());
        }
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        try (var producer = new KafkaProducer<String, String>(settings)) {
            say("produce", () -> producer.send(new ProducerRecord<>(arguments[4], "of " + arguments[1])).get().offset());
        }
    }
}
