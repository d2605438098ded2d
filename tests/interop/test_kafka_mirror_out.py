"""The mirror out, from Odradek to Apache Kafka and back: kills, lost leaders, other readers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka
import pytest

from kafka_cluster import KafkaCluster
from mirrored import Row, check_rows, fill, killed, make_topic, mirror, read_all
from odradek.broker import SubprocessBroker
from odradek.mirror.exactly_once import MirrorFenced, Step
from odradek.mirror.map_topic import map_topic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

DEADLINE_S = 120.0
PARTITIONS = 3


@pytest.fixture(params=["kafka", "kafka_cluster"])
def nodes(request: pytest.FixtureRequest) -> KafkaCluster:
    """A cluster of one node, and a cluster of three."""
    found: KafkaCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    with SubprocessBroker(settings={"log.durability": "page-cache"}) as running:
        yield running.bootstrap


def read_with_confluent(bootstrap: str, topic: str) -> list[list[Row]]:
    """The committed records of each partition, as librdkafka reads them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    left = set(range(PARTITIONS))
    silent = 0
    while left and silent < DEADLINE_S:
        message = consumer.poll(1.0)
        silent = 0 if message is not None else silent + 1
        if message is None:
            continue
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            left.discard(partition)
            continue
        headers = tuple(tuple(each) for each in message.headers() or [])
        row = (offset, message.timestamp()[1], message.key(), message.value(), headers)
        found[partition].append(row)  # type: ignore[arg-type]
    consumer.close()
    assert not left, "librdkafka has not read to the ends"
    return found


async def test_everything_arrives_once_and_others_read_it(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS)
    async with mirror(source, nodes.bootstrap, unique_topic) as made:
        await made.drain()
        await fill(source, unique_topic, PARTITIONS, count=100, first=1000)
        await made.drain()
        await made.check(PARTITIONS)
    before = await read_all(source, unique_topic, PARTITIONS)
    check_rows(before, await asyncio.to_thread(read_with_confluent, nodes.bootstrap, unique_topic))


@pytest.mark.parametrize("step", list(Step))
async def test_a_mirror_that_is_killed_goes_on_where_it_was(
    source: str, nodes: KafkaCluster, unique_topic: str, step: Step
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS, count=200)
    for nth in (1, 2):
        await asyncio.to_thread(killed, source, nodes.bootstrap, unique_topic, step, nth)
    async with mirror(source, nodes.bootstrap, unique_topic) as made:
        await made.drain()
        await made.check(PARTITIONS)


async def test_a_second_instance_ends_the_first(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS, count=100)
    async with (
        mirror(source, nodes.bootstrap, unique_topic) as made,
        mirror(source, nodes.bootstrap, unique_topic) as other,
    ):
        first = made.make()
        await first.start()
        await first.add(await made.planned())
        await other.drain()
        await fill(source, unique_topic, PARTITIONS, count=20, first=500)
        with pytest.raises(MirrorFenced):
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    await first.step(100)
        await first.close()
        await other.drain()
        await other.check(PARTITIONS)


async def test_an_instance_whose_transaction_was_aborted_goes_on(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    """Abort as the timeout of the target does: the epoch is raised, no instance takes over."""
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS, count=100)
    async with mirror(source, nodes.bootstrap, unique_topic) as made:
        copier = made.make()
        await copier.start()
        await copier.add(await made.planned())
        await made.target.fence_producer(map_topic(unique_topic))
        async with asyncio.timeout(DEADLINE_S):
            while any(made.counts.positions[tp] < made.counts.ends[tp] for tp in made.counts.ends):
                await copier.step(100)
        await copier.close()
        await made.check(PARTITIONS)


async def test_leaders_that_go_while_it_copies(
    source: str, kafka_cluster: KafkaCluster, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS)
    node = kafka_cluster.nodes[0]
    down: list[Step] = []

    def reached(step: Step) -> None:
        if step is Step.MAPPED and not down:
            down.append(step)
            node.kill()

    try:
        settings = {"transaction_bytes": 20_000}
        async with mirror(source, kafka_cluster.bootstrap, unique_topic, **settings) as made:
            await made.drain(reached)
    finally:
        await asyncio.to_thread(node.start)
    assert down
    async with mirror(source, kafka_cluster.bootstrap, unique_topic) as made:
        await made.check(PARTITIONS)


async def test_kafka_is_the_source(source: str, kafka: KafkaCluster, unique_topic: str) -> None:
    """Transactions, aborts and append times of Kafka, copied to Odradek."""
    configs = {"message_timestamp_type": "LogAppendTime"}
    await make_topic(kafka.bootstrap, unique_topic, PARTITIONS, **configs)
    await fill(kafka.bootstrap, unique_topic, PARTITIONS)
    async with mirror(kafka.bootstrap, source, unique_topic) as made:
        await made.drain()
        await made.check(PARTITIONS)
