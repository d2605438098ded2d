//! The application under test: it stores orders in a topic, and adds them up.

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use std::time::Duration;

pub struct Orders {
    bootstrap: String,
    producer: ThreadedProducer<DefaultProducerContext>,
}

impl Orders {
    pub fn open(bootstrap: &str) -> Result<Orders, KafkaError> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .create()?;
        Ok(Orders { bootstrap: bootstrap.to_string(), producer })
    }

    /// Returns when the order is stored.
    pub fn store(&self, apples: u32) -> Result<(), KafkaError> {
        let text = apples.to_string();
        let record = BaseRecord::<(), str>::to("orders").payload(&text);
        self.producer.send(record).map_err(|(error, _)| error)?;
        self.producer.flush(Duration::from_secs(30))
    }

    /// The sum of the first `count` orders.
    pub fn total(&self, count: usize) -> Result<u32, KafkaError> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", "totals")
            .set("auto.offset.reset", "earliest")
            .create()?;
        consumer.subscribe(&["orders"])?;
        let (mut sum, mut read) = (0, 0);
        while read < count {
            if let Some(message) = consumer.poll(Duration::from_millis(100)) {
                sum += apples(&message?);
                read += 1;
            }
        }
        Ok(sum)
    }
}

fn apples(message: &BorrowedMessage) -> u32 {
    let text = message.payload_view::<str>().expect("an order has a value");
    text.expect("an order is text").parse().expect("an order is a number")
}
