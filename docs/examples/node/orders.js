// The application under test: it stores orders in a topic, and adds them up.
const { Kafka, logLevel } = require("kafkajs");

class Orders {
  constructor(bootstrap) {
    this.kafka = new Kafka({
      brokers: [bootstrap],
      logLevel: logLevel.NOTHING,
      retry: { initialRetryTime: 50, retries: 10 },
    });
    this.producer = this.kafka.producer();
  }

  connect = () => this.producer.connect();
  close = () => this.producer.disconnect();

  async store(apples) {
    await this.producer.send({ topic: "orders", messages: [{ value: String(apples) }] });
  }

  /** The sum of the first `count` orders. */
  async total(count) {
    const consumer = this.kafka.consumer({ groupId: "totals" });
    await consumer.connect();
    await consumer.subscribe({ topic: "orders", fromBeginning: true });
    let sum = 0;
    let read = 0;
    await new Promise((resolve, reject) => {
      const eachMessage = async ({ message }) => {
        sum += Number(message.value);
        if (++read === count) resolve();
      };
      consumer.run({ eachMessage }).catch(reject);
    });
    await consumer.disconnect();
    return sum;
  }
}

module.exports = { Orders };
