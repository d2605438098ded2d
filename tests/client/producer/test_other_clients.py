"""The producer against a broker of another project: the mock cluster of librdkafka, with injected
faults."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from odradek import Admin, Producer


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> list[Any]:
    """All values of the topic, read by librdkafka."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
    found: list[Any] = []
    for _ in range(200):
        found += consumer.consume(count - len(found), timeout=0.1)
        if len(found) >= count:
            break
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_librdkafka_reads_our_records(mock: str, codec: Any) -> None:
    topic = f"codec-{codec}"
    async with Producer(bootstrap_servers=mock, compression_type=codec) as producer:
        deliveries = [
            await producer.send(
                topic, b"value %d" % index, b"key %d" % (index % 7), headers=[("n", b"%d" % index)]
            )
            for index in range(500)
        ]
        await producer.flush()
    metadata = [delivery.result() for delivery in deliveries]
    found = consume(mock, topic, 4, 500)
    assert {(m.partition(), m.offset(), m.value()) for m in found} == {
        (m.partition, m.offset, b"value %d" % index) for index, m in enumerate(metadata)
    }
    assert {(m.key(), m.partition()) for m in found} == {
        (b"key %d" % (index % 7), m.partition) for index, m in enumerate(metadata)
    }
    assert all(m.headers() == [("n", m.value().split()[1])] for m in found)


@pytest.mark.full
async def test_keys_get_the_same_partitions_as_with_librdkafka(mock: str) -> None:
    keys = [b"k%d" % index for index in range(200)]
    theirs: dict[Any, Any] = {}
    foreign = confluent_kafka.Producer(
        {"bootstrap.servers": mock, "partitioner": "murmur2", "log_level": 0}
    )
    for key in keys:
        foreign.produce(
            "partitioned",
            b"x",
            key,
            on_delivery=lambda error, message: theirs.update({message.key(): message.partition()}),
        )
    foreign.flush(10)
    async with Producer(bootstrap_servers=mock) as producer:
        for key in keys:
            metadata = await producer.send_and_wait("partitioned", b"x", key)
            assert metadata.partition == theirs[key]


async def test_an_admin_works_at_the_mock_cluster_of_librdkafka(mock: str) -> None:
    async with Admin(bootstrap_servers=mock) as admin, Producer(bootstrap_servers=mock) as producer:
        cluster = await admin.describe_cluster()
        assert [broker.node_id for broker in cluster.brokers] == [1, 2, 3]
        await producer.send_and_wait("administered", b"x", partition=2)
        assert "administered" in await admin.list_topics()
        described = (await admin.describe_topics("administered"))["administered"]
        assert [part.partition for part in described.partitions] == [0, 1, 2, 3]
        offsets = await admin.list_offsets({("administered", 2): -1, ("administered", 1): -2})
        assert {tp.partition: at.offset for tp, at in offsets.items() if at} == {2: 1, 1: 0}
