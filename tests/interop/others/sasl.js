// kafkajs at a listener of SASL: HOST:PORT and a password. One line for each mechanism.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, password] = process.argv.slice(2);

const clientOf = (mechanism, secret) =>
  new Kafka({
    clientId: "kafkajs",
    brokers: [bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: 2 },
    sasl: { mechanism, username: "alice", password: secret },
  });

async function useIt(mechanism) {
  const kafka = clientOf(mechanism, password);
  const admin = kafka.admin();
  const topic = `js-${mechanism}`;
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value: "sent" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: topic });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const value = await new Promise((read) => {
    consumer.run({ eachMessage: async ({ message }) => read(message.value.toString()) });
  });
  await consumer.disconnect();
  await admin.disconnect();
  return value;
}

(async () => {
  for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512"]) {
    console.log(`${mechanism}: ${await useIt(mechanism)}`);
    try {
      await clientOf(mechanism, "wrong").admin().connect();
      console.log(`${mechanism}: a wrong password is taken`);
    } catch (error) {
      console.log(`${mechanism}: ${error.name}`);
    }
  }
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
