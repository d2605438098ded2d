"""Transactional producers that are never replaced by others, and so must never be fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

from tests.sim.checkers.attempts import Attempt
from tests.sim.checkers.epochs import EpochChecker
from tests.sim.workloads.clients import keep_running
from tests.sim.workloads.transactions import SETTINGS, Sink

from odradek_client.admin import Admin
from odradek_client.errors import Abortable, ProducerFenced, TransactionTimeout
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from odradek_testkit.simulation.world import World

_SINK = "entries"
_GROUP = "positions"
_PRODUCERS = 2
#: The transaction timeout is longer than a run with all its faults, so that no transaction times
#: out while its producer lives.
_TRANSACTION_TIMEOUT_MS = 60_000
#: The duration of a sync in ms: so long that the next EndTxn may arrive before the markers of a
#: commit are written.
_SLOW_SYNC_MS = (20.0, 60.0)


class LoneProducersWorkload:
    """Producers that have a transactional id each and begin each transaction immediately after the
    last one."""

    name: ClassVar[str] = "lone-producers"
    settings: ClassVar[dict[str, object]] = SETTINGS
    #: No fault sets the wall clock, because transactions would then time out too early.
    faults: ClassVar[tuple[str, ...]] = (
        "kill-broker",
        "cut-power",
        "cut-power-behind-an-answer",
        "lost-answers",
        "refused-requests",
        "stop-broker",
        "cut-connections",
        "bad-weather",
        "slow-disk",
    )

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._sink = Sink(world, _SINK, (_GROUP,))
        self._epochs = EpochChecker()

    async def prepare(self) -> None:
        """Create the topic to write to."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await self._sink.create(admin)

    async def work(self) -> None:
        """Run producers and a reader until the faults are over."""
        await asyncio.gather(
            self._sink.read(), keep_running(self._world, "producer", _PRODUCERS, self._produce)
        )

    async def _produce(self, name: str) -> None:
        try:
            async with Producer(
                bootstrap_servers=self._world.broker.bootstrap,
                client_id=name,
                transactional_id=name,
                transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
                request_timeout_ms=2_000,
                delivery_timeout_ms=40_000,
                max_block_ms=50_000,
            ) as producer:
                await producer.init_transactions()
                while not self._world.faults_over.is_set():
                    await self._transaction(name, producer)
        except ProducerFenced as problem:
            self._world.violated("fencing", f"{name}, whom nobody has replaced: {problem}")

    async def _transaction(self, name: str, producer: Producer) -> None:
        random = self._random
        attempt = self._sink.begin(name)
        try:
            await producer.begin_transaction()
            # A transaction that is aborted immediately has little to undo, and is aborted while the
            # markers of the commit before it are in flight.
            if random.random() < 0.2:
                await self._abort_at_once(producer)
                return
            for number in range(random.randint(1, 3)):
                value = f"{attempt.name}/{number}".encode()
                attempt.values.append(value)
                await producer.send(_SINK, value, partition=self._sink.place(random))
            if random.random() < 0.3:
                at = {TopicPartition(_SINK, 0): len(self._sink.attempts)}
                await producer.send_offsets_to_transaction(at, _GROUP)
            await self._world.sleep(random.choice((0, 0, 20, 200)))
            if random.random() < 0.25:
                await producer.abort_transaction()
                return
            manager = producer.transaction_manager
            assert manager is not None
            if manager.is_v2:
                for problem in self._epochs.commits(name, manager.identity):
                    self._world.violated("epochs", problem)
            if random.random() < 0.9:
                await self._commit(name, producer, attempt)
                return
            with self._world.slow_disk(*_SLOW_SYNC_MS):
                await self._commit(name, producer, attempt)
                await producer.begin_transaction()
                await self._abort_at_once(producer)
        except Abortable as problem:
            self._world.note(name, f"must abort {attempt}: {problem}")
            await producer.abort_transaction()

    async def _commit(self, name: str, producer: Producer, attempt: Attempt) -> None:
        attempt.may_commit = True
        while not attempt.committed:
            try:
                await producer.commit_transaction()
                attempt.committed = True
            except TransactionTimeout as problem:
                self._world.note(name, f"waits on: {problem}")
        self._world.note(name, f"has committed {attempt}")

    async def _abort_at_once(self, producer: Producer) -> None:
        """Abort while offsets are being added to the transaction."""
        sending = asyncio.ensure_future(
            producer.send_offsets_to_transaction({TopicPartition(_SINK, 0): 0}, _GROUP)
        )
        await self._world.sleep(self._random.choice((0, 2, 5, 10)))
        await producer.abort_transaction()
        await asyncio.gather(sending, return_exceptions=True)

    async def check(self) -> Iterator[str]:
        """Check that each transaction is whole or absent, and none is open."""
        return iter([*self._sink.check(await self._sink.committed())])
