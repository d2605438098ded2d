"""Transactional copy: read a topic, write another, commit the offsets, all in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

from tests.sim.checkers.attempts import Attempt
from tests.sim.checkers.exactly_once import check_copied
from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.transactions import (
    SETTINGS,
    TRANSACTION_TIMEOUT_MS,
    Sink,
    follow,
)

from odradek_client.admin import Admin, NewTopic
from odradek_client.config.producer import ProducerConfig
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import Abortable, OdradekError, TransactionTimeout
from odradek_client.network.client import NetworkClient
from odradek_client.producer.producer import Producer, producer_on_network
from odradek_client.structs import ConsumerGroupMetadata, ConsumerRecord, TopicPartition
from odradek_testkit.simulation.world import World

_SOURCE = "orders"
_SINK = "copies"
_GROUP = "copiers"
_PARTITIONS = 2
_RECORDS = 40
_SEATS = 2
_SOURCES = [TopicPartition(_SOURCE, index) for index in range(_PARTITIONS)]


class TransactionalCopyWorkload:
    """Seats, each with a transactional id, and a client in each seat. A client may die, or be
    replaced while it still runs.

    The seed chooses between fixed partitions for each seat, a classic group that assigns them, and
    a consumer group that assigns them.
    """

    name: ClassVar[str] = "transactional-copy"
    settings: ClassVar[dict[str, object]] = {
        **SETTINGS,
        "group.initial.rebalance.delay.ms": 50,
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.min.session.timeout.ms": 6_000,
        "group.consumer.heartbeat.interval.ms": 1_000,
        "group.consumer.min.heartbeat.interval.ms": 1_000,
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS
    #: The level of `transaction.version` that producers see; None for the broker's own.
    feature_level: ClassVar[int | None] = None

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.chance("workload")
        self.assignment = self.random.choice(("by seat", "classic", "consumer"))
        self._sink = Sink(world, _SINK, (_GROUP,))
        self._started = 0
        self._all_copied = asyncio.Event()

    async def prepare(self) -> None:
        """Create a source with records, and a sink."""
        bootstrap = self.world.broker.bootstrap
        self.world.note("workload", f"partitions are assigned {self.assignment}")
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(_SOURCE, _PARTITIONS)])
            await self._sink.create(admin)
        async with Producer(bootstrap_servers=bootstrap, batch_size=300) as producer:
            for number in range(_RECORDS):
                for place in _SOURCES:
                    value = f"{place.partition}/{number}".encode()
                    await producer.send(_SOURCE, value, partition=place.partition)

    async def work(self) -> None:
        """Run clients until all records are copied."""
        await asyncio.gather(self._sink.read(), *(self._seat(number) for number in range(_SEATS)))

    async def _seat(self, seat: int) -> None:
        sitting: list[asyncio.Task[None]] = []
        while not self._all_copied.is_set():
            self._started += 1
            name = f"copier-{seat}-{self._started}"
            sitting.append(asyncio.ensure_future(follow(self.world, name, self._main(name, seat))))
            # A client that still runs after this time is replaced, and becomes a zombie.
            patience_ms = self.random.choice((None, None, 300, 1_500))
            if self.world.faults_over.is_set():
                patience_ms = None
            timeout_s = None if patience_ms is None else patience_ms / 1000
            await asyncio.wait([sitting[-1]], timeout=timeout_s)
            await self.world.sleep(self.random.choice((20, 200)))
        await asyncio.gather(*sitting)

    async def _main(self, name: str, seat: int) -> None:
        config: dict[str, Any] = {
            "bootstrap_servers": self.world.broker.bootstrap,
            "client_id": name,
            "request_timeout_ms": 2_000,
        }
        produces = config | {
            "transactional_id": f"copy-{seat}",
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            "delivery_timeout_ms": 20_000,
            "max_block_ms": 30_000,
            "linger_ms": self.random.choice((0, 5)),
        }
        consumes = config | {
            "group_id": _GROUP,
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
        if self.assignment == "consumer":
            consumes["group_protocol"] = "consumer"
        else:
            consumes |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
        if self.feature_level is None:
            network, making = None, Producer(**produces)
        else:
            network = _OldNetwork(self.feature_level, ProducerConfig.from_settings(produces))
            making = producer_on_network(network, **produces)
        reading = Consumer(**consumes)
        self.world.note(name, "starts")
        try:
            async with making as producer:
                await producer.init_transactions()
                async with reading as consumer:
                    if self.assignment == "by seat":
                        consumer.assign([_SOURCES[seat]])
                    else:
                        consumer.subscribe([_SOURCE])
                    copier = _Copier(self, name, producer, consumer)
                    await copier.copy()
        except OdradekError as problem:
            self.world.note(name, f"ends: {type(problem).__name__}: {problem}")
        else:
            self.world.note(name, "ends")
        finally:
            if network is not None:
                await network.close()

    async def check(self) -> Iterator[str]:
        """Check that every record of the source is once in the sink, and that the group's offsets
        are at the end of the source."""
        bootstrap = self.world.broker.bootstrap
        committed = await self._sink.committed()
        source = await read_all(bootstrap, _SOURCE, _PARTITIONS)
        async with Admin(bootstrap_servers=bootstrap) as admin:
            offsets = await admin.list_group_offsets(_GROUP)
        positions = {
            f"{place.topic}-{place.partition}": held.offset
            for place, held in offsets.items()
            if held
        }
        copied = [
            value.partition(b" ")[0] for records in committed.values() for _, value in records
        ]
        problems = list(self._sink.check(committed))
        return iter([*problems, *check_copied(source, copied, positions)])


class TransactionalCopyV1Workload(TransactionalCopyWorkload):
    """The workload `transactional-copy` with producers that use version 1 of transactions."""

    name: ClassVar[str] = "transactional-copy-v1"
    feature_level: ClassVar[int | None] = 0


class _OldNetwork(NetworkClient):
    """A network that reports a lower feature level than the broker."""

    def __init__(self, level: int, config: ProducerConfig) -> None:
        super().__init__(config)
        self._level = level

    def feature_level(self, name: str) -> int:
        return self._level


class _Copier:
    """One instance: producer and consumer, and the loop of transactions."""

    def __init__(
        self,
        workload: TransactionalCopyWorkload,
        name: str,
        producer: Producer,
        consumer: Consumer,
    ) -> None:
        self.world: World = workload.world
        self.random: Random = workload.random
        self._sink: Sink = workload._sink
        self._all_copied: asyncio.Event = workload._all_copied
        self._name = name
        self._producer = producer
        self._consumer = consumer
        self._in_group = workload.assignment != "by seat"

    async def copy(self) -> None:
        while not self._all_copied.is_set():
            records = await self._consumer.poll(300, max_records=self.random.randint(1, 12))
            group: ConsumerGroupMetadata | str = _GROUP
            if self._in_group:
                group = self._consumer.group_metadata()
            if records:
                await self._transaction(records, group)
            elif await self._is_all_copied():
                self._all_copied.set()

    async def _is_all_copied(self) -> bool:
        for place in _SOURCES:
            held = await self._consumer.committed(place)
            if held is None or held.offset < _RECORDS:
                return False
        return True

    async def _transaction(
        self, records: list[ConsumerRecord], group: ConsumerGroupMetadata | str
    ) -> None:
        attempt = self._sink.begin(self._name)
        producer = self._producer
        try:
            await producer.begin_transaction()
            await self._write(attempt, records)
            ends = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
            await producer.send_offsets_to_transaction(ends, group)
            await self._pause()
            if self.random.random() < 0.1:
                self.world.note(self._name, f"aborts {attempt}")
                await producer.abort_transaction()
                await self._rewind()
                return
            attempt.may_commit = True
            while not attempt.committed:
                try:
                    await producer.commit_transaction()
                    attempt.committed = True
                except TransactionTimeout as problem:
                    self.world.note(self._name, f"waits on: {problem}")
            self.world.note(self._name, f"has committed {attempt}")
        except Abortable as problem:
            self.world.note(self._name, f"must abort {attempt}: {problem}")
            await producer.abort_transaction()
            await self._rewind()

    async def _write(self, attempt: Attempt, records: list[ConsumerRecord]) -> None:
        for record in records:
            value = b"%s %s" % (record.value, attempt.name.encode())
            attempt.values.append(value)
            partition = self._sink.place(self.random)
            await self._producer.send(_SINK, value, partition=partition)
            if self.random.random() < 0.3:
                await self._pause()

    async def _pause(self) -> None:
        await self.world.sleep(self.random.choice((0, 1, 20, 200)))

    async def _rewind(self) -> None:
        """Seek to the last committed positions."""
        for place in list(self._consumer.assignment()):
            held = await self._consumer.committed(place)
            if place in self._consumer.assignment():
                self._consumer.seek(place, 0 if held is None else held.offset)
