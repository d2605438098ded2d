"""A Spark query that writes exactly once, while drivers, workers, tasks and the broker are killed.

It writes to one topic, as a stream does; or, as `foreachBatch` does, to two topics, in two jobs
with the same `commitId`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from tests.sim.checkers.sink_output import check_sink_output
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.spark_query import (
    EXPECTED,
    Checkpoint,
    Deaths,
    Jobs,
    RunIds,
    Stops,
    Worker,
    WorkerLost,
)
from tests.sim.workloads.transactions import Sink

from odradek_client.admin import Admin
from odradek_testkit.simulation.process import Process
from odradek_testkit.simulation.world import World
from pyspark_odradek.errors import TransactionsLost
from pyspark_odradek.exactly_once import identity
from pyspark_odradek.exactly_once.identity import Writer
from pyspark_odradek.exactly_once.protocol import TaskOutcome, Terms

T = TypeVar("T")

_TOPIC = "shipments"
_SECOND_TOPIC = "invoices"
_QUERY = "shipping"
_LOG_TOPIC = "__odradek_spark_commits"
#: The maximum number of attempts of one task, as in Spark.
_EXECUTIONS_MAX = 4
_WORKERS_MAX = 8
#: The transaction timeout in ms of the seeds that set one; some recoveries take longer than it.
_TIMEOUT_MS = 500
_LATE_MS = 1_000
#: The number of runs after the faults that may fail because of records that were lost before.
_LAST_RUNS_MAX = 6
#: The last runs whose tasks may be suspended. In a seed with timeouts, the transactions of the
#: other tasks of a batch may time out meanwhile.
_LATE_RUNS_MAX = 3


@dataclass
class _Run:
    """One start of the query. `last`: the run has only one batch, and no faults, and its tasks end
    by themselves."""

    number: int
    slots: int
    lenient: bool
    last: bool
    #: The transactional ids that a new process takes over from dead ones; None if it takes over
    #: none.
    run_ids: RunIds | None
    workers: list[Worker] = field(default_factory=list)
    driver: Process | None = None
    committed: bool = False
    started: int = 0


@dataclass
class _Target:
    """A topic that each batch is written to. `query`: the identity of the query's writes to this
    topic."""

    query: str
    sink: Sink
    jobs: Jobs
    #: Rows that an error has named as lost.
    told_lost: dict[bytes, None] = field(default_factory=dict)


class _BatchFailed(Exception):
    """All attempts of a task, or the commit, have failed; the query ends."""


class SparkSinkWorkload:
    """One query is run again and again; sometimes an earlier run, wrongly thought dead, continues
    next to the new run.

    In some seeds transactions have a timeout, and some recoveries begin only after that timeout.
    """

    name: ClassVar[str] = "spark-sink"
    settings: ClassVar[dict[str, object]] = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._checkpoint = Checkpoint(world.chance("batches"))
        self._deaths = Deaths(world, world.chance("deaths"))
        self._stops = Stops(world.chance("stops"), world.chance("late tasks"))
        self._targets = [self._target(*each) for each in self._identities()]
        self._times_out = self._random.random() < 0.4
        self._inherits = self._random.random() < 0.5
        self._speculates = self._random.random() < 0.5
        self._runs = 0
        #: True if an error has named lost rows: a user has handled them, and the next run accepts
        #: the loss.
        self._lenient = False

    def _identities(self) -> list[tuple[str, str, str]]:
        """(identity of the query's writes, topic, prefix of the readers' names) for each target."""
        if self._world.chance("targets").random() < 0.6:
            return [(_QUERY, _TOPIC, "reader")]
        return [
            (identity.commit_query(_QUERY, topic), topic, readers)
            for topic, readers in ((_TOPIC, "reader"), (_SECOND_TOPIC, "second-reader"))
        ]

    def _target(self, query: str, topic: str, readers: str) -> _Target:
        sink = Sink(self._world, topic, readers=readers)
        return _Target(query, sink, Jobs(self._world, self._random, sink, self._deaths, _LOG_TOPIC))

    async def prepare(self) -> None:
        """Create the topics; the connector creates the decision log."""
        how = "time out" if self._times_out else "last"
        self._world.note("workload", f"prepared transactions {how}")
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            for target in self._targets:
                await target.sink.create(admin)

    async def work(self) -> None:
        """Run the query until the faults are over; then one more run must repair everything."""
        await asyncio.gather(*(target.sink.read() for target in self._targets), self._query())

    async def _query(self) -> None:
        world, random = self._world, self._random
        followed: list[asyncio.Task[None]] = []
        while not world.faults_over.is_set():
            followed.append(asyncio.ensure_future(self._follow(self._new_run(last=False))))
            # A driver that still runs after this time is replaced, and becomes a zombie.
            patience_ms = random.choice((None, None, 100, 400, 1_500))
            await asyncio.wait(
                [followed[-1]], timeout=None if patience_ms is None else patience_ms / 1000
            )
            await world.sleep(self._restart_ms())
        await asyncio.gather(*followed)
        for number in range(_LAST_RUNS_MAX):
            self._stops.late_tasks = number < _LATE_RUNS_MAX
            await world.sleep(self._restart_ms())
            run = self._new_run(last=True)
            await self._follow(run)
            if run.committed:
                return
        world.violated("liveness", f"{_LAST_RUNS_MAX} runs of the query have failed")

    def _restart_ms(self) -> int:
        choices = (20, _LATE_MS, _LATE_MS) if self._times_out else (20, 200)
        return self._random.choice(choices)

    def _new_run(self, *, last: bool) -> _Run:
        self._runs += 1
        lenient, self._lenient = self._lenient, False
        run_ids = RunIds() if self._inherits else None
        return _Run(self._runs, self._random.randint(1, 3), lenient, last, run_ids)

    # --- the driver ---

    async def _follow(self, run: _Run) -> None:
        """Wait until the run has ended or its driver was killed. The workers outlive the driver for
        a moment."""
        world = self._world
        name = f"driver-{run.number}"
        task = world.start_client(name, lambda: self._drive(name, run))
        run.driver = world.clients[name]
        while not task.done() and run.driver.alive:
            await world.sleep(20)
        if task.done():
            task.result()
        await world.sleep(self._random.choice((0, 50, 1_000)))
        # After the last run, what its late tasks leave open stays open.
        while run.last and any(each.busy and each.process.alive for each in run.workers):
            await world.sleep(20)
        for worker in run.workers:
            worker.process.kill()

    async def _drive(self, name: str, run: _Run) -> None:
        world = self._world
        batch = self._checkpoint.committed + 1
        world.note(name, f"starts with batch {batch}{', and is lenient' if run.lenient else ''}")
        try:
            while run.last or not world.faults_over.is_set():
                await self._batch(name, run, batch)
                batch += 1
                if run.last:
                    run.committed = True
                    return
        except _BatchFailed as problem:
            world.note(name, f"the query fails: {problem}")

    async def _batch(self, name: str, run: _Run, batch: int) -> None:
        for target in self._targets:
            await self._write(name, run, batch, target)
        self._deaths.reached("a commit that Spark has not noted", self._driver(run))
        await self._pause()
        self._checkpoint.commit(batch)
        self._deaths.reached("a commit that Spark has noted", self._driver(run))
        await self._pause()

    async def _write(self, name: str, run: _Run, batch: int, target: _Target) -> None:
        world = self._world
        writer = Writer(target.query, f"run-{run.number}")
        terms = Terms(writer, batch, run.lenient, lambda text: self._told(text, batch, target))
        try:
            outcomes = await self._tasks(run, target, terms)
            decided = await self._commit(run, target, terms, outcomes)
        except (*EXPECTED, WorkerLost, TimeoutError) as problem:
            world.note(name, f"batch {batch}: {type(problem).__name__}: {problem}")
            if isinstance(problem, TransactionsLost):
                self._told(str(problem), batch, target)
            await self._abort(name, run, target, terms)
            raise _BatchFailed(f"in batch {batch}") from problem
        there = "written" if decided else "there already"
        world.note(name, f"batch {batch} is {there} in {target.sink.topic}")

    def _driver(self, run: _Run) -> Process:
        assert run.driver is not None
        return run.driver

    async def _tasks(self, run: _Run, target: _Target, terms: Terms) -> tuple[TaskOutcome, ...]:
        rows = self._checkpoint.plan(terms.batch)
        tasks = [
            asyncio.ensure_future(self._task(run, target, terms, slot, rows[slot :: run.slots]))
            for slot in range(run.slots)
        ]
        try:
            return tuple(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            raise

    async def _task(
        self, run: _Run, target: _Target, terms: Terms, slot: int, rows: tuple[bytes, ...]
    ) -> TaskOutcome:
        """Return the result of the first attempt that succeeds. Raises the error of the last
        attempt."""

        def execute() -> asyncio.Task[TaskOutcome]:
            driver = self._driver(run)
            return asyncio.ensure_future(
                self._on_a_worker(run, lambda at: target.jobs.task(at, driver, terms, slot, rows))
            )

        running = [execute()]
        started = 1
        if self._speculates and (run.last or self._random.random() < 0.3):
            await self._world.sleep(self._random.choice((1, 20, 100)))
            running.append(execute())
            started += 1
        while True:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            ended = [each for each in running if each.done()]
            for each in ended:
                if each.exception() is None:
                    # Other attempts continue, but their results are ignored.
                    return each.result()
            running = [each for each in running if not each.done()]
            if not running and started == _EXECUTIONS_MAX:
                return ended[0].result()
            if not running:
                running = [execute()]
                started += 1

    async def _commit(
        self, run: _Run, target: _Target, terms: Terms, outcomes: tuple[TaskOutcome, ...]
    ) -> bool:
        driver = self._driver(run)
        committing = asyncio.ensure_future(
            self._on_a_worker(run, lambda at: target.jobs.commit(at, driver, terms, outcomes))
        )
        if run.last or self._random.random() < 0.9:
            return await committing
        # The driver loses the connection to the process, but the process continues.
        timeout_s = self._random.choice((1, 10, 50)) / 1000
        return await asyncio.wait_for(asyncio.shield(committing), timeout_s)

    async def _abort(self, name: str, run: _Run, target: _Target, terms: Terms) -> None:
        driver = self._driver(run)
        try:
            aborted = await self._on_a_worker(run, lambda at: target.jobs.abort(at, driver, terms))
        except (*EXPECTED, WorkerLost) as problem:
            self._world.note(name, f"cannot abort: {problem}")
        else:
            self._world.note(name, "has aborted" if aborted else "leaves a decision to a replay")

    async def _on_a_worker(self, run: _Run, job: Callable[[Worker], Awaitable[T]]) -> T:
        """Run a job on an idle worker."""
        while True:
            living = [worker for worker in run.workers if worker.process.alive]
            for worker in living:
                if not worker.busy:
                    return await worker.do(job)
            if len(living) < _WORKERS_MAX:
                run.started += 1
                name = f"worker-{run.number}.{run.started}"
                settings = self._client_settings()
                worker = Worker(self._world, name, settings, run.run_ids, self._stops)
                run.workers.append(worker)
            else:
                await self._world.sleep(20)

    def _client_settings(self) -> dict[str, str]:
        settings = {
            "bootstrap_servers": self._world.broker.bootstrap,
            "request_timeout_ms": "2000",
            "delivery_timeout_ms": "20000",
            "max_block_ms": "30000",
            "default_api_timeout_ms": "30000",
        }
        if self._times_out:
            settings |= {
                "transaction_two_phase_commit_enable": "false",
                "transaction_timeout_ms": str(_TIMEOUT_MS),
            }
        return settings

    async def _pause(self) -> None:
        await self._world.sleep(self._random.choice((0, 1, 20, 200)))

    # --- errors, and the final check ---

    def _told(self, text: str, batch: int, target: _Target) -> None:
        """Note the rows that an error calls lost. Report an error that must not occur, and an error
        that does not name this batch."""
        world = self._world
        if f"batch {batch} of query {target.query} " not in text:
            world.violated("spark-sink", f"an error that does not name batch {batch}: {text}")
        in_part = "lost in part" in text
        if (in_part or "revoked" in text) and not self._times_out:
            world.violated("spark-sink", f"transactions without a timeout: {text}")
        if in_part:
            self._lenient = True
            lost = target.jobs.rows_of(batch, text)
            world.note("workload", f"hears that {len(lost)} rows are lost")
            target.told_lost |= dict.fromkeys(lost)

    async def check(self) -> Iterator[str]:
        """Check that each topic has every batch once, and nothing else."""
        batches = {
            batch: planned
            for batch, planned in self._checkpoint.planned.items()
            if batch <= self._checkpoint.committed
        }
        problems: list[str] = []
        for target in self._targets:
            committed = await target.sink.committed()
            rows = {
                place: [(offset, value.partition(b" ")[0]) for offset, value in records]
                for place, records in committed.items()
            }
            problems += target.sink.check(committed)
            problems += check_sink_output(batches, target.told_lost, rows)
        return iter(problems)
