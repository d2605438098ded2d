// kafkajs, or Confluent's client with its interface: HOST:PORT NAME [confluent]. A line for each check.
const [bootstrap, name, kind] = process.argv.slice(2);
const confluent = kind === "confluent";
const own = confluent
  ? require("@confluentinc/kafka-javascript").KafkaJS
  : require("kafkajs");
const { Kafka, logLevel } = own;

// Confluent's client takes the settings of kafkajs in a block of that name.
const block = (settings, more = {}) => (confluent ? { kafkaJS: settings, ...more } : settings);
const kafka = new Kafka(block({ clientId: name, brokers: [bootstrap], logLevel: logLevel.NOTHING }));
const topic = `${name}-records`;
const COUNT = 300;
const WHILE_KILLED = 300;
let broken = 0;

async function check(what, work) {
  try {
    await work();
    console.log(`ok ${what}`);
  } catch (problem) {
    broken += 1;
    console.log(`failed ${what}: ${String(problem.message).replaceAll("\n", " ")}`);
  }
}

function same(found, expected) {
  if (JSON.stringify(found) !== JSON.stringify(expected)) {
    throw new Error(`${JSON.stringify(found)}, not ${JSON.stringify(expected)}`);
  }
}

async function until(ready, what) {
  for (let turn = 0; turn < 600; turn += 1) {
    if (await ready()) return;
    await new Promise((later) => setTimeout(later, 100));
  }
  throw new Error(`${what}: not after 60 s`);
}

async function produced(settings, to, batches, codec = "none") {
  const producer = kafka.producer(block(settings));
  await producer.connect();
  for (const messages of batches) await producer.send(
    { topic: to, messages, ...(confluent ? {} : { compression: own.CompressionTypes[codec === "gzip" ? "GZIP" : "None"] }) });
  await producer.disconnect();
}

// A member of a group, which collects the values of records.
async function member(group, from, settings = {}) {
  const consumer = kafka.consumer(block({ groupId: group, fromBeginning: true, autoCommit: true, ...settings }));
  const read = [];
  const partitions = new Set();
  await consumer.connect();
  await consumer.subscribe(confluent ? { topics: [from] } : { topics: [from], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      partitions.add(partition);
      read.push(message);
    },
  });
  return { consumer, read, partitions };
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await check("a topic is made, listed and described", async () => {
    const configEntries = [{ name: "retention.ms", value: "-1" }];
    same(await admin.createTopics({ topics: [{ topic, numPartitions: 4, replicationFactor: 1, configEntries }] }), true);
    await until(async () => (await admin.listTopics()).includes(topic), "the topic");
    const found = await admin.fetchTopicMetadata({ topics: [topic] });
    same((found.topics ?? found)[0].partitions.length, 4);
  });
  const codecs = ["none", "gzip", ...(confluent ? ["snappy", "lz4", "zstd"] : [])];
  await check("records of each codec, with keys, headers and tombstones, are produced", async () => {
    for (const codec of codecs) {
      const messages = [...Array(COUNT).keys()].map((n) => ({
        key: `k${n}`, value: n % 50 ? `${codec}-${n}` : null, headers: { h: `h${n}` },
      }));
      if (confluent) await produced({ compression: codec, idempotent: true }, topic, [messages]);
      else await produced({ idempotent: true }, topic, [messages], codec);
    }
  });
  const all = COUNT * codecs.length;
  const group = `${name}-group`;
  await check("a member reads all, a second one takes over partitions, and both share the rest", async () => {
    const first = await member(group, topic);
    await until(() => first.read.length === all, `${all} records`);
    same(first.read.filter(({ value }) => value === null).length, (COUNT / 50) * codecs.length);
    same(first.read.every(({ headers, key }) => `h${String(key).slice(1)}` === String(headers.h)), true);
    const second = await member(group, topic);
    first.partitions.clear();
    const more = () => produced({}, topic, [[...Array(40).keys()].map((n) => ({ value: `more ${n}`, partition: n % 4 }))]);
    for (let turn = 0; turn < 60 && second.partitions.size === 0; turn += 1) {
      await more();
      await new Promise((later) => setTimeout(later, 500));
    }
    same(second.partitions.size > 0, true);
    await Promise.all([first.consumer.disconnect(), second.consumer.disconnect()]);
  });
  await check("the group's commits are where its members stopped", async () => {
    const ends = (await admin.fetchTopicOffsets(topic)).map(({ partition, high }) => [partition, high]).sort();
    const fetched = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    const commits = (fetched[0].partitions ?? fetched).map(({ partition, offset }) => [partition, offset]).sort();
    same(commits, ends);
    const next = await member(group, topic);
    await produced({}, topic, [[{ value: "last" }]]);
    await until(() => next.read.length > 0, "the next record");
    same(next.read.map(({ value }) => String(value)), ["last"]);
    await next.consumer.disconnect();
  });
  const within = `${name}-transactions`;
  await check("transactions commit and abort, with offsets of a group", async () => {
    await admin.createTopics({ topics: [{ topic: within, numPartitions: 1 }] });
    const producer = kafka.producer(block({ transactionalId: name, maxInFlightRequests: 1, idempotent: true }));
    const consumer = confluent ? kafka.consumer(block({ groupId: `${name}-etl` })) : undefined;
    if (consumer) await consumer.connect();
    await producer.connect();
    for (const [value, ends] of [["one", "commit"], ["two", "abort"], ["three", "commit"]]) {
      const transaction = await producer.transaction();
      await transaction.send({ topic: within, messages: [{ value }] });
      const offsets = { topics: [{ topic, partitions: [{ partition: 0, offset: String(value.length) }] }] };
      const owner = confluent ? { consumer } : { consumerGroupId: `${name}-etl` };
      await transaction.sendOffsets({ ...owner, ...offsets });
      await transaction[ends]();
    }
    await producer.disconnect();
    if (consumer) await consumer.disconnect();
    const fetched = await admin.fetchOffsets({ groupId: `${name}-etl`, topics: [topic] });
    same((fetched[0].partitions ?? fetched)[0].offset, "5");
  });
  await check("read_committed reads what was committed", async () => {
    const reader = await member(`${name}-committed`, within, { readUncommitted: false });
    await until(() => reader.read.length >= 2, "two records");
    same(reader.read.map(({ value }) => String(value)), ["one", "three"]);
    await reader.consumer.disconnect();
  });
  await check("a broker that is killed loses and doubles no acknowledged record", async () => {
    const killed = `${name}-killed`;
    await admin.createTopics({ topics: [{ topic: killed, numPartitions: 1 }] });
    const witness = await member(`${name}-witness`, killed);
    const retry = { initialRetryTime: 100, maxRetryTime: 1000, retries: 300 };
    const patient = new Kafka(block({ clientId: name, brokers: [bootstrap], logLevel: logLevel.NOTHING, retry }));
    const producer = patient.producer(block({ idempotent: true, maxInFlightRequests: 1, retry }));
    await producer.connect();
    let up = false;
    const sent = [];
    while (!up || sent.length < WHILE_KILLED) {
      sent.push(`v-${sent.length}`);
      const sending = producer.send({ topic: killed, messages: [{ value: sent.at(-1) }] });
      if (sent.length === WHILE_KILLED / 2) {
        process.stdin.once("data", () => { up = true; });
        console.log("wanted: another start of the broker");
      }
      await sending;
    }
    await producer.disconnect();
    const values = ({ read }) => read.map(({ value }) => String(value));
    await until(() => new Set(values(witness)).size === sent.length, "all records for the member that was there");
    await witness.consumer.disconnect();
    const reader = await member(`${name}-afterwards`, killed);
    const [{ high }] = await admin.fetchTopicOffsets(killed);
    same(Number(high), sent.length);
    await until(() => reader.read.length >= sent.length, "all records");
    same(values(reader), sent);
    await reader.consumer.disconnect();
  });
  await check("offsets by time, deleted records, groups and topics", async () => {
    const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(within, 1);
    same(offset, "0");
    await admin.deleteTopicRecords({ topic: within, partitions: [{ partition: 0, offset: "2" }] });
    same((await admin.fetchTopicOffsets(within))[0].low, "2");
    const { groups } = await admin.describeGroups([group]);
    same(confluent || groups[0].state === "Empty", true);
    await admin.deleteGroups([group, `${name}-committed`]);
    const listed = (await admin.listGroups()).groups.map(({ groupId }) => groupId);
    same(listed.includes(group), false);
    await admin.deleteTopics({ topics: [topic, within] });
    await until(async () => !(await admin.listTopics()).includes(topic), "the topic is gone");
  });
  await admin.disconnect();
  process.exit(broken ? 1 : 0);
}

main();
