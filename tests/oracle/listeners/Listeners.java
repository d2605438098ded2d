import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import kafka.server.KafkaConfig;

/** Says of configurations on stdin, "key=value" lines that end with "--", whether Kafka takes them. */
public class Listeners {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Properties given = new Properties();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (!line.equals("--")) {
                int equals = line.indexOf('=');
                given.put(line.substring(0, equals), line.substring(equals + 1));
                continue;
            }
            System.out.println(judge(given));
            given = new Properties();
        }
    }

    private static String judge(Properties given) {
        try {
            new KafkaConfig(given);
            return "OK";
        } catch (RuntimeException refused) {
            return refused.getClass().getSimpleName() + ": " + refused.getMessage();
        }
    }
}
