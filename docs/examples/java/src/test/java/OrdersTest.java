import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;

@Timeout(60)
class OrdersTest {
    @RegisterExtension
    final Odradek odradek = new Odradek();

    @Test
    void ordersAreAddedUp() throws Exception {
        try (var orders = new Orders(odradek.bootstrap())) {
            orders.store(4);
            orders.store(5);
            assertEquals(9, orders.total(2));
        }
    }

    @Test
    void anOrderIsStoredAlthoughTheBrokerRefusesItAtFirst() throws Exception {
        try (var orders = new Orders(odradek.bootstrap())) {
            orders.store(4);
            odradek.fault("{\"fault\": \"fail\", \"api\": \"Produce\", \"code\": \"NOT_ENOUGH_REPLICAS\", \"times\": 2}");
            orders.store(5);
            assertEquals(2, odradek.met());
            assertEquals(9, orders.total(2));
        }
    }

    @Test
    void ordersSurviveACrashOfTheBroker() throws Exception {
        try (var orders = new Orders(odradek.bootstrap())) {
            orders.store(4);
            odradek.kill();
            var stored = CompletableFuture.runAsync(() -> {
                try {
                    orders.store(5);
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            });
            odradek.restart();
            stored.get(30, TimeUnit.SECONDS);
            assertEquals(9, orders.total(2));
        }
    }
}
