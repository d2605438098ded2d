"""Compacted topics that are written, read and cleaned: keys, tombstones, transactions, and internal
topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tests.sim.checkers.deleted import Deletions
from tests.sim.checkers.latest import (
    Fate,
    Write,
    Writes,
    check_latest,
    check_offsets_given_once,
    check_uncompacted,
)
from tests.sim.workloads.base import ALL_FAULTS, OF_SMALL_SEGMENTS
from tests.sim.workloads.clients import keep_running

from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.batch import Delivery
from odradek_client.producer.producer import Producer
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_testkit.simulation.world import World

PARTITIONS = 2
_KEYS = 3
_WRITES_MAX = 60
_TRANSACTIONS_MAX = 8
_READS_MAX = 10
_NUMBER = "number"
_SETTLE_MS = 1_500
#: The time of the first cleaning. None means at the end, so that faults meet logs that were never
#: compacted and have every acknowledged write.
_FIRST_CLEANING_MS = (100, 1_500, None)
#: The time for which a transaction may stay open after its client's end. The time is long because
#: the wall clock may be set back.
_END_MS = 120_000


@dataclass(slots=True)
class CompactedTopic:
    """The known state of a compacted topic's name.

    `life`: the number of the present topic among those that had this name, from 1 on; 0 while it is
    unknown which topic has the name, or if there is one. `removals`: the number of acknowledged
    deletions of the topic. `deletions`: the log starts of the present topic.
    """

    name: str
    life: int = 1
    removals: int = 0
    deletions: Deletions = field(default_factory=Deletions)

    @property
    def places(self) -> list[TopicPartition]:
        """The topic's partitions."""
        return [TopicPartition(self.name, index) for index in range(PARTITIONS)]


@dataclass(slots=True)
class _Reading:
    """The records that one reader has read from one topic.

    `found`: by partition, (offset, key, number of the write).
    """

    reader: str
    found: dict[str, list[tuple[int, str, int]]] = field(default_factory=dict)


class CompactionWorkload:
    """Writers with keys of their own, with and without transactions, and readers with a group."""

    name: ClassVar[str] = "compaction"
    #: The topic's settings about removing records.
    policy: ClassVar[Mapping[str, str]] = {"cleanup.policy": "compact"}
    settings: ClassVar[dict[str, object]] = {
        # The workload starts each cleaning itself.
        "log.cleaner.backoff.ms": 86_400_000,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleaner.delete.retention.ms": 300,
        "log.segment.delete.delay.ms": 500,
        "offsets.topic.segment.bytes": 1_000,
        "transaction.state.log.segment.bytes": 1_000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS + OF_SMALL_SEGMENTS * 3

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._written: dict[str, Writes] = {}
        self._topic = CompactedTopic("state")
        self._cleaned = False
        self._readings: list[_Reading] = []
        self._problems: list[str] = []

    async def prepare(self) -> None:
        """Create one topic, with small segments."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await self._create(admin, self._topic)

    async def _create(self, admin: Admin, topic: CompactedTopic) -> None:
        configs = {**self.policy, "segment.bytes": self._random.choice(("300", "800", "2000"))}
        await admin.create_topics([NewTopic(topic.name, PARTITIONS, configs=configs)])

    async def work(self) -> None:
        """Run all kinds of clients at the same time, and call the cleaner every 100 ms."""
        cleaning = asyncio.ensure_future(self._keep_cleaning())
        await asyncio.gather(
            keep_running(self._world, "writer", 1, self._write),
            keep_running(self._world, "transactions", 2, self._transact),
            keep_running(self._world, "reader", 1, self._read_on),
            self._administer(),
        )
        cleaning.cancel()

    async def _administer(self) -> None:
        """Do nothing; derived workloads change the topic here while clients use it."""

    async def _keep_cleaning(self) -> None:
        first_ms = self._random.choice(_FIRST_CLEANING_MS)
        if first_ms is None:
            return
        await self._world.sleep(first_ms)
        while True:
            self._clean()
            await self._world.sleep(100)

    def _clean(self) -> None:
        self._cleaned = True
        broker = self._world.broker
        if broker.running and hasattr(broker.server, "node"):
            cleaner = broker.server.node.cleaner
            cleaner._next_look_ms = 0.0
            broker.process.call(cleaner.tick)

    # --- Clients ---

    def _keys(self, name: str, topic: CompactedTopic) -> list[str]:
        """Create new keys for one writer, each with a partition."""
        keys = [f"{name}/{number}" for number in range(_KEYS)]
        for key in keys:
            place = f"{topic.name}-{self._random.randrange(PARTITIONS)}"
            self._written[key] = Writes(place)
        return keys

    async def _send(
        self, producer: Producer, topic: CompactedTopic, key: str
    ) -> tuple[Write, Delivery]:
        random = self._random
        write = self._written[key].add(tombstone=random.random() < 0.25)
        write.life = topic.life
        try:
            delivery = await producer.send(
                topic.name,
                None if write.tombstone else b"x" * random.choice((10, 150)),
                key=key.encode(),
                partition=int(self._written[key].place.rpartition("-")[2]),
                headers=[(_NUMBER, b"%d" % write.number)],
            )
        except OdradekError:
            write.over = True
            raise
        return write, delivery

    async def _write(self, name: str) -> None:
        world, random = self._world, self._random
        topic = self._topic
        keys = self._keys(name, topic)
        waiting = []
        async with Producer(
            bootstrap_servers=world.broker.bootstrap,
            batch_size=random.choice((100, 600)),
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
            client_id=name,
        ) as producer:
            for _ in range(random.randint(1, _WRITES_MAX)):
                if topic is not self._topic:
                    break
                try:
                    write, delivery = await self._send(producer, topic, random.choice(keys))
                except OdradekError as problem:
                    world.note(name, f"a write was not taken: {problem}")
                    continue
                waiting.append(asyncio.ensure_future(self._wait(topic, write, delivery)))
                await world.sleep(random.choice((1, 10, 50)))
            await asyncio.gather(*waiting)

    async def _wait(self, topic: CompactedTopic, write: Write, delivery: Delivery) -> None:
        try:
            self._is_over(topic, write, (await delivery).offset)
        except OdradekError:
            self._is_over(topic, write, -1)
            return
        self._acknowledge(topic, [write])

    def _is_over(self, topic: CompactedTopic, write: Write, offset: int) -> None:
        """Called when the producer will not send a write again."""
        write.over = True
        if topic.life and write.life == topic.life:
            write.offset = offset

    def _acknowledge(self, topic: CompactedTopic, writes: list[Write]) -> None:
        """Called when writes are acknowledged, unless their topic is or may be deleted."""
        for write in writes:
            if topic.life and write.life == topic.life:
                write.fate = Fate.ACKNOWLEDGED

    async def _transact(self, name: str) -> None:
        world, random = self._world, self._random
        topic = self._topic
        keys = self._keys(name, topic)
        producer = Producer(
            bootstrap_servers=world.broker.bootstrap,
            transactional_id=f"t{random.randrange(3)}-{name}",
            transaction_timeout_ms=3_000,
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
            max_block_ms=60_000,
            client_id=name,
        )
        try:
            async with producer:
                await producer.init_transactions()
                for _ in range(random.randint(1, _TRANSACTIONS_MAX)):
                    if topic is not self._topic:
                        return
                    await self._transact_once(producer, topic, keys)
                    await world.sleep(random.choice((1, 20, 100)))
                await self._replace_in_vain(producer, topic, keys)
        except OdradekError as problem:
            world.note(name, f"gives up: {problem}")

    async def _transact_once(
        self, producer: Producer, topic: CompactedTopic, keys: list[str]
    ) -> None:
        random = self._random
        await producer.begin_transaction()
        writes: list[Write] = []
        for _ in range(random.randint(1, 4)):
            write, delivery = await self._send(producer, topic, random.choice(keys))
            writes.append(write)
            self._is_over(topic, write, (await delivery).offset)
            await self._world.sleep(random.choice((0, 5, 50)))
        if random.random() < 0.4:
            # The transaction ends either by the abort or by the broker's timeout.
            for write in writes:
                write.fate = Fate.ABORTED
            await producer.abort_transaction()
            return
        await producer.commit_transaction()
        self._acknowledge(topic, writes)

    async def _replace_in_vain(
        self, producer: Producer, topic: CompactedTopic, keys: list[str]
    ) -> None:
        """Leave a transaction open for long, and abort it: the records that it would have replaced
        must stay."""
        await producer.begin_transaction()
        for key in keys:
            write, delivery = await self._send(producer, topic, key)
            write.fate = Fate.ABORTED
            await delivery
        await self._world.sleep(self._random.choice((50, 500, 1_500)))
        await producer.abort_transaction()

    async def _read_on(self, name: str) -> None:
        world, random = self._world, self._random
        topic = self._topic
        life, removals = topic.life, topic.removals
        deleted = topic.deletions.acknowledged()
        reading = _Reading(name)
        self._readings.append(reading)
        async with Consumer(
            bootstrap_servers=world.broker.bootstrap,
            group_id="readers",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=2_000,
            client_id=name,
        ) as consumer:
            consumer.assign(topic.places)
            await consumer.seek_to_beginning(*topic.places)
            for _ in range(random.randint(1, _READS_MAX)):
                try:
                    records = await consumer.poll(timeout_ms=200, max_records=50)
                    if not life or topic.life != life:
                        # The records may belong to an earlier topic of that name, or to a later
                        # one.
                        return
                    for record in records:
                        self._note(reading, record, removals)
                        place = f"{record.topic}-{record.partition}"
                        topic.deletions.read(name, [(place, record.offset, record.value)], deleted)
                    await consumer.commit()
                except OdradekError as problem:
                    world.note(name, f"cannot read: {problem}")
                await world.sleep(random.choice((1, 50, 300)))

    def _note(self, reading: _Reading, record: ConsumerRecord, removals: int) -> None:
        """Note a record that a reader got.

        `removals`: the number of acknowledged deletions of the topic when the reader began.
        """
        number = int(dict(record.headers)[_NUMBER] or b"-1")
        key = (record.key or b"").decode()
        place = f"{record.topic}-{record.partition}"
        reading.found.setdefault(place, []).append((record.offset, key, number))
        writes = self._written[key].writes if key in self._written else []
        if number < len(writes) and 0 < writes[number].deletion <= removals:
            self._problems.append(
                f"{reading.reader} read {key}: write {number} at {place} offset {record.offset} is of a"
                " deleted topic"
            )

    async def _read_whole(self) -> _Reading:
        topic = self._topic
        reading = _Reading("last reader")
        deleted = topic.deletions.acknowledged()
        async with Consumer(
            bootstrap_servers=self._world.broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.assign(topic.places)
            await consumer.seek_to_beginning(*topic.places)
            ends = await consumer.end_offsets(*topic.places)
            while any([await consumer.position(place) < ends[place] for place in topic.places]):
                for record in await consumer.poll(timeout_ms=1_000):
                    self._note(reading, record, topic.removals)
        for place, found in reading.found.items():
            records = [(place, offset, b"") for offset, _, _ in found]
            topic.deletions.read(reading.reader, records, deleted)
        return reading

    # --- The end ---

    async def check(self) -> Iterator[str]:
        """Check the state at the end, and again after a cleaning."""
        world = self._world
        until_ms = world.now_ms + _END_MS
        while world.now_ms < until_ms and self._transactions_open():
            await world.sleep(500)
        topic = self._topic
        starts = topic.deletions.highest_starts
        written = {
            key: writes
            for key, writes in self._written.items()
            if writes.place.rpartition("-")[0] == topic.name
        }
        problems = self._problems
        if topic.life and not self._cleaned:
            found = (await self._read_whole()).found
            problems += check_uncompacted(written, found, starts)
        for _ in range(2):
            if topic.life:
                found = (await self._read_whole()).found
                problems += check_latest(written, found, starts, whole=True)
            await world.sleep(_SETTLE_MS)
            self._clean()
            await world.sleep(_SETTLE_MS)
        for reading in self._readings:
            problems += (
                f"{reading.reader}: {text}"
                for text in check_latest(self._written, reading.found, whole=False)
            )
        problems += check_offsets_given_once(self._written)
        problems += topic.deletions.problems
        uncleanable = world.broker.server.node.cleaner.statistics.uncleanable
        problems += (f"{name}-{index}: {why}" for (name, index), why in uncleanable.items())
        return iter(problems)

    def _transactions_open(self) -> bool:
        topic = self._topic.name
        logs = self._world.broker.server.node.logs
        return any(
            log.last_stable_offset < log.high_watermark for log in logs if log.topic == topic
        )
