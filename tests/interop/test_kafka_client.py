"""Our client with Apache Kafka, a cluster of one node and one of three: writing, reading,
commits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_cluster import KafkaCluster
from odradek import Admin, Consumer, NewTopic, Producer
from odradek.testing import make_unique_topic
from odradek_client.structs import ConsumerRecord

pytestmark = pytest.mark.kafka

DEADLINE_S = 60.0
PARTITIONS = 3
#: The settings of a group's members, by the name of the protocol.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=["kafka", "kafka_cluster"])
def nodes(request: pytest.FixtureRequest) -> KafkaCluster:
    """A cluster of one node, and a cluster of three."""
    found: KafkaCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def topic(nodes: KafkaCluster) -> str:
    name = make_unique_topic()
    async with Admin(bootstrap_servers=nodes.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS)])
    return name


async def read(bootstrap: str, topic: str, count: int, **settings: Any) -> list[ConsumerRecord]:
    """Read `count` records from the beginning, and any that follow immediately."""
    found: list[ConsumerRecord] = []
    async with (
        asyncio.timeout(DEADLINE_S),
        Consumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings
        ) as consumer,
    ):
        while len(found) < count:
            found += await consumer.poll(200)
        found += await consumer.poll(200)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_every_codec_are_read_as_written(
    nodes: KafkaCluster, topic: str, codec: Any
) -> None:
    async with Producer(bootstrap_servers=nodes.bootstrap, compression_type=codec) as producer:
        deliveries = [
            await producer.send(
                topic, b"value %d" % n, b"key %d" % (n % 7), headers=[("n", b"%d" % n), ("e", None)]
            )
            for n in range(2_000)
        ]
        await producer.send(topic, None, b"tombstone")
        await producer.flush()
    written = {(m.partition, m.offset) for m in (each.result() for each in deliveries)}
    found = await read(nodes.bootstrap, topic, 2_001)
    assert len(found) == 2_001
    assert [record.key for record in found if record.value is None] == [b"tombstone"]
    records = [record for record in found if record.value is not None]
    assert {(record.partition, record.offset) for record in records} == written
    for record in records:
        number = record.value.split()[1]
        assert record.key == b"key %d" % (int(number) % 7)
        assert list(record.headers) == [("n", number), ("e", None)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_records_are_written_with_every_acks(
    nodes: KafkaCluster, topic: str, acks: Any
) -> None:
    settings: dict[str, Any] = {"acks": acks}
    if acks != "all":
        settings["enable_idempotence"] = False
    # A record with acks=0 is lost without an error if it arrives before all nodes know the topic.
    async with Producer(bootstrap_servers=nodes.bootstrap) as producer:
        for n in range(PARTITIONS):
            await producer.send_and_wait(topic, b"%d" % n, partition=n)
    async with Producer(bootstrap_servers=nodes.bootstrap, **settings) as producer:
        for n in range(PARTITIONS, 300):
            await producer.send(topic, b"%d" % n, partition=n % PARTITIONS)
        await producer.flush()
    found = await read(nodes.bootstrap, topic, 300)
    assert sorted(int(record.value) for record in found) == list(range(300))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_group_shares_partitions_and_resumes_at_its_commits(
    nodes: KafkaCluster, topic: str, protocol: str
) -> None:
    """Two members read every record once; a later member begins at the committed offsets."""
    bootstrap = nodes.bootstrap
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": f"g-{topic}",
        "auto_offset_reset": "earliest",
        **PROTOCOLS[protocol],
    }
    async with asyncio.timeout(DEADLINE_S):
        async with Consumer(topic, **settings) as one, Consumer(topic, **settings) as two:
            while not (one.assignment() and two.assignment()) or (
                len(one.assignment() | two.assignment()) < PARTITIONS
            ):
                await asyncio.gather(one.poll(50), two.poll(50))
            assert not one.assignment() & two.assignment()
            async with Producer(bootstrap_servers=bootstrap) as producer:
                for n in range(300):
                    await producer.send(topic, b"%d" % n, partition=n % PARTITIONS)
            seen: list[int] = []
            while len(seen) < 300:
                for records in await asyncio.gather(one.poll(100), two.poll(100)):
                    seen += [int(record.value) for record in records]
            await asyncio.gather(one.commit(), two.commit())
        assert sorted(seen) == list(range(300))
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for n in range(300, 310):
                await producer.send(topic, b"%d" % n, partition=n % PARTITIONS)
        async with Consumer(topic, **settings) as third:
            later: list[int] = []
            while len(later) < 10:
                later += [int(record.value) for record in await third.poll(100)]
        assert sorted(later) == list(range(300, 310))


async def test_our_transactions_work_with_apache_kafka(nodes: KafkaCluster, topic: str) -> None:
    """With version 2 of transactions (KIP-890), committed records are read once, and aborted
    records never; a transaction also commits offsets."""
    bootstrap, group = nodes.bootstrap, f"g-{topic}"
    async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        await producer.init_transactions()
        for number in range(30):
            await producer.begin_transaction()
            for partition in range(PARTITIONS):
                await producer.send(topic, b"%d" % number, partition=partition)
            if number % 3 == 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        async with Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer:
            records: list[ConsumerRecord] = []
            async with asyncio.timeout(DEADLINE_S):
                while len(records) < 60:
                    records += await consumer.poll(200)
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction(
                    {
                        (topic, partition): max(
                            each.offset + 1 for each in records if each.partition == partition
                        )
                        for partition in range(PARTITIONS)
                    },
                    consumer.group_metadata(),
                )
                await producer.commit_transaction()
    committed = sorted(number for number in range(30) if number % 3 != 2 for _ in range(PARTITIONS))
    assert sorted(int(each.value) for each in records) == committed
    async with Admin(bootstrap_servers=bootstrap) as admin:
        offsets = await admin.list_group_offsets(group, require_stable=True)
    assert {tp.partition: found.offset for tp, found in offsets.items() if found} == {
        partition: max(each.offset + 1 for each in records if each.partition == partition)
        for partition in range(PARTITIONS)
    }
