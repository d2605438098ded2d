//! rdkafka (librdkafka) does what users do with a client: HOST:PORT NAME. A line for each check.
mod checks;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use checks::{each_once, kill_the_broker, same, told, until, Outcome};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, FutureProducer, FutureRecord, Producer};
use rdkafka::producer::{ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

const PARTITIONS: i32 = 4;
const CODECS: [&str; 4] = ["none", "gzip", "snappy", "lz4"];
const OF_EACH_CODEC: usize = 100;
const WHILE_KILLED: usize = 300;
const WAIT: Duration = Duration::from_secs(60);

struct Story {
    bootstrap: String,
    name: String,
    runtime: tokio::runtime::Runtime,
}

/// A member of a group that reads on a thread of its own until it leaves.
struct Member {
    read: Arc<Mutex<Vec<String>>>,
    assigned: Arc<AtomicUsize>,
    leaving: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Member {
    fn values(&self) -> Vec<String> {
        self.read.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.read.lock().unwrap().len()
    }

    fn leave(self) -> Vec<String> {
        self.leaving.store(true, Ordering::SeqCst);
        self.thread.join().expect("the member ends well");
        let read = self.read.lock().unwrap();
        read.clone()
    }
}

/// Collects the values of acknowledged records.
#[derive(Clone, Default)]
struct Acknowledged(Arc<Mutex<Vec<String>>>);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Ok(message) = result {
            let value = message.payload_view::<str>().unwrap().unwrap();
            self.0.lock().unwrap().push(value.to_string());
        }
    }
}

fn numbered(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{what}-{number}")).collect()
}

impl Story {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        config
    }

    fn topic(&self, what: &str) -> String {
        format!("{}-{what}", self.name)
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().expect("an admin client")
    }

    fn create(&self, topic: &str, partitions: i32) -> Outcome {
        let wanted = [NewTopic::new(topic, partitions, TopicReplication::Fixed(1)).set("retention.ms", "-1")];
        let made = self.runtime.block_on(self.admin().create_topics(&wanted, &AdminOptions::new()))?;
        made.into_iter().next().unwrap().map_err(|(_, code)| code)?;
        until("the topic", || self.partitions(topic) == partitions as usize)
    }

    fn partitions(&self, topic: &str) -> usize {
        match self.admin().inner().fetch_metadata(None, WAIT) {
            Ok(found) => found.topics().iter().find(|each| each.name() == topic).map_or(0, |each| each.partitions().len()),
            Err(_) => usize::MAX,
        }
    }

    fn reader(&self, group: &str, isolation: &str) -> BaseConsumer {
        self.config()
            .set("group.id", group)
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", isolation)
            .set("heartbeat.interval.ms", "500")
            .create()
            .expect("a consumer")
    }

    fn member(&self, group: &str, topic: &str) -> Member {
        let consumer = self.reader(group, "read_committed");
        consumer.subscribe(&[topic]).expect("a subscription");
        let (read, assigned, leaving) = (Arc::default(), Arc::default(), Arc::default());
        let (values, partitions, ends): (Arc<Mutex<Vec<String>>>, Arc<AtomicUsize>, Arc<AtomicBool>) =
            (Arc::clone(&read), Arc::clone(&assigned), Arc::clone(&leaving));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                if let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) {
                    let value = message.payload_view::<str>().map_or("", Result::unwrap);
                    values.lock().unwrap().push(value.to_string());
                }
                partitions.store(consumer.assignment().map_or(0, |found| found.count()), Ordering::SeqCst);
            }
            consumer.commit_consumer_state(CommitMode::Sync).ok(); // no position: nothing to commit
            consumer.unsubscribe();
        });
        Member { read, assigned, leaving, thread }
    }

    fn codecs(&self) -> Outcome {
        let topic = self.topic("records");
        self.create(&topic, PARTITIONS)?;
        for codec in CODECS {
            let producer: FutureProducer =
                self.config().set("compression.type", codec).set("enable.idempotence", "true").create()?;
            for number in 0..OF_EACH_CODEC {
                let key = format!("key-{codec}-{number}");
                let header = Header { key: "codec", value: Some(codec) };
                let headers = OwnedHeaders::new().insert(header).insert(Header::<&[u8]> { key: "null", value: None });
                let value = format!("{codec}-{number}");
                let record = FutureRecord::to(&topic).key(&key).headers(headers);
                // Every 25th is a tombstone.
                let record = if number % 25 == 0 { record } else { record.payload(&value) };
                let sent = producer.send_result(record).map_err(|(error, _)| error)?;
                if number == OF_EACH_CODEC - 1 {
                    self.runtime.block_on(sent)?.map_err(|(error, _)| error)?;
                }
            }
            producer.flush(WAIT)?;
        }
        let consumer = self.reader(&self.topic("first"), "read_uncommitted");
        consumer.subscribe(&[&topic])?;
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for codec in CODECS {
            for number in 0..OF_EACH_CODEC {
                let value = if number % 25 == 0 { "null".into() } else { format!("{codec}-{number}") };
                expected.push(format!("key-{codec}-{number} {value} codec={codec} null=null"));
            }
        }
        until("the records", || {
            while let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) {
                let headers = message.headers().expect("headers");
                let told: Vec<String> = headers
                    .iter()
                    .map(|each| format!("{}={}", each.key, each.value.map_or("null".into(), String::from_utf8_lossy)))
                    .collect();
                let key = message.key_view::<str>().unwrap().unwrap();
                let value = message.payload_view::<str>().map_or("null", Result::unwrap);
                found.push(format!("{key} {value} {}", told.join(" ")));
            }
            found.len() >= expected.len()
        })?;
        each_once(&found, &expected)
    }

    fn two_members(&self) -> Outcome {
        let (topic, group) = (self.topic("records"), self.topic("group"));
        let before = CODECS.len() * OF_EACH_CODEC;
        let first = self.member(&group, &topic);
        until("the first member's records", || first.count() >= before)?;
        let second = self.member(&group, &topic);
        until("two partitions for each", || {
            [&first, &second].iter().all(|member| member.assigned.load(Ordering::SeqCst) == 2)
        })?;
        let producer: FutureProducer = self.config().create()?;
        let more = numbered("more", 80);
        for (number, value) in more.iter().enumerate() {
            let record = FutureRecord::<(), _>::to(&topic).payload(value).partition(number as i32 % PARTITIONS);
            self.runtime.block_on(producer.send(record, WAIT)).map_err(|(error, _)| error)?;
        }
        until("more records", || first.count() + second.count() >= before + more.len())?;
        same(second.count() > 0, true)?;
        let found: Vec<String> =
            [first.leave(), second.leave()].concat().into_iter().filter(|value| value.starts_with("more-")).collect();
        each_once(&found, &more)
    }

    fn goes_on(&self) -> Outcome {
        let (topic, group) = (self.topic("records"), self.topic("group"));
        let consumer = self.reader(&group, "read_uncommitted");
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(&topic, 0, PARTITIONS - 1);
        for each in consumer.committed_offsets(asked, WAIT)?.elements() {
            let (_, end) = consumer.fetch_watermarks(&topic, each.partition(), WAIT)?;
            same(each.offset(), Offset::Offset(end))?;
        }
        let producer: FutureProducer = self.config().create()?;
        let record = FutureRecord::<(), _>::to(&topic).payload("last");
        self.runtime.block_on(producer.send(record, WAIT)).map_err(|(error, _)| error)?;
        let member = self.member(&group, &topic);
        until("the last record", || member.count() > 0)?;
        same(member.leave(), vec!["last".to_string()])
    }

    fn transactions(&self) -> Outcome {
        let (read, within, etl) = (self.topic("records"), self.topic("transactions"), self.topic("etl"));
        self.create(&within, 1)?;
        let producer: FutureProducer = self.config().set("transactional.id", &self.name).create()?;
        let consumer = self.reader(&etl, "read_committed");
        producer.init_transactions(WAIT)?;
        for (value, commits) in [("one", true), ("three", false), ("sixteen", true)] {
            producer.begin_transaction()?;
            let record = FutureRecord::<(), _>::to(&within).payload(value);
            self.runtime.block_on(producer.send(record, WAIT)).map_err(|(error, _)| error)?;
            let mut positions = TopicPartitionList::new();
            positions.add_partition_offset(&read, 0, Offset::Offset(value.len() as i64))?;
            let owner = consumer.group_metadata().expect("metadata of a group");
            producer.send_offsets_to_transaction(&positions, &owner, WAIT)?;
            if commits {
                producer.commit_transaction(WAIT)?;
            } else {
                producer.abort_transaction(WAIT)?;
            }
        }
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&read, 0);
        let expected = Offset::Offset("sixteen".len() as i64);
        // Kafka answers before the markers of a transaction are written.
        until("the position", || {
            let found = consumer.committed_offsets(asked.clone(), WAIT);
            found.is_ok_and(|found| found.elements()[0].offset() == expected)
        })?;
        let member = self.member(&self.topic("committed"), &within);
        until("two records", || member.count() >= 2)?;
        same(member.leave(), vec!["one".to_string(), "sixteen".to_string()])
    }

    /// Sends while the broker is killed and starts again, and afterwards.
    fn kill(&self) -> Outcome {
        let topic = self.topic("killed");
        self.create(&topic, PARTITIONS)?;
        let witness = self.member(&self.topic("witness"), &topic);
        until("the partitions", || witness.assigned.load(Ordering::SeqCst) == PARTITIONS as usize)?;
        let acknowledged = Acknowledged::default();
        let producer: ThreadedProducer<Acknowledged> = self
            .config()
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .create_with_context(acknowledged.clone())?;
        let up = Arc::new(AtomicBool::new(false));
        let mut sent = Vec::new();
        while !up.load(Ordering::SeqCst) || sent.len() < WHILE_KILLED {
            let value = format!("v-{}", sent.len());
            let record = BaseRecord::<(), _>::to(&topic).payload(&value).partition(sent.len() as i32 % PARTITIONS);
            producer.send(record).map_err(|(error, _)| error)?;
            sent.push(value);
            if sent.len() == WHILE_KILLED / 2 {
                let up = Arc::clone(&up);
                std::thread::spawn(move || {
                    kill_the_broker();
                    up.store(true, Ordering::SeqCst);
                });
            }
            if sent.len() > WHILE_KILLED / 2 {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        producer.flush(WAIT)?;
        each_once(&acknowledged.0.lock().unwrap(), &sent)?;
        until("all records for the member that was there", || {
            let read = witness.values();
            sent.iter().all(|value| read.contains(value))
        })?;
        witness.leave();
        let reader = self.member(&self.topic("reader"), &topic);
        until("all records", || reader.count() >= sent.len())?;
        each_once(&reader.leave(), &sent)
    }

    fn administration(&self) -> Outcome {
        let (within, group) = (self.topic("transactions"), self.topic("group"));
        let consumer = self.reader(&self.topic("times"), "read_uncommitted");
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset(&within, 0, Offset::Offset(1))?;
        same(consumer.offsets_for_times(asked, WAIT)?.elements()[0].offset(), Offset::Offset(0))?;
        let listed = || -> Vec<String> {
            let found = consumer.fetch_group_list(None, WAIT).expect("groups");
            found.groups().iter().map(|each| each.name().to_string()).collect()
        };
        same(listed().contains(&group), true)?;
        let gone = self.runtime.block_on(self.admin().delete_groups(&[&group], &AdminOptions::new()))?;
        gone.into_iter().next().unwrap().map_err(|(_, code)| code)?;
        same(listed().contains(&group), false)?;
        let gone = self.runtime.block_on(self.admin().delete_topics(&[&within], &AdminOptions::new()))?;
        gone.into_iter().next().unwrap().map_err(|(_, code)| code)?;
        until("the topic is gone", || self.partitions(&within) == 0)
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let story = Story {
        bootstrap: arguments.next().expect("HOST:PORT"),
        name: arguments.next().expect("NAME"),
        runtime: tokio::runtime::Runtime::new().expect("a runtime"),
    };
    told("records of each codec, with keys, headers and tombstones, come back", story.codecs());
    told("two members share the partitions and read each record once", story.two_members());
    told("the group goes on where it was", story.goes_on());
    told("transactions commit and abort, with positions of a group, and are read", story.transactions());
    told("offsets by time, groups, and what is deleted", story.administration());
    told("a broker that is killed loses and doubles no acknowledged record", story.kill());
}
