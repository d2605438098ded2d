"""Our share consumer with our broker, and with `--kafka` with Apache Kafka (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import odradek.sync
from kafka_cluster import KafkaCluster
from odradek import Admin, ConfigResource, NewTopic, Producer, Reject, Release, ShareConsumer
from odradek.errors import LockExpired
from odradek.testing import make_unique_topic

pytestmark = pytest.mark.full

DEADLINE_S = 90.0
#: The minimum lock duration in ms that Kafka allows.
LOCK_MS = 15_000


@pytest.fixture
async def topic(either: str) -> AsyncIterator[str]:
    """A topic with three partitions. The share group of the same name begins at the log starts."""
    name = make_unique_topic()
    async with asyncio.timeout(DEADLINE_S), Admin(bootstrap_servers=either) as admin:
        await admin.create_topics([NewTopic(name, 3)])
        await configure(admin, name, {"share.auto.offset.reset": "earliest"})
        yield name


async def configure(admin: Admin, group: str, settings: dict[str, str]) -> None:
    await admin.alter_configs({ConfigResource.group(group): settings})


async def produce(either: str, topic: str, count: int, **where: Any) -> None:
    async with Producer(bootstrap_servers=either) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, **where)
        await producer.flush()


def member(either: str, topic: str, **settings: Any) -> ShareConsumer:
    given = {"share_acknowledgement_mode": "explicit", **settings}
    return ShareConsumer(topic, bootstrap_servers=either, group_id=topic, **given)


async def test_every_record_is_accepted_released_or_rejected(either: str, topic: str) -> None:
    await produce(either, topic, 300)
    deliveries = dict[int, list[int]]()
    ended = set[int]()
    async with member(either, topic) as consumer:
        while len(ended) < 300:
            for record in await consumer.poll(1_000):
                number = int(record.value)
                deliveries.setdefault(number, []).append(record.delivery_count)
                async with record:
                    if number % 10 == 3 and record.delivery_count == 1:
                        raise Release("once more")
                    ended.add(number)
                    if number % 10 == 7:
                        raise Reject("poison")
        assert all(error is None for error in (await consumer.commit()).values())
        assert await consumer.poll(1_000) == []
    assert deliveries == {n: [1, 2] if n % 10 == 3 else [1] for n in range(300)}


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
async def test_members_share_the_records(either: str, topic: str, mode: str) -> None:
    await produce(either, topic, 400)
    seen: list[int] = []

    async def work(number: int) -> None:
        async with member(either, topic, share_acquire_mode=mode, max_poll_records=20) as consumer:
            while len(seen) < 400:
                records = await consumer.poll(500)
                assert len(records) <= 20
                for record in records:
                    async with record:
                        seen.append(int(record.value))
            await consumer.commit()

    await asyncio.gather(*(work(number) for number in range(3)))
    assert sorted(seen) == list(range(400))


async def test_closing_a_member_releases_its_records_at_once(either: str, topic: str) -> None:
    await produce(either, topic, 5, partition=0)
    async with member(either, topic) as first:
        held = await first.poll(10_000)
        assert len(held) == 5
        held[0].accept()
    async with member(either, topic) as second:
        again = await second.poll(10_000)
    assert [(record.offset, record.delivery_count) for record in again] == [
        (n, 2) for n in range(1, 5)
    ]


async def test_a_lock_expires_or_is_renewed(either: str, topic: str) -> None:
    await produce(either, topic, 2, partition=0)
    async with Admin(bootstrap_servers=either) as admin:
        await configure(
            admin,
            topic,
            {
                "share.record.lock.duration.ms": str(LOCK_MS),
                "share.renew.acknowledge.enable": "true",
            },
        )
    async with member(either, topic) as consumer:
        handled, left = await consumer.poll(10_000)
        async with handled:
            again = await consumer.getone()
            assert (again.offset, again.delivery_count) == (left.offset, 2)
            await again.accept()
            assert isinstance(left.accept().exception(), LockExpired)
        await consumer.commit()
        assert handled.error is None
        assert await consumer.poll(1_000) == []


async def test_a_refused_renewal_keeps_the_lock_and_is_logged(
    either: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await produce(either, topic, 1)
    async with Admin(bootstrap_servers=either) as admin:
        await configure(
            admin,
            topic,
            {
                "share.record.lock.duration.ms": str(LOCK_MS),
                "share.renew.acknowledge.enable": "false",
            },
        )
    async with member(either, topic) as consumer:
        record = await consumer.getone()
        async with record:
            while record.error is None and not caplog.messages:
                await consumer.poll(500)
        await consumer.commit()
        assert record.error is None
    assert "share.renew.acknowledge.enable" in caplog.messages[0]


async def test_each_record_has_its_own_result(either: str, topic: str) -> None:
    await produce(either, topic, 20, partition=0)
    async with member(either, topic) as consumer:
        records = await consumer.poll(10_000)
        while len(records) < 20:
            records += await consumer.poll(1_000)
        await asyncio.gather(records[4].accept(), records[11].accept())
        # Acknowledge two finished records a second time, which the broker refuses.
        for lost in (records[4], records[11]):
            consumer._fetcher._add(lost.node_id, lost.place, lost.offset, 1, 0)
        for record in records:
            if record.answer is None:
                record.accept()
        await consumer.commit()
        assert [record.error for record in records] == [None] * 20


async def test_aborted_and_compacted_records_are_gaps(either: str, topic: str) -> None:
    async with Admin(bootstrap_servers=either) as admin:
        await configure(admin, topic, {"share.isolation.level": "read_committed"})
    async with Producer(bootstrap_servers=either, transactional_id=topic) as producer:
        await producer.init_transactions()
        for number in range(6):
            try:
                async with producer.transaction():
                    await producer.send(topic, b"%d" % number, partition=0)
                    if number % 2:
                        raise KeyError
            except KeyError:
                pass
    seen: list[bytes] = []
    async with member(either, topic) as consumer:
        while len(seen) < 3:
            for record in await consumer.poll(1_000):
                async with record:
                    seen.append(record.value)
        await consumer.commit()
        assert await consumer.poll(1_000) == []
    assert sorted(seen) == [b"0", b"2", b"4"]


async def test_a_lost_connection_loses_locks_but_no_records(either: str, topic: str) -> None:
    await produce(either, topic, 10)
    seen = set[bytes]()
    async with member(either, topic) as consumer:
        first = await consumer.poll(10_000)
        for node_id in list(consumer.network.cluster.brokers):
            consumer.network.close_connection(node_id, "a test", "fetch")
        for record in first:
            record.accept()
        while len(seen) < 10:
            for record in await consumer.poll(1_000):
                async with record:
                    seen.add(record.value)
            seen |= {record.value for record in first if record.answer and not record.error}
        assert all(error is None for error in (await consumer.commit()).values())


async def test_an_unreadable_record_reaches_its_delivery_limit(either: str, topic: str) -> None:
    await produce(either, topic, 3, partition=0)
    failures, seen = 0, list[int]()

    def read(data: bytes) -> int:
        if data == b"1":
            raise ValueError("not this one")
        return int(data)

    async with member(either, topic, value_deserializer=read) as consumer:
        while failures < 5 or len(seen) < 2:
            try:
                for record in await consumer.poll(1_000):
                    async with record:
                        seen.append(record.value)
            except odradek.errors.UnreadableRecord as error:
                assert error.offsets == [1]
                failures += 1
        assert await consumer.poll(1_000) == []
    assert sorted(seen) == [0, 2]


async def test_a_share_consumer_in_a_consumer_group_is_an_error(either: str, topic: str) -> None:
    name = make_unique_topic()
    async with (
        odradek.Consumer(topic, bootstrap_servers=either, group_id=name) as other,
        ShareConsumer(topic, bootstrap_servers=either, group_id=name) as consumer,
    ):
        await other.poll(5_000)
        with pytest.raises(odradek.errors.InvalidGroup, match="another kind"):
            while True:
                await consumer.poll(1_000)


async def test_the_blocking_share_consumer_reads_every_record(either: str, topic: str) -> None:
    await produce(either, topic, 50)

    def work() -> list[int]:
        seen = list[int]()
        with odradek.sync.ShareConsumer(
            topic, bootstrap_servers=either, group_id=topic
        ) as consumer:
            for record in consumer:
                with record:
                    seen.append(int(record.value))
                if len(seen) == 50:
                    break
            assert all(error is None for error in consumer.commit().values())
            assert consumer.poll(500) == []
        return seen

    assert sorted(await asyncio.to_thread(work)) == list(range(50))


@pytest.mark.kafka
async def test_no_record_is_lost_when_a_leader_dies(tmp_path: Path) -> None:
    settings = {
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
        "share.coordinator.state.topic.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
    }
    accepted, unknown, killed = set[int](), set[int](), False
    with KafkaCluster(tmp_path, 3, settings) as cluster:
        name = make_unique_topic()
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic(name, 3)])
            await configure(admin, name, {"share.auto.offset.reset": "earliest"})
        await produce(cluster.bootstrap, name, 90)
        async with (
            asyncio.timeout(DEADLINE_S),
            member(cluster.bootstrap, name, max_poll_records=7) as consumer,
        ):
            while True:
                records = await consumer.poll(2_000)
                if not records and len(accepted | unknown) == 90:
                    break
                numbers = [int(record.value) for record in records]
                assert accepted.isdisjoint(numbers), "accepted, and delivered again"
                if len(accepted) > 20 and not killed:
                    killed = True
                    await asyncio.to_thread(cluster.nodes[records[0].node_id - 1].kill)
                results = [record.accept() for record in records]
                for number, result in zip(numbers, results, strict=True):
                    try:
                        await result
                    except odradek.OdradekError:
                        unknown.add(number)
                    else:
                        accepted.add(number)
    assert killed
