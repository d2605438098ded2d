"""The parts of Spark that the sink's protocol needs: a checkpoint, and workers that run the jobs of
a driver.

The steps are the connector's own coroutines (`pyspark_odradek.exactly_once`). Here they are
awaited; in Spark, synchronous calls drive the same coroutines from a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from tests.sim.checkers.attempts import Attempt
from tests.sim.workloads.transactions import Sink

from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer
from odradek_testkit.simulation.process import Process, process_of
from odradek_testkit.simulation.world import World
from pyspark_odradek.errors import SinkError
from pyspark_odradek.exactly_once import protocol
from pyspark_odradek.exactly_once.brokers import Brokers
from pyspark_odradek.exactly_once.identity import TransactionNames
from pyspark_odradek.exactly_once.ledger import LedgerRecordType, Participant
from pyspark_odradek.exactly_once.protocol import TaskOutcome, Terms
from pyspark_odradek.exactly_once.task import TaskTransaction

T = TypeVar("T")

#: The errors that a job may raise; any other is a bug.
EXPECTED = (SinkError, OdradekError)
_CLOSE_S = 5.0
#: The durations of a suspension: long enough for another run to take over and commit the batch.
_STOPS_S = (0.3, 1.0, 3.0)


class WorkerLost(Exception):
    """The process of a job was killed."""


class Checkpoint:
    """The state that outlives a run: the rows of every planned batch, and the number of the newest
    committed batch."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.planned: dict[int, tuple[bytes, ...]] = {}
        self.committed = -1

    def plan(self, batch: int) -> tuple[bytes, ...]:
        """The rows of a batch: the same at every call."""
        if batch not in self.planned:
            count = self._random.randint(1, 8)
            self.planned[batch] = tuple(b"%d/%d" % (batch, row) for row in range(count))
        return self.planned[batch]

    def commit(self, batch: int) -> None:
        """Called when Spark has committed a batch in its own log."""
        self.committed = max(self.committed, batch)


class RunIds:
    """The transactional ids of one run: when a process dies, the next process takes over its ids
    (S-02)."""

    def __init__(self) -> None:
        #: The process that has an id, and the batch for which the id was last used.
        self.owned: dict[str, tuple[Process, int]] = {}


class ProcessIds:
    """The transactional ids of one process (`identity.Inherited`), kept in memory instead of
    Spark's files."""

    def __init__(self, run_ids: RunIds, process: Process) -> None:
        self._owned = run_ids.owned
        self._process = process

    def take(self) -> tuple[str, int]:
        """Take over the id of a dead process; if there is none, make a new id."""
        for name, (owner, last) in self._owned.items():
            if not owner.alive:
                self._owned[name] = self._process, last
                return name, last
        name = f"name{len(self._owned)}"
        self._owned[name] = self._process, -1
        return name, -1

    def used(self, name: str, batch: int) -> bool:
        """Note the batch for which an id is used."""
        if name in self._owned:
            self._owned[name] = self._process, batch
        return True


class Stops:
    """In some seeds, suspends a process before it writes a decision, or before and after it gets a
    transactional id. Another run, or another attempt of the task, may then be faster, so that the
    decision or the rows come too late.

    `late_tasks`: False from the time at which tasks are no longer suspended.
    """

    def __init__(self, random: Random, late: Random) -> None:
        self._random = random
        self._chance = random.choice((0.0, 0.0, 0.2))
        self.late_tasks = True
        self._late = late
        self._late_chance = late.choice((0.0, 0.5))

    async def before(self, kind: LedgerRecordType) -> None:
        """Wait for a random time if a record of this kind is about to be appended."""
        if kind is LedgerRecordType.COMMIT and self._random.random() < self._chance:
            await asyncio.sleep(self._random.choice(_STOPS_S))

    async def at_an_id(self) -> None:
        """Wait for a random time in a task that gets a transactional id."""
        if self.late_tasks and self._late.random() < self._late_chance:
            await asyncio.sleep(self._late.choice(_STOPS_S))


class _StoppingBrokers(Brokers):
    def __init__(self, settings: dict[str, str], stops: Stops) -> None:
        super().__init__(settings)
        self._stops = stops

    async def _append(self, action: protocol.Append, *where: Any) -> None:
        await self._stops.before(action.record.kind)
        await super()._append(action, *where)

    async def producer(self, name: str, two_phase: bool) -> Producer:
        await self._stops.at_an_id()
        return await super().producer(name, two_phase)


class Worker:
    """A Python worker: a process that runs one job at a time, with its own connections."""

    def __init__(
        self,
        world: World,
        name: str,
        settings: dict[str, str],
        run_ids: RunIds | None,
        stops: Stops,
    ) -> None:
        self._world = world
        self._settings = settings
        self.stops = stops
        self.name = name
        self.busy = False
        self._jobs: asyncio.Queue[tuple[Callable[[Worker], Awaitable[Any]], Any]] = asyncio.Queue()
        self._brokers: Brokers | None = None
        # The worker does not inherit the context of the process that starts it: it is a separate
        # process.
        self.ended: asyncio.Task[Any] = Context().run(world.start_client, name, self._live)
        self.process: Process = world.clients[name]
        inherited = None if run_ids is None else ProcessIds(run_ids, self.process)
        self.names = TransactionNames(name, inherited=inherited)

    async def brokers(self) -> Brokers:
        """The connections of the process. Raises OdradekError."""
        if self._brokers is None:
            made = _StoppingBrokers(self._settings, self.stops)
            try:
                await made.start()
            except BaseException:
                await made.close()
                raise
            self._brokers = made
        return self._brokers

    async def do(self, job: Callable[[Worker], Awaitable[T]]) -> T:
        """Run a job. Raises WorkerLost, and the job's errors."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def lost() -> None:
            if not done.done():
                done.set_exception(WorkerLost(self.name))

        if not self.process.alive:
            raise WorkerLost(self.name)
        self.process.on_killed.append(lost)
        self.busy = True
        self._jobs.put_nowait((job, done))
        return await done

    async def _live(self) -> None:
        while True:
            job, done = await self._jobs.get()
            try:
                result = await job(self)
            except EXPECTED as problem:
                # The next job gets new connections.
                self.busy = False
                _settle(done, problem)
                await self._discard()
            except Exception as problem:
                if not self.process.alive:
                    raise
                self._world.violated("connector", f"{self.name}: {problem!r}")
                self.busy = False
                _settle(done, SinkError(str(problem)))
            else:
                self.busy = False
                _settle(done, result)

    async def _discard(self) -> None:
        brokers, self._brokers = self._brokers, None
        if brokers is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await brokers.close()
        except (OdradekError, TimeoutError):
            pass


def _settle(done: asyncio.Future[Any], result: Any) -> None:
    if done.done():
        return
    if isinstance(result, Exception):
        done.set_exception(result)
        # The driver may be dead, or may no longer wait for the result; so the exception is marked
        # as seen.
        done.exception()
    else:
        done.set_result(result)


#: A process that dies at one of these points changes what a recovery finds, so deaths are more
#: frequent at these points.
_DECISIVE_PLACES = ("the append of a commit", "End", "the append of a done")
_DECISIVE = 6


class Deaths:
    """Kills a process, or its driver, at one of the critical points."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._chance = random.choice((0.0, 0.01, 0.02, 0.05))

    def reached(self, place: str, driver: Process) -> None:
        """Called when the current process has reached a point: this process or the driver may be
        killed."""
        chance = self._chance * (_DECISIVE if place in _DECISIVE_PLACES else 1)
        if self._world.faults_over.is_set() or self._random.random() >= chance:
            return
        here = process_of()
        assert here is not None
        victim = self._random.choice((here, driver))
        self._world.note(victim.name, f"will be killed: {here.name} is at {place}")
        delay_ms = self._random.choice((0, 0, 1, 3, 10))
        self._world.loop.call_later(delay_ms / 1000, victim.kill)

    def on_the_way(self, steps: Generator[Any, Any, T], driver: Process) -> Generator[Any, Any, T]:
        """Yield the actions of a procedure; at each action, and between the ends of two
        transactions, a process may die."""
        answer: Any = None
        while True:
            try:
                action = steps.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            self.reached(_name_of(action), driver)
            if isinstance(action, protocol.End) and self._random.random() < 0.5:
                answer = yield from self._one_by_one(action, driver)
            else:
                answer = yield action

    def _one_by_one(
        self, action: protocol.End, driver: Process
    ) -> Generator[Any, Any, tuple[bool, ...]]:
        """End the transactions one after the other. The connector ends them concurrently, so any
        order is valid."""
        ended: tuple[bool, ...] = ()
        for each in action.participants:
            ended += yield action._replace(participants=(each,))
            self.reached(_name_of(action), driver)
        return ended


def _name_of(action: Any) -> str:
    if isinstance(action, protocol.Append):
        return f"the append of a {action.record.kind.value}"
    return type(action).__name__


@dataclass(frozen=True)
class _Prepared:
    """A transaction that an attempt of a task has prepared for the driver."""

    batch: int
    rows: tuple[bytes, ...]
    attempt: Attempt


class Jobs:
    """The jobs of a run's workers: tasks, commits and aborts."""

    def __init__(
        self, world: World, random: Random, sink: Sink, deaths: Deaths, log_topic: str
    ) -> None:
        self._world = world
        self._random = random
        self._sink = sink
        self._deaths = deaths
        self._log_topic = log_topic
        #: Every prepared transaction, by run and participant.
        self._prepared: dict[tuple[str, Participant], _Prepared] = {}

    async def task(
        self, worker: Worker, driver: Process, terms: Terms, slot: int, rows: Sequence[bytes]
    ) -> TaskOutcome:
        """Run one attempt of a task; the driver ends its transaction later."""
        brokers = await worker.brokers()
        begun = await brokers.run(
            self._deaths.on_the_way(protocol.begin_task(terms), driver), terms, self._log_topic
        )
        if not begun.write:
            return TaskOutcome(len(rows))
        if not rows:
            return TaskOutcome(0)
        name = worker.names.take(terms.batch, begun.over)
        transaction = TaskTransaction(brokers, terms, name, self._log_topic)
        attempt = self._sink.begin(worker.name)
        self._world.note(worker.name, f"writes task {slot} of batch {terms.batch} in {attempt}")
        try:
            producer = await transaction.begin()
            self._deaths.reached("the beginning of a transaction", driver)
            await worker.stops.at_an_id()
            # Rows are sent one at a time as Python objects: the simulator does not need pyarrow.
            deliveries = []
            for row in rows:
                value = b"%s %s" % (row, attempt.name.encode())
                attempt.values.append(value)
                place = self._sink.place(self._random)
                deliveries.append(await producer.send(self._sink.topic, value, partition=place))
                await self._pause()
            await producer.flush()
            for delivery in deliveries:
                delivery.result()
            self._deaths.reached("the end of a task's rows", driver)
            participant = await transaction.prepare(slot, len(rows))
        except EXPECTED:
            await transaction.abandon()
            raise
        prepared = _Prepared(terms.batch, tuple(rows), attempt)
        self._prepared[terms.writer.run, participant] = prepared
        self._deaths.reached("a prepared transaction", driver)
        return TaskOutcome(len(rows), participant)

    async def commit(
        self, worker: Worker, driver: Process, terms: Terms, outcomes: tuple[TaskOutcome, ...]
    ) -> bool:
        """Commit a batch whose tasks have succeeded. Returns True if this call decided the
        batch."""
        brokers = await worker.brokers()
        steps = self._decided(protocol.commit(terms, outcomes))
        done = await brokers.run(self._deaths.on_the_way(steps, driver), terms, self._log_topic)
        self._deaths.reached("a batch that is done", driver)
        return done

    async def abort(self, worker: Worker, driver: Process, terms: Terms) -> bool:
        """Abort a failed batch."""
        brokers = await worker.brokers()
        steps = self._deaths.on_the_way(protocol.abort(terms), driver)
        return await brokers.run(steps, terms, self._log_topic)

    def rows_of(self, batch: int, text: str) -> list[bytes]:
        """The rows of all transactions of this batch that are named in `text`, an error message."""
        return [
            row
            for (_, participant), prepared in self._prepared.items()
            if prepared.batch == batch and f", {participant.name})" in text
            for row in prepared.rows
        ]

    def _decided(self, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Mark the transactions of a batch as soon as its commit is decided: from then on any
        process may commit them."""
        answer: Any = None
        while True:
            try:
                action = steps.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            if (
                isinstance(action, protocol.Append)
                and action.record.kind is LedgerRecordType.COMMIT
            ):
                state = action.record.state
                for each in state.participants:
                    self._prepared[state.run, each].attempt.may_commit = True
            answer = yield action

    async def _pause(self) -> None:
        await self._world.sleep(self._random.choice((0, 0, 0, 1, 20)))
