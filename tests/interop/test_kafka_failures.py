"""Our client with an Apache Kafka under difficulties: a hanging node, many rebalances, and
rebalance listeners that commit."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafka_cluster import KafkaCluster
from odradek import Admin, Consumer, NewTopic, Producer
from odradek.testing import make_unique_topic
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.errors import OdradekError
from odradek_client.structs import TopicPartition
from odradek_protocol.stored.offset_commit import decode_key, decode_value

pytestmark = pytest.mark.kafka

DEADLINE_S = 180.0
PARTITIONS = 3
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"heartbeat_interval_ms": 100},
    "cooperative": {
        "heartbeat_interval_ms": 100,
        "partition_assignment_strategy": "cooperative-sticky",
    },
    "consumer": {"group_protocol": "consumer"},
}


async def new_topic(cluster: KafkaCluster) -> str:
    name = make_unique_topic()
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS)])
    return name


async def read_all(bootstrap: str, topic: str, count: int) -> list[int]:
    """Read the values of `count` records from the beginning, and of any that follow immediately."""
    found: list[int] = []
    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        while len(found) < count:
            found += [int(record.value) for record in await consumer.poll(200)]
        return found + [int(record.value) for record in await consumer.poll(500)]


@pytest.fixture
async def hanging(kafka_cluster: KafkaCluster) -> AsyncIterator[list[Any]]:
    """A list for the nodes that the test suspends. The fixture resumes these nodes after the test,
    and waits until they are in the cluster again."""
    hung: list[Any] = []
    yield hung
    for node in hung:
        node.resume()
    async with Admin(bootstrap_servers=kafka_cluster.bootstrap) as admin:
        async with asyncio.timeout(DEADLINE_S):
            while len((await admin.describe_cluster()).brokers) < len(kafka_cluster.nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.2)


async def test_records_for_a_hung_node_are_written_once_by_the_next_leader(
    kafka_cluster: KafkaCluster, hanging: list[Any]
) -> None:
    """The producer sends the records to the next leader long before the request timeout of ten
    minutes."""
    topic, count = await new_topic(kafka_cluster), 600
    settings: dict[str, Any] = {"request_timeout_ms": 600_000, "delivery_timeout_ms": 700_000}
    async with (
        asyncio.timeout(DEADLINE_S),
        Producer(bootstrap_servers=kafka_cluster.bootstrap, **settings) as producer,
    ):
        deliveries = []
        for n in range(count):
            if n == count // 3:
                node = kafka_cluster.nodes[0]
                hanging.append(node)
                node.suspend()
            deliveries.append(await producer.send(topic, b"%d" % n, partition=n % PARTITIONS))
            await asyncio.sleep(0.005)
        await asyncio.gather(*deliveries)
        addresses = ",".join(each.address for each in kafka_cluster.nodes[1:])
        assert sorted(await read_all(addresses, topic, count)) == list(range(count))


class Committing(RebalanceListener):
    """A rebalance listener that commits all positions at each revocation."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.failures: list[OdradekError] = []

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        assert self.consumer is not None
        try:
            await self.consumer.commit()
        except OdradekError as error:
            self.failures.append(error)

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        pass


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_records_committed_by_listeners_are_not_read_again(
    kafka: KafkaCluster, protocol: str
) -> None:
    """Members join and leave. A member commits only when its partitions are revoked: in a
    rebalance, and when the member leaves."""
    topic, count = await new_topic(kafka), 300
    settings: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap,
        "group_id": f"g-{topic}",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "max_poll_records": 7,
        **PROTOCOLS[protocol],
    }
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for n in range(count):
            await producer.send(topic, b"%d" % n, partition=n % PARTITIONS)
    seen: list[int] = []
    listeners: list[Committing] = []

    async def member(records: int) -> None:
        """Run a member until the group has seen `records` records."""
        listener = Committing()
        listeners.append(listener)
        async with Consumer(**settings) as consumer:
            listener.consumer = consumer
            consumer.subscribe([topic], listener=listener)
            while len(seen) < records:
                seen.extend(int(record.value) for record in await consumer.poll(50))

    async with asyncio.timeout(DEADLINE_S):
        await member(50)
        await asyncio.gather(member(120), member(200))
        await asyncio.gather(member(250), member(count))
    assert [failure for each in listeners for failure in each.failures] == []
    assert sorted(seen) == list(range(count))


@pytest.fixture(params=["kafka", "kafka_cluster"])
def nodes(request: pytest.FixtureRequest) -> KafkaCluster:
    """A cluster of one node, and a cluster of three."""
    found: KafkaCluster = request.getfixturevalue(request.param)
    return found


async def commits_of(bootstrap: str, group_id: str) -> dict[TopicPartition, list[int]]:
    """Read every committed offset of a group, in the order of the coordinator's log."""
    found: dict[TopicPartition, list[int]] = {}
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        numbers = await consumer.partitions_for("__consumer_offsets")
        partitions = [TopicPartition("__consumer_offsets", n) for n in numbers]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(*partitions)
        while any([await consumer.position(each) < end for each, end in ends.items()]):
            for record in await consumer.poll(200):
                kind = int.from_bytes(record.key[:2], "big")
                if kind > 1 or record.value is None:
                    continue
                key = decode_key(record.key)
                if key.group == group_id:
                    committed = TopicPartition(key.topic, key.partition)
                    found.setdefault(committed, []).append(decode_value(record.value).offset)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_committed_offsets_never_go_back(nodes: KafkaCluster, protocol: str) -> None:
    """There are background and explicit commits, members that join and leave, and lost
    responses."""
    topic = await new_topic(nodes)
    group_id = f"g-{topic}"
    chance = random.Random(9)
    stop, committed = asyncio.Event(), 0
    settings: dict[str, Any] = {
        "bootstrap_servers": nodes.bootstrap,
        "group_id": group_id,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 20,
        "max_poll_records": 20,
        "retry_backoff_ms": 20,
        "reconnect_backoff_ms": 5,
        "reconnect_backoff_max_ms": 20,
        **PROTOCOLS[protocol],
    }

    def count(task: asyncio.Task[None]) -> None:
        nonlocal committed
        committed += not task.cancelled() and task.exception() is None

    async def member(life_s: float) -> None:
        async with Consumer(topic, **settings) as consumer:
            end, has_read = asyncio.get_running_loop().time() + life_s, False
            while asyncio.get_running_loop().time() < end:
                has_read |= bool(await consumer.poll(20))
                match chance.randrange(12):
                    case 0 | 1 if has_read:
                        consumer.commit_soon().add_done_callback(count)
                    case 2:
                        for node in (1, 2, 3):
                            consumer.network.close_connection(
                                node, "the test cuts it", "coordinator"
                            )
                    case 3:
                        with contextlib.suppress(OdradekError):
                            await consumer.commit(timeout_ms=chance.choice((5, 1_000)))

    async def succession() -> None:
        while not stop.is_set():
            await member(chance.uniform(1.0, 4.0))

    async with asyncio.timeout(DEADLINE_S):
        async with (
            Producer(bootstrap_servers=nodes.bootstrap, linger_ms=20) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(3):
                tasks.create_task(succession())
            while committed < 100:
                for partition in range(PARTITIONS):
                    await producer.send(topic, b"x", partition=partition)
                await asyncio.sleep(0.02)
            stop.set()
        commits = await commits_of(nodes.bootstrap, group_id)
    # With KIP-848 a member may leave before its first partition arrives (5 s between heartbeats).
    assert set(commits) <= {TopicPartition(topic, n) for n in range(PARTITIONS)}
    for where, offsets in commits.items():
        back = [pair for pair in itertools.pairwise(offsets) if pair[1] < pair[0]]
        assert back == [], where
    assert sum(len(set(each)) for each in commits.values()) > 10
