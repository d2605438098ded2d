import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.DelegationTokenDisabledException;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Authenticate by each mechanism, again and again while a session lasts, and wrongly: BOOTSTRAP PASSWORD SECONDS. Alice
 * has the password. Prints "so many of so many steps".
 */
public class Sasl {
    private static final String PACKAGE = "org.apache.kafka.common.security.";
    private static int good = 0;
    private static int all = 0;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String password = arguments[1];
        long endMs = Long.parseLong(arguments[2]) * 1000;
        try (Admin admin = Admin.create(settings(bootstrap, "PLAIN", "alice", password))) {
            var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096);
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("bob", info, "bob's"))).all().get();
            var told = admin.describeUserScramCredentials(List.of("bob")).all().get().get("bob");
            check("described", told.credentialInfos().equals(List.of(info)));
            check("no tokens", failure(() -> admin.createDelegationToken().delegationToken().get())
                instanceof DelegationTokenDisabledException);
        }
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")) {
            check(mechanism, produces(settings(bootstrap, mechanism, "alice", password), endMs));
        }
        check("bob", produces(settings(bootstrap, "SCRAM-SHA-512", "bob", "bob's"), 0));
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
            Map<String, Object> wrong = settings(bootstrap, mechanism, "alice", "wrong");
            check(mechanism + " wrong", asks(wrong) instanceof SaslAuthenticationException);
        }
        Map<String, Object> unknown = settings(bootstrap, "SCRAM-SHA-512", "bob", "alice's");
        check("bob wrong", asks(unknown) instanceof SaslAuthenticationException);
        System.out.println(good + " of " + all + " steps");
    }

    private interface Call {
        void run() throws Exception;
    }

    private static Throwable failure(Call call) throws Exception {
        try {
            call.run();
            return null;
        } catch (ExecutionException error) {
            return error.getCause();
        }
    }

    private static Throwable asks(Map<String, Object> settings) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            return failure(() -> admin.describeCluster().clusterId().get());
        }
    }

    /** Whether records are produced, one after the other, for so long. */
    private static boolean produces(Map<String, Object> settings, long forMs) throws Exception {
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("retries", 0);
        settings.put("enable.idempotence", false);
        long endMs = System.currentTimeMillis() + forMs;
        try (var producer = new KafkaProducer<byte[], byte[]>(settings)) {
            do {
                producer.send(new ProducerRecord<>("sasl", new byte[10])).get();
                Thread.sleep(20);
            } while (System.currentTimeMillis() < endMs);
        }
        return true;
    }

    private static Map<String, Object> settings(String bootstrap, String mechanism, String user, String password) {
        String module = "scram.ScramLoginModule";
        String options = " username=\"" + user + "\" password=\"" + password + "\"";
        if (mechanism.equals("PLAIN")) {
            module = "plain.PlainLoginModule";
        } else if (mechanism.equals("OAUTHBEARER")) {
            module = "oauthbearer.OAuthBearerLoginModule";
            options = " unsecuredLoginStringClaim_sub=\"" + user + "\"";
        }
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", PACKAGE + module + " required" + options + ";");
        return settings;
    }

    private static void check(String step, boolean fine) {
        all++;
        if (fine) {
            good++;
        } else {
            System.out.println("not " + step);
        }
    }
}
