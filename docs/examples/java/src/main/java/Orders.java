import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;

/** The application under test: it stores orders in a topic, and adds them up. */
public class Orders implements AutoCloseable {
    private final String bootstrap;
    private final KafkaProducer<Integer, Integer> producer;

    public Orders(String bootstrap) {
        this.bootstrap = bootstrap;
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap), new IntegerSerializer(), new IntegerSerializer());
    }

    public void store(int apples) throws Exception {
        producer.send(new ProducerRecord<>("orders", apples)).get();
    }

    /** The sum of the first so many orders. */
    public int total(int count) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "group.id", "totals",
            "group.protocol", "consumer", "auto.offset.reset", "earliest");
        int sum = 0;
        int read = 0;
        try (var consumer = new KafkaConsumer<>(settings, new IntegerDeserializer(), new IntegerDeserializer())) {
            consumer.subscribe(List.of("orders"));
            while (read < count) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    sum += record.value();
                    read++;
                }
            }
        }
        return sum;
    }

    @Override
    public void close() {
        producer.close();
    }
}
