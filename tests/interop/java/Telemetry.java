import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A producer and a consumer that push metrics while they work for some seconds, and once more when they are closed.
 *
 * <p>Telemetry BOOTSTRAP TOPIC SECONDS COMPRESSION; prints the instance ids of both.
 */
public class Telemetry {
    public static void main(String[] arguments) {
        Map<String, Object> common = Map.of("bootstrap.servers", arguments[0], "client.id", "java-" + arguments[1]);
        Properties producing = new Properties();
        producing.putAll(common);
        producing.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        producing.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        Properties consuming = new Properties();
        consuming.putAll(common);
        consuming.put("group.id", "group-" + arguments[1]);
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        consuming.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        int sent = 0;
        int read = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming)) {
            consumer.subscribe(List.of(arguments[1]));
            System.out.println("producer " + producer.clientInstanceId(Duration.ofSeconds(30)));
            long end = System.currentTimeMillis() + 1000L * Integer.parseInt(arguments[2]);
            while (System.currentTimeMillis() < end) {
                producer.send(new ProducerRecord<>(arguments[1], "value " + sent++));
                producer.flush();
                read += consumer.poll(Duration.ofMillis(100)).count();
            }
            // A consumer sends nothing but in poll, so that it is asked at the end.
            System.out.println("consumer " + consumer.clientInstanceId(Duration.ofSeconds(30)));
        }
        System.out.println("sent " + sent + " read " + read);
    }
}
