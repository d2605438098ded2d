import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A broker for a test run, and a cluster for each test. Copy this file. */
public class Odradek implements BeforeEachCallback, AfterEachCallback {
    private static String orders;
    private String cluster;
    private String path;

    /** Starts `odradek serve --testing`, from the PATH or from $ODRADEK, once for each run. */
    private static synchronized String orders() throws Exception {
        if (orders == null) {
            String program = System.getenv().getOrDefault("ODRADEK", "odradek");
            String folder = Files.createTempDirectory(Path.of("target"), "odradek-") + "/data";
            Process broker = new ProcessBuilder(
                program, "serve", "--testing", "--exit-with-parent", "--listen", "127.0.0.1:0", "--data-dir", folder)
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
            String line = new BufferedReader(new InputStreamReader(broker.getInputStream())).readLine();
            orders = field("faults on (\\S+)", String.valueOf(line));
        }
        return orders;
    }

    @Override
    public void beforeEach(ExtensionContext context) throws Exception {
        cluster = order("POST", orders() + "/clusters", "{}");
        path = orders() + "/clusters/" + field("\"id\": (\\d+)", cluster);
    }

    @Override
    public void afterEach(ExtensionContext context) throws Exception {
        order("DELETE", path, "{}");
    }

    public String bootstrap() { return field("\"bootstrap\": \"([^\"]+)\"", cluster); }
    public void kill() throws Exception { order("POST", path + "/kill", "{}"); }
    public void restart() throws Exception { order("POST", path + "/restart", "{}"); }
    public void fault(String fault) throws Exception { order("POST", faults(), fault); }

    /** The number of requests that the first fault applied to. */
    public int met() throws Exception { return Integer.parseInt(field("\"met\": (\\d+)", order("GET", faults(), ""))); }

    private String faults() { return field("\"faults\": \"([^\"]+)\"", cluster) + "/faults"; }

    private static String order(String method, String address, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create("http://" + address)).header("Content-Type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        var answer = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
        if (answer.statusCode() >= 300) throw new IllegalStateException(method + " " + address + ": " + answer.body());
        return answer.body();
    }

    private static String field(String pattern, String text) {
        var found = Pattern.compile(pattern).matcher(text);
        if (!found.find()) throw new IllegalStateException("odradek said: " + text);
        return found.group(1);
    }
}
