import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools against a broker, one after the other in this process.
 *
 * Arguments: address, a folder for their files, and the word "shares" or "streams" for the tool for share groups or
 * streams groups alone. Each command is printed with how it ended and what it wrote, without the words of errors,
 * which are each broker's own.
 */
public class Tools {
    private static final String TOOLS = "org.apache.kafka.tools.";
    private static final String CLUSTER = TOOLS + "ClusterTool";
    private static final String CONFIGS = "kafka.admin.ConfigCommand";
    private static final String ELECTION = TOOLS + "LeaderElectionCommand";
    private static final String FEATURES = TOOLS + "FeatureCommand";
    private static final String METRICS = TOOLS + "ClientMetricsCommand";
    private static final String QUORUM = TOOLS + "MetadataQuorumCommand";
    private static final String REASSIGN = TOOLS + "reassign.ReassignPartitionsCommand";
    private static final String SHARES = TOOLS + "consumer.group.ShareGroupCommand";
    private static final String STREAMS = TOOLS + "streams.StreamsGroupCommand";
    private static final String TOPICS = TOOLS + "TopicCommand";

    private static final PrintStream NOWHERE = new PrintStream(OutputStream.nullOutputStream());

    private static String address;
    private static PrintStream own;
    private static Integer code;

    /** Instead of the end of this process. Some tools catch it, and go on. */
    private static class Ended extends RuntimeException {}

    private static void end(int given, String message) {
        if (code == null) {
            code = given;
        }
        System.setOut(NOWHERE);
        System.setErr(NOWHERE);
        throw new Ended();
    }

    private static void call(String tool, String[] arguments) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (code == null) {
                throw thrown;
            }
        }
    }

    private static String withoutWords(String written) {
        List<String> lines = new ArrayList<>();
        for (String line : written.lines().toList()) {
            String told = line.replaceAll("([\\w.]+Exception): .*", "$1")
                .replaceAll("(Error while executing \\w+ command :) .*", "$1")
                .replaceAll("(Could not \\w+ \\S+( to \\d+)?\\.) .*", "$1")
                .stripTrailing();
            if (!told.isBlank() && !told.startsWith("\tat ") && !told.startsWith("\t... ")) {
                lines.add(told);
            }
        }
        return String.join("\n", lines);
    }

    /** What a tool wrote. */
    private static String written(String tool, String... words) throws Exception {
        List<String> arguments = new ArrayList<>();
        int commands = 0;
        if (tool.equals(CLUSTER)) {
            // The command of this tool comes first, that of others behind the address.
            arguments.add(words[commands++]);
        }
        arguments.addAll(List.of("--bootstrap-server", address));
        arguments.addAll(List.of(words).subList(commands, words.length));
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        PrintStream captured = new PrintStream(written, true, StandardCharsets.UTF_8);
        System.setOut(captured);
        System.setErr(captured);
        code = null;
        call(tool, arguments.toArray(String[]::new));
        return withoutWords(written.toString(StandardCharsets.UTF_8));
    }

    private static void print(String tool, String[] words, String written) {
        own.println("== " + tool.substring(tool.lastIndexOf('.') + 1) + " " + String.join(" ", words));
        own.println(written);
        own.println("-> " + (code == null ? 0 : code));
    }

    private static void run(String tool, String... words) throws Exception {
        print(tool, words, written(tool, words));
    }

    /** Repeats a question until the answer has, or lacks, a text: Kafka's broker learns of changes after they are answered. */
    private static void ask(boolean has, String text, String tool, String... words) throws Exception {
        String written = "";
        for (int turn = 0; turn < 60; turn++) {
            written = written(tool, words);
            if (written.contains(text) == has) {
                break;
            }
            Thread.sleep(100);
        }
        print(tool, words, written);
    }

    private static String file(Path folder, String name, String text) throws Exception {
        return Files.writeString(folder.resolve(name), text).toString();
    }

    private static void topics() throws Exception {
        run(TOPICS, "--create", "--topic", "tools-a", "--partitions", "3", "--config", "retention.ms=100000");
        run(TOPICS, "--create", "--topic", "tools-a");
        run(TOPICS, "--create", "--topic", "tools-b", "--replica-assignment", "1,1");
        run(TOPICS, "--create", "--topic", "tools-c", "--replication-factor", "2");
        ask(true, "tools-b", TOPICS, "--describe", "--topic", "tools-.*");
        run(TOPICS, "--describe", "--topic", "tools-a", "--partition-size-limit-per-response", "1");
        run(TOPICS, "--describe", "--topic", "tools-none");
        run(TOPICS, "--describe", "--at-min-isr-partitions", "--topic", "tools-a");
        run(TOPICS, "--describe", "--under-replicated-partitions");
        run(TOPICS, "--alter", "--topic", "tools-b", "--partitions", "4");
        run(TOPICS, "--alter", "--topic", "tools-b", "--partitions", "1");
    }

    private static void leaders(Path folder) throws Exception {
        String three = file(folder, "elected", "{\"partitions\":[{\"topic\":\"tools-a\",\"partition\":0},"
            + "{\"topic\":\"tools-a\",\"partition\":9},{\"topic\":\"tools-none\",\"partition\":0}]}");
        for (String type : List.of("PREFERRED", "UNCLEAN")) {
            run(ELECTION, "--election-type", type, "--topic", "tools-a", "--partition", "0");
            run(ELECTION, "--election-type", type, "--topic", "tools-a", "--partition", "9");
            run(ELECTION, "--election-type", type, "--all-topic-partitions");
        }
        run(ELECTION, "--election-type", "PREFERRED", "--path-to-json-file", three);
    }

    private static void moves(Path folder) throws Exception {
        String topic = file(folder, "topics", "{\"topics\":[{\"topic\":\"tools-a\"}],\"version\":1}");
        String stays = file(folder, "stays", "{\"version\":1,\"partitions\":["
            + "{\"topic\":\"tools-a\",\"partition\":0,\"replicas\":[1],\"log_dirs\":[\"any\"]},"
            + "{\"topic\":\"tools-a\",\"partition\":1,\"replicas\":[1]}]}");
        String[] refused = {
            file(folder, "two", "{\"version\":1,\"partitions\":[{\"topic\":\"tools-a\",\"partition\":0,\"replicas\":[1,2]}]}"),
            file(folder, "none", "{\"version\":1,\"partitions\":[{\"topic\":\"tools-none\",\"partition\":0,\"replicas\":[1]}]}"),
            file(folder, "nowhere", "{\"version\":1,\"partitions\":[{\"topic\":\"tools-a\",\"partition\":9,\"replicas\":[1]}]}"),
        };
        run(REASSIGN, "--generate", "--topics-to-move-json-file", topic, "--broker-list", "1");
        run(REASSIGN, "--generate", "--topics-to-move-json-file", topic, "--broker-list", "1,2");
        run(REASSIGN, "--execute", "--reassignment-json-file", stays);
        run(REASSIGN, "--verify", "--reassignment-json-file", stays);
        run(REASSIGN, "--execute", "--reassignment-json-file", stays, "--throttle", "10000000");
        ask(true, "throttled", CONFIGS, "--describe", "--broker", "1");
        ask(true, "throttled", CONFIGS, "--describe", "--topic", "tools-a");
        run(REASSIGN, "--verify", "--reassignment-json-file", stays, "--preserve-throttles");
        run(REASSIGN, "--verify", "--reassignment-json-file", stays);
        ask(false, "throttled", CONFIGS, "--describe", "--broker", "1");
        ask(false, "throttled", CONFIGS, "--describe", "--topic", "tools-a");
        for (String file : refused) {
            run(REASSIGN, "--execute", "--reassignment-json-file", file);
        }
        run(REASSIGN, "--cancel", "--reassignment-json-file", stays);
        run(REASSIGN, "--list");
    }

    private static void resources() throws Exception {
        run(METRICS, "--alter", "--name", "tools-m", "--metrics", "org.apache.kafka.producer.", "--interval", "2000");
        ask(true, "tools-m", METRICS, "--list");
        run(METRICS, "--describe");
        run(METRICS, "--delete", "--name", "tools-m");
        ask(false, "tools-m", METRICS, "--list");
        run(CONFIGS, "--alter", "--topic", "tools-a", "--add-config", "cleanup.policy=[compact,delete]");
        run(CONFIGS, "--alter", "--topic", "tools-a", "--add-config", "nonsense=1");
        run(CONFIGS, "--alter", "--broker-defaults", "--delete-config", "min.insync.replicas");
        run(CONFIGS, "--describe", "--broker-defaults");
        run(CONFIGS, "--alter", "--group", "tools-g", "--add-config", "consumer.session.timeout.ms=50000");
        ask(true, "tools-g", CONFIGS, "--describe", "--entity-type", "groups");
        run(CONFIGS, "--alter", "--group", "tools-g", "--delete-config", "consumer.session.timeout.ms");
    }

    private static void cluster() throws Exception {
        run(CLUSTER, "list-endpoints");
        run(CLUSTER, "unregister", "--id", "7");
        run(QUORUM, "describe", "--status");
        run(QUORUM, "describe", "--replication");
        run(QUORUM, "remove-controller", "--controller-id", "3", "--controller-directory-id", "aaaaaaaaaaaaaaaaaaaaaa");
        run(FEATURES, "upgrade", "--feature", "metadata.version=29");
        run(FEATURES, "upgrade", "--feature", "metadata.version=30");
        run(FEATURES, "downgrade", "--feature", "nonsense=1");
        run(FEATURES, "disable", "--feature", "nonsense");
        run(FEATURES, "upgrade", "--release-version", "4.3", "--dry-run");
        run(FEATURES, "downgrade", "--feature", "transaction.version=1", "--dry-run");
        run(FEATURES, "downgrade", "--feature", "transaction.version=1");
        run(FEATURES, "disable", "--feature", "group.version");
        run(FEATURES, "upgrade", "--release-version", "4.3");
        run(FEATURES, "upgrade", "--release-version", "4.2");
        run(FEATURES, "upgrade", "--release-version", "3.0");
        run(FEATURES, "downgrade", "--release-version", "4.2");
        run(FEATURES, "disable", "--feature", "metadata.version");
        run(FEATURES, "version-mapping", "--release-version", "4.3");
        run(FEATURES, "feature-dependencies", "--feature", "group.version=1");
        run(CONFIGS, "--alter", "--broker-logger", "1", "--add-config", "nonsense=DEBUG");
        run(CONFIGS, "--alter", "--broker-logger", "1", "--add-config", "root=LOUD");
        run(CONFIGS, "--alter", "--broker-logger", "1", "--add-config", "root=INFO");
    }

    /** The group `shares-m` has a member, `shares-e` had one; both use the topic `shares-a` with two partitions. */
    private static void shares() throws Exception {
        run(SHARES, "--list");
        run(SHARES, "--list", "--state");
        run(SHARES, "--list", "--state", "empty");
        run(SHARES, "--list", "--state", "nonsense");
        for (String name : List.of("shares-m", "shares-e", "shares-none")) {
            run(SHARES, "--describe", "--group", name);
            run(SHARES, "--describe", "--group", name, "--verbose");
            run(SHARES, "--describe", "--group", name, "--members");
            run(SHARES, "--describe", "--group", name, "--members", "--verbose");
            run(SHARES, "--describe", "--group", name, "--state");
            run(SHARES, "--describe", "--group", name, "--state", "--verbose");
        }
        for (String name : List.of("shares-m", "shares-e", "shares-new")) {
            run(SHARES, "--reset-offsets", "--group", name, "--topic", "shares-a", "--to-latest", "--dry-run");
            run(SHARES, "--reset-offsets", "--group", name, "--topic", "shares-a:1", "--to-earliest", "--execute");
            run(SHARES, "--reset-offsets", "--group", name, "--all-topics", "--to-latest", "--execute");
            ask(true, "shares-a", SHARES, "--describe", "--group", name);
        }
        run(SHARES, "--reset-offsets", "--group", "shares-e", "--topic", "shares-none", "--to-latest", "--execute");
        run(SHARES, "--delete-offsets", "--group", "shares-m", "--topic", "shares-a");
        run(SHARES, "--delete-offsets", "--group", "shares-e", "--topic", "shares-a");
        run(SHARES, "--delete-offsets", "--group", "shares-e", "--topic", "shares-a");
        run(SHARES, "--delete-offsets", "--group", "shares-none", "--topic", "shares-a");
        run(SHARES, "--delete", "--group", "shares-m");
        run(SHARES, "--delete", "--group", "shares-e", "--group", "shares-none");
        run(SHARES, "--list");
    }

    /** The group `streams-m` has a member, `streams-e` had one; both read the topic `streams-a`. */
    private static void streams() throws Exception {
        run(STREAMS, "--list");
        run(STREAMS, "--list", "--state");
        run(STREAMS, "--list", "--state", "stable");
        run(STREAMS, "--list", "--state", "nonsense");
        for (String name : List.of("streams-m", "streams-e", "streams-none")) {
            run(STREAMS, "--describe", "--group", name);
            run(STREAMS, "--describe", "--group", name, "--verbose");
            run(STREAMS, "--describe", "--group", name, "--members");
            run(STREAMS, "--describe", "--group", name, "--members", "--verbose");
            run(STREAMS, "--describe", "--group", name, "--state");
            run(STREAMS, "--describe", "--group", name, "--state", "--verbose");
        }
        for (String name : List.of("streams-m", "streams-e")) {
            run(STREAMS, "--reset-offsets", "--group", name, "--input-topic", "streams-a", "--to-latest", "--dry-run");
            run(STREAMS, "--reset-offsets", "--group", name, "--all-input-topics", "--to-latest", "--execute");
            run(STREAMS, "--delete-offsets", "--group", name, "--input-topic", "streams-a");
        }
        run(STREAMS, "--delete", "--group", "streams-m");
        run(STREAMS, "--delete", "--group", "streams-e");
        run(STREAMS, "--delete", "--group", "streams-none");
        run(STREAMS, "--list");
    }

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        Path folder = Path.of(arguments[1]);
        own = System.out;
        Exit.setExitProcedure(Tools::end);
        if (arguments.length > 2 && arguments[2].equals("streams")) {
            streams();
        } else if (arguments.length > 2) {
            shares();
        } else {
            topics();
            leaders(folder);
            moves(folder);
            resources();
            cluster();
            run(TOPICS, "--delete", "--topic", "tools-a");
            run(TOPICS, "--delete", "--topic", "tools-none");
        }
        own.flush();
        Runtime.getRuntime().halt(0);
    }
}
