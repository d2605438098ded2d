import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;

/**
 * One instance of an application of Kafka Streams, with exactly_once_v2: BOOTSTRAP APPLICATION STATE_DIRECTORY
 * SETTING=VALUE... The names of topics begin with that of the application: the words of "lines" are
 * counted into "counts", "orders" are joined with the table "customers" into "joined", and the tables "customers" and
 * "cities" into "located". Runs until its standard input ends, and prints each state.
 */
public class StreamsInstance {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[1];
        Properties config = new Properties();
        config.put("application.id", name);
        config.put("bootstrap.servers", arguments[0]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("commit.interval.ms", 100);
        config.put("statestore.cache.max.bytes", 0);
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("state.dir", arguments[2]);
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            config.put(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(name + "-lines");
        lines.flatMapValues(line -> Arrays.asList(line.split(" "))).groupBy((key, word) -> word).count().toStream()
            .mapValues(count -> Long.toString(count)).to(name + "-counts");
        KTable<String, String> customers = builder.table(name + "-customers");
        KTable<String, String> cities = builder.table(name + "-cities");
        KStream<String, String> orders = builder.stream(name + "-orders");
        orders.join(customers, (order, customer) -> order + " of " + customer).to(name + "-joined");
        customers.join(cities, (customer, city) -> customer + " in " + city).toStream()
            .to(name + "-located", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setUncaughtExceptionHandler(problem -> {
            System.out.println("a thread ended: " + problem);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // Nothing is said to an instance; the end of the input stops it.
        }
        System.exit(streams.close(Duration.ofSeconds(60)) ? 0 : 1);
    }
}
