//! rskafka, in pure Rust and without groups: HOST:PORT NAME. A line for each check.
mod checks;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use checks::{each_once, kill_the_broker, same, told, Outcome};
use chrono::{TimeZone, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

const PARTITIONS: i32 = 3;
const OF_EACH_CODEC: usize = 100;
const WHILE_KILLED: usize = 100;
const FETCH_BYTES: std::ops::Range<i32> = 1..1_000_000;
const TIMEOUT_MS: i32 = 30_000;

fn record(key: Option<&str>, value: Option<&str>, at_ms: i64) -> Record {
    Record {
        key: key.map(Into::into),
        value: value.map(Into::into),
        headers: BTreeMap::from([("h".to_string(), b"1".to_vec()), ("empty".to_string(), Vec::new())]),
        timestamp: Utc.timestamp_millis_opt(at_ms).unwrap(),
    }
}

async fn partition(client: &Client, topic: &str, number: i32) -> Result<PartitionClient, rskafka::client::error::Error> {
    client.partition_client(topic, number, UnknownTopicHandling::Retry).await
}

/// All records of a partition, from its start to its end.
async fn read(from: &PartitionClient) -> Result<Vec<Record>, rskafka::client::error::Error> {
    let mut offset = from.get_offset(OffsetAt::Earliest).await?;
    let end = from.get_offset(OffsetAt::Latest).await?;
    let mut found = Vec::new();
    while offset < end {
        let (records, _) = from.fetch_records(offset, FETCH_BYTES, 1_000).await?;
        for each in records {
            offset = each.offset + 1;
            found.push(each.record);
        }
    }
    Ok(found)
}

async fn topics(client: &Client, topic: &str) -> Outcome {
    client.controller_client()?.create_topic(topic, PARTITIONS, 1, TIMEOUT_MS).await?;
    partition(client, topic, PARTITIONS - 1).await?;
    let found = client.list_topics().await?.into_iter().find(|each| each.name == topic).ok_or("it is not listed")?;
    same(found.partitions.len(), PARTITIONS as usize)
}

async fn codecs(client: &Client, topic: &str) -> Outcome {
    let to = partition(client, topic, 0).await?;
    let codecs =
        [Compression::NoCompression, Compression::Gzip, Compression::Lz4, Compression::Snappy, Compression::Zstd];
    let mut expected = Vec::new();
    for codec in codecs {
        let records: Vec<Record> = (0..OF_EACH_CODEC)
            .map(|number| {
                let value = format!("{codec:?}-{number}");
                record(Some(&format!("k{number}")), (number % 25 != 0).then_some(&value), 1_700_000_000_000)
            })
            .collect();
        let first = expected.len() as i64;
        let offsets = to.produce(records.clone(), codec).await?;
        same(offsets, (first..first + OF_EACH_CODEC as i64).collect())?;
        expected.extend(records);
    }
    same(read(&to).await?, expected)
}

async fn deletions(client: &Client, topic: &str) -> Outcome {
    let of = partition(client, topic, 0).await?;
    of.delete_records(7, TIMEOUT_MS).await?;
    same(of.get_offset(OffsetAt::Earliest).await?, 7)?;
    same(of.fetch_records(0, FETCH_BYTES, 1_000).await.is_err(), true)?;
    client.controller_client()?.delete_topic(topic, TIMEOUT_MS).await?;
    for _ in 0..300 {
        if !client.list_topics().await?.iter().any(|each| each.name == topic) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("the topic is not gone after 30 s".into())
}

/// Produces while the broker is killed and starts again. The client retries without idempotence, so
/// an acknowledged record may be there twice.
async fn kill(client: &Client, topic: &str) -> Outcome {
    client.controller_client()?.create_topic(topic, 1, 1, TIMEOUT_MS).await?;
    let to = partition(client, topic, 0).await?;
    let up = Arc::new(AtomicBool::new(false));
    let mut sent = Vec::new();
    while !up.load(Ordering::SeqCst) || sent.len() < WHILE_KILLED {
        let value = format!("v-{}", sent.len());
        to.produce(vec![record(None, Some(&value), 1_700_000_000_000)], Compression::NoCompression).await?;
        sent.push(value);
        if sent.len() == WHILE_KILLED / 2 {
            let up = Arc::clone(&up);
            std::thread::spawn(move || {
                kill_the_broker();
                up.store(true, Ordering::SeqCst);
            });
        }
    }
    let mut found = Vec::new();
    for each in read(&to).await? {
        let value = String::from_utf8(each.value.ok_or("a value is null")?)?;
        if !found.contains(&value) {
            found.push(value);
        }
    }
    each_once(&found, &sent)
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().expect("HOST:PORT");
    let name = arguments.next().expect("NAME");
    let client = ClientBuilder::new(vec![bootstrap]).build().await.expect("a client");
    let topic = format!("{name}-records");
    told("a topic is made and listed", topics(&client, &topic).await);
    told("records of each codec, with keys, headers and tombstones, come back", codecs(&client, &topic).await);
    told("records and a topic are deleted", deletions(&client, &topic).await);
    told("a broker that is killed loses no acknowledged record", kill(&client, &format!("{name}-killed")).await);
}
