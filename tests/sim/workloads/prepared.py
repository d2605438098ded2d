"""Prepared transactions (KIP-939) whose outcome is decided by a log outside of Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tests.sim.checkers.attempts import Attempt
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.transactions import SETTINGS, Sink, follow

from odradek_client.admin import Admin
from odradek_client.errors import Abortable, OdradekError, TransactionTimeout
from odradek_client.producer.producer import Producer
from odradek_client.structs import PreparedTransaction, TopicPartition
from odradek_testkit.simulation.world import World

_SINK = "ledger"
_SEATS = 2
#: Positions are committed for this partition; any partition that exists would do.
_INPUT = TopicPartition(_SINK, 0)


@dataclass(slots=True)
class _Entry:
    """A prepared transaction in the decision log. `commit`: None until the outcome is decided."""

    prepared: PreparedTransaction
    attempt: Attempt
    position: int
    commit: bool | None = None


class _Replaced(Exception):
    """A later client with the same transactional id has begun a term in the decision log."""


class _DecisionLog:
    """The decision log of one transactional id, which outlives every client.

    A term keeps earlier clients from writing. `entry`: the prepared transaction, None if there is
    none. `position`: the position up to which work is committed.
    """

    def __init__(self) -> None:
        self._term = 0
        self.entry: _Entry | None = None
        self.position = 0

    def begin_term(self) -> int:
        self._term += 1
        return self._term

    def check(self, term: int) -> None:
        if term != self._term:
            raise _Replaced

    def decide(self, term: int, entry: _Entry, commit: bool) -> None:
        """Decide the outcome of a prepared transaction, unless an earlier call has decided it."""
        self.check(term)
        if entry.commit is None:
            entry.commit = commit
            if commit:
                entry.attempt.may_commit = entry.attempt.committed = True
                self.position = entry.position


class PreparedWorkload:
    """Clients in seats; each seat has a transactional id.

    When a client dies with a prepared transaction, another client ends the transaction as the
    decision log says; sometimes two clients do.
    """

    name: ClassVar[str] = "prepared"
    settings: ClassVar[dict[str, object]] = SETTINGS
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._groups = tuple(f"ledger-{seat}" for seat in range(_SEATS))
        self._sink = Sink(world, _SINK, self._groups)
        self._logs = [_DecisionLog() for _ in range(_SEATS)]
        self._replaces = self._random.random() < 0.5
        self._started = 0
        #: Clients that will not send InitProducerId any more.
        self._ready: set[str] = set()
        #: Clients that ended in the normal way, without an open transaction.
        self._finished: set[str] = set()

    async def prepare(self) -> None:
        """Create the topic to write to."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await self._sink.create(admin)

    async def work(self) -> None:
        """Run until the faults are over and no transaction is open or prepared."""
        await asyncio.gather(self._sink.read(), *(self._seat(number) for number in range(_SEATS)))

    async def _seat(self, seat: int) -> None:
        sitting: list[asyncio.Task[None]] = []
        over = self._world.faults_over
        name = ""
        # Two-phase commit has no transaction timeout (KIP-939): the open transaction of a dead
        # client ends only when the next client with the same transactional id starts.
        while not over.is_set() or self._logs[seat].entry is not None or name not in self._finished:
            self._started += 1
            name = f"client-{seat}-{self._started}"
            sitting.append(asyncio.ensure_future(follow(self._world, name, self._main(name, seat))))
            timeout_s = None
            if self._replaces and not over.is_set():
                timeout_s = self._random.choice((0.2, 1.0))
            await asyncio.wait([sitting[-1]], timeout=timeout_s)
            while not sitting[-1].done() and name not in self._ready:
                # The InitProducerId of an older instance would abort a transaction that a later one
                # has prepared.
                await self._world.sleep(20)
            pause_ms = 5_000 if over.is_set() else self._random.choice((20, 200))
            await self._world.sleep(pause_ms)
            if over.is_set():
                await asyncio.wait([sitting[-1]])
        await asyncio.gather(*sitting)

    async def _main(self, name: str, seat: int) -> None:
        log = self._logs[seat]
        term = log.begin_term()
        making = Producer(
            bootstrap_servers=self._world.broker.bootstrap,
            client_id=name,
            transactional_id=f"ledger-{seat}",
            transaction_two_phase_commit_enable=True,
            request_timeout_ms=2_000,
            delivery_timeout_ms=20_000,
            max_block_ms=30_000,
            linger_ms=self._random.choice((0, 5)),
        )
        self._world.note(name, f"starts in term {term}")
        try:
            async with making as producer:
                if log.entry is not None:
                    self._ready.add(name)
                    await producer.resume_transaction(log.entry.prepared)
                    await self._end(name, log, term, log.entry, producer)
                    if self._replaces:
                        # Another client may have resumed the same transaction. Neither of the two
                        # fences the other, so this client stops here.
                        return
                else:
                    await producer.init_transactions()
                    self._ready.add(name)
                while not self._world.faults_over.is_set():
                    await self._transaction(name, seat, term, producer)
        except (OdradekError, _Replaced) as problem:
            self._world.note(name, f"ends: {type(problem).__name__}: {problem}")
        else:
            self._finished.add(name)
            self._world.note(name, "ends")

    async def _transaction(self, name: str, seat: int, term: int, producer: Producer) -> None:
        log = self._logs[seat]
        attempt = self._sink.begin(name)
        position = len(self._sink.attempts)
        try:
            await producer.begin_transaction()
            for number in range(self._random.randint(1, 4)):
                value = f"{attempt.name}/{number}".encode()
                attempt.values.append(value)
                partition = self._sink.place(self._random)
                await producer.send(_SINK, value, partition=partition)
                await self._pause()
            await producer.send_offsets_to_transaction({_INPUT: position}, self._groups[seat])
            prepared = await producer.prepare_transaction()
        except Abortable as problem:
            self._world.note(name, f"must abort {attempt}: {problem}")
            await producer.abort_transaction()
            return
        log.check(term)
        entry = log.entry = _Entry(prepared, attempt, position)
        self._world.note(name, f"has prepared {attempt}: {prepared}")
        await self._pause()
        await self._end(name, log, term, entry, producer)

    async def _end(
        self, name: str, log: _DecisionLog, term: int, entry: _Entry, producer: Producer
    ) -> None:
        log.decide(term, entry, self._random.random() < 0.7)
        what = "commit" if entry.commit else "abort"
        self._world.note(name, f"will {what} {entry.attempt}, as is decided")
        await self._pause()
        end = producer.commit_transaction if entry.commit else producer.abort_transaction
        while True:
            try:
                await end()
                break
            except TransactionTimeout as problem:
                self._world.note(name, f"waits on: {problem}")
        await self._pause()
        log.check(term)
        log.entry = None
        self._world.note(name, f"has ended {entry.attempt}")

    async def _pause(self) -> None:
        await self._world.sleep(self._random.choice((0, 1, 20, 200)))

    async def check(self) -> Iterator[str]:
        """Check that exactly the decided transactions are stored, with their offsets."""
        committed = await self._sink.committed()
        problems = list(self._sink.check(committed))
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            for group, log in zip(self._groups, self._logs, strict=True):
                held = (await admin.list_group_offsets(group)).get(_INPUT)
                position = held.offset if held else 0
                if position != log.position:
                    problems.append(
                        f"group {group!r} is at {position}, and the last transaction that was"
                        f" committed put it at {log.position}"
                    )
        return iter(problems)
