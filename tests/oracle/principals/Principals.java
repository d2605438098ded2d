import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Scanner;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Reads lines of rules and a name, each in base64; writes the mapped name in base64, or an error. */
class Principals {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] asked = lines.nextLine().split(" ", -1);
            SslPrincipalMapper mapper;
            try {
                mapper = SslPrincipalMapper.fromRules(text(asked[0]));
            } catch (RuntimeException error) {
                System.out.println("refused");
                continue;
            }
            try {
                byte[] name = mapper.getName(text(asked[1])).getBytes(StandardCharsets.UTF_8);
                System.out.println("=" + Base64.getEncoder().encodeToString(name));
            } catch (Exception error) {
                System.out.println("none");
            }
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}
