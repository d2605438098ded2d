"""Compacted topics while they are written, read and cleaned: keys, tombstones, transactions, and the broker's
own topics with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

from odradek.simulation.checkers.latest import (
    Fate,
    Found,
    Write,
    Writes,
    check_latest,
    check_offsets_given_once,
    check_uncompacted,
)
from odradek.simulation.workloads.base import ALL_FAULTS
from odradek.simulation.workloads.clients import keep_running
from odradek.simulation.world import World
from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.batch import Delivery
from odradek_client.producer.producer import Producer
from odradek_client.structs import ConsumerRecord, TopicPartition

_TOPIC = "state"
_PARTITIONS = 2
_KEYS = 3
_WRITES_MAX = 60
_TRANSACTIONS_MAX = 8
_READS_MAX = 10
_NUMBER = "number"
_SETTLE_MS = 1_500
#: When the cleaner is first asked: at once, or late (None: in the end), so that faults meet logs that nothing
#: has ever compacted: of those every acknowledged write is there.
_FIRST_CLEANING_MS = (100, 1_500, None)
#: As long as a transaction may outlive its client: a wall clock that was set back counts.
_END_MS = 120_000


class CompactionWorkload:
    """Writers of keys of their own, with and without transactions, and readers with a group."""

    name: ClassVar[str] = "compaction"
    settings: ClassVar[dict[str, object]] = {
        # The workload alone says when.
        "log.cleaner.backoff.ms": 86_400_000,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleaner.delete.retention.ms": 300,
        "log.segment.delete.delay.ms": 500,
        "offsets.topic.segment.bytes": 1_000,
        "transaction.state.log.segment.bytes": 1_000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._written: dict[str, Writes] = {}
        self._cleaned = False
        self._read: list[tuple[str, dict[str, list[tuple[int, str, int]]]]] = []

    async def prepare(self) -> None:
        """One topic, with small segments."""
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": self._random.choice(("300", "800", "2000")),
        }
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, configs=configs)])

    async def work(self) -> None:
        """All kinds at once, while the cleaner is asked every tenth of a second."""
        cleaning = asyncio.ensure_future(self._keep_cleaning())
        await asyncio.gather(
            keep_running(self._world, "writer", 1, self._write),
            keep_running(self._world, "transactions", 2, self._transact),
            keep_running(self._world, "reader", 1, self._read_on),
        )
        cleaning.cancel()

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

    def _keys(self, name: str) -> list[str]:
        """Keys of a writer's own, each in a partition."""
        keys = [f"{name}/{number}" for number in range(_KEYS)]
        for key in keys:
            place = f"{_TOPIC}-{self._random.randrange(_PARTITIONS)}"
            self._written[key] = Writes(place)
        return keys

    async def _send(self, producer: Producer, key: str) -> tuple[Write, Delivery]:
        random = self._random
        write = self._written[key].add(tombstone=random.random() < 0.25)
        delivery = await producer.send(
            _TOPIC,
            None if write.tombstone else b"x" * random.choice((10, 150)),
            key=key.encode(),
            partition=int(self._written[key].place.rpartition("-")[2]),
            headers=[(_NUMBER, b"%d" % write.number)],
        )
        return write, delivery

    async def _write(self, name: str) -> None:
        world, random = self._world, self._random
        keys = self._keys(name)
        waiting = []
        async with Producer(
            bootstrap_servers=world.broker.bootstrap,
            batch_size=random.choice((100, 600)),
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
            client_id=name,
        ) as producer:
            for _ in range(random.randint(1, _WRITES_MAX)):
                try:
                    write, delivery = await self._send(producer, random.choice(keys))
                except OdradekError as problem:
                    world.note(name, f"a write was not taken: {problem}")
                    continue
                waiting.append(asyncio.ensure_future(self._wait(write, delivery)))
                await world.sleep(random.choice((1, 10, 50)))
            await asyncio.gather(*waiting)

    async def _wait(self, write: Write, delivery: Delivery) -> None:
        try:
            write.offset = (await delivery).offset
        except OdradekError:
            return
        write.fate = Fate.ACKNOWLEDGED

    async def _transact(self, name: str) -> None:
        world, random = self._world, self._random
        keys = self._keys(name)
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
                    await self._transact_once(producer, keys)
                    await world.sleep(random.choice((1, 20, 100)))
                await self._replace_in_vain(producer, keys)
        except OdradekError as problem:
            world.note(name, f"gives up: {problem}")

    async def _transact_once(self, producer: Producer, keys: list[str]) -> None:
        random = self._random
        await producer.begin_transaction()
        writes: list[Write] = []
        for _ in range(random.randint(1, 4)):
            write, delivery = await self._send(producer, random.choice(keys))
            writes.append(write)
            write.offset = (await delivery).offset
            await self._world.sleep(random.choice((0, 5, 50)))
        if random.random() < 0.4:
            # Whether the abort comes through or the broker aborts it in time: it is over.
            for write in writes:
                write.fate = Fate.ABORTED
            await producer.abort_transaction()
            return
        await producer.commit_transaction()
        for write in writes:
            write.fate = Fate.ACKNOWLEDGED

    async def _replace_in_vain(self, producer: Producer, keys: list[str]) -> None:
        """What is open for long, and comes to nothing, must leave what it would have replaced."""
        await producer.begin_transaction()
        for key in keys:
            write, delivery = await self._send(producer, key)
            write.fate = Fate.ABORTED
            await delivery
        await self._world.sleep(self._random.choice((50, 500, 1_500)))
        await producer.abort_transaction()

    async def _read_on(self, name: str) -> None:
        world, random = self._world, self._random
        found: dict[str, list[tuple[int, str, int]]] = {}
        self._read.append((name, found))
        places = [TopicPartition(_TOPIC, index) for index in range(_PARTITIONS)]
        async with Consumer(
            bootstrap_servers=world.broker.bootstrap,
            group_id="readers",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=2_000,
            client_id=name,
        ) as consumer:
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            for _ in range(random.randint(1, _READS_MAX)):
                try:
                    for record in await consumer.poll(timeout_ms=200, max_records=50):
                        _note(found, record)
                    await consumer.commit()
                except OdradekError as problem:
                    world.note(name, f"cannot read: {problem}")
                await world.sleep(random.choice((1, 50, 300)))

    async def _read_whole(self) -> dict[str, list[tuple[int, str, int]]]:
        found: dict[str, list[tuple[int, str, int]]] = {}
        places = [TopicPartition(_TOPIC, index) for index in range(_PARTITIONS)]
        async with Consumer(
            bootstrap_servers=self._world.broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            ends = await consumer.end_offsets(*places)
            while any([await consumer.position(place) < ends[place] for place in places]):
                for record in await consumer.poll(timeout_ms=1_000):
                    _note(found, record)
        return found

    # --- The end ---

    async def check(self) -> Iterator[str]:
        """As things are when all has ended, and again when the cleaner has been everywhere."""
        world = self._world
        until_ms = world.now_ms + _END_MS
        while world.now_ms < until_ms and self._transactions_open():
            await world.sleep(500)
        problems: list[str] = []
        if not self._cleaned:
            problems += check_uncompacted(self._written, await self._read_whole())
        for _ in range(2):
            problems += check_latest(self._written, await self._read_whole(), whole=True)
            await world.sleep(_SETTLE_MS)
            self._clean()
            await world.sleep(_SETTLE_MS)
        for name, found in self._read:
            seen: dict[str, Found] = dict(found)
            problems += (
                f"{name}: {text}" for text in check_latest(self._written, seen, whole=False)
            )
        problems += check_offsets_given_once(self._written)
        uncleanable = world.broker.server.node.cleaner.statistics.uncleanable
        problems += (f"{topic}-{index}: {why}" for (topic, index), why in uncleanable.items())
        return iter(problems)

    def _transactions_open(self) -> bool:
        logs = self._world.broker.server.node.logs
        return any(
            log.last_stable_offset < log.high_watermark for log in logs if log.topic == _TOPIC
        )


def _note(found: dict[str, list[tuple[int, str, int]]], record: ConsumerRecord) -> None:
    number = int(dict(record.headers)[_NUMBER] or b"-1")
    key = (record.key or b"").decode()
    found.setdefault(f"{record.topic}-{record.partition}", []).append((record.offset, key, number))
