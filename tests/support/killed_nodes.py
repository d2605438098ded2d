"""An Apache Kafka whose nodes are killed one after the other, a foreign client that writes during
the kills, and a reader of the client's records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka

from kafka_cluster import KafkaCluster, KafkaNode
from odradek import NewTopic, sync
from odradek.testing import make_unique_topic

PARTITIONS = 3
WAIT_S = 300.0


def make_topic(bootstrap: str) -> str:
    name = make_unique_topic()
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(NewTopic(name, PARTITIONS))
    return name


def committed(bootstrap: str, topic: str) -> list[int]:
    """The sorted numbers in the committed records of a topic, read by librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found: list[int] = []
    at_end: set[int | None] = set()
    end = time.monotonic() + WAIT_S
    try:
        while len(at_end) < PARTITIONS:
            assert time.monotonic() < end, "a transaction is open, and readers wait for it"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                at_end.discard(message.partition())
                found.append(int(message.value() or b""))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    finally:
        consumer.close()
    return sorted(found)


class Writer(threading.Thread):
    """A foreign client that writes 0, 1, 2... to a topic until `finish` is called; every record
    must be acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self._topic = topic
        self._ended = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 300_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self._ended.wait(0.05):
            for _ in range(20):
                self._producer.produce(
                    self._topic, str(self.count).encode(), partition=self.count % PARTITIONS
                )
                self.count += 1
            self._producer.poll(0)

    def finish(self) -> None:
        self._ended.set()
        self.join()
        assert self._producer.flush(WAIT_S) == 0


def wait_for(condition: Any, what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"waited {WAIT_S} s until {what}"
        time.sleep(0.2)


def is_whole(bootstrap: str) -> bool:
    """True if all replicas of every partition are in sync, so that the next node may be killed."""
    with sync.Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=20_000) as admin:
        topics = admin.describe_topics(admin.list_topics(internal=True))
    return all(
        len(part.in_sync) == len(part.replicas)
        for topic in topics.values()
        for part in topic.partitions
    )


def killed_one_after_the_other(cluster: KafkaCluster) -> Iterator[KafkaNode]:
    """For each node: kill it, yield it, start it again, and wait until all replicas are in sync."""
    for node in cluster.nodes:
        node.kill()
        yield node
        node.start()
        node.wait_until_up()
        wait_for(lambda: is_whole(cluster.bootstrap), "the cluster is whole again")
