"""A model of all that surrounds the exactly-once sink's protocol: brokers, Spark, crashes, zombies,
lost responses.

The procedures are the connector's own (`exactly_once.protocol`, `ledger`). All else is modelled
here, small enough to be explored completely. A `World` is a value; `moves` returns all worlds that
may come next:

- a process makes its next step: each action of a procedure is one step, and so is each single end
  of a transaction. Any process may also never make a step again;
- an append is answered; or it gets no answer, and the record is appended now, later, or never;
- an end of a transaction is carried out but not answered, so that it is requested again;
- Spark assumes that a task is lost and runs it again, or runs it twice at the same time, while the
  first attempt continues, if need be until long after the batch is committed or given up;
- the driver gets no response from its commit process and aborts, while the commit process
  continues;
- the driver is killed, or is wrongly thought dead: another run starts from the checkpoint, with
  other tasks;
- a broker without KIP-939 aborts an open transaction because of its age;
- the log is compacted as soon as the protocol allows it.

`violation` names the violation in a world. `recover` starts one more run without faults, and names
the violation at its end.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from exactly_once_world import (
    EPOCH,
    Bounds,
    Init,
    Name,
    Process,
    Run,
    Txn,
    World,
    Write,
    appended,
    carry_out,
    end,
    first_world,
    violation,
)
from pyspark_odradek.errors import SinkError, StaleBatch, TransactionsLost
from pyspark_odradek.exactly_once import ledger, protocol
from pyspark_odradek.exactly_once.identity import TransactionNames, Writer
from pyspark_odradek.exactly_once.ledger import Participant
from pyspark_odradek.exactly_once.protocol import (
    Append,
    Describe,
    End,
    Fate,
    TaskOutcome,
    Terms,
)

QUERY = "q"


# --- procedures, replayed from their answers ------------------------------------------------------


def rows_of(bounds: Bounds, slot: int, slots: int) -> tuple[int, ...]:
    """The rows of the task in a slot: the rows of a batch are distributed; a task may get none."""
    if slot in bounds.empty_slots:
        return ()
    takers = [each for each in range(slots) if each not in bounds.empty_slots]
    return tuple(row for row in range(bounds.ROWS) if takers[row % len(takers)] == slot)


def run_name(run: int) -> str:
    return f"r{run}"


def take_name(world: World, process: Process, action: Name) -> tuple[str, World]:
    """Choose a transactional id by the connector's own rule.

    The rule is looked up at each call, so that a mutant can replace it.
    """
    owner = (process.run, process.worker)
    memory = dict(world.names)
    names = TransactionNames(f"w{process.worker}", dict(memory.get(owner, ())))
    name = names.take(action.batch, action.over)
    memory[owner] = tuple(sorted(names.last.items()))
    return name, world._replace(names=tuple(sorted(memory.items())))


def task(process: Process, bounds: Bounds, slots: int) -> Generator[Any, Any, TaskOutcome | None]:
    """The procedure of a task."""
    terms = _terms(process, bounds)
    batch = process.batch + EPOCH * bounds.checkpoint(process.run)
    rows = rows_of(bounds, process.slot, slots)
    begun = protocol.Begun(write=True)
    if not bounds.job:
        begun = yield from protocol.begin_task(terms)
    if not begun.write:
        return TaskOutcome(len(rows))
    if not rows:
        return empty_outcome(process)
    run = run_name(process.run)
    name = yield Name(process.batch, begun.over)
    epoch = yield Init(run, name)
    confirm = protocol.confirm_job_task if bounds.job else protocol.confirm_task
    yield from confirm(terms)
    for some in ((), rows):
        accepted = yield Write(run, name, epoch, batch, some)
        if not accepted:
            return None  # The producer is fenced, so this attempt fails.
    return TaskOutcome(len(rows), Participant(name, 0, epoch, 2, process.slot, len(rows)))


def empty_outcome(process: Process) -> TaskOutcome:
    return TaskOutcome(0)


def _terms(process: Process, bounds: Bounds) -> Terms:
    checkpoint = f"c{bounds.checkpoint(process.run)}"
    return Terms(Writer(QUERY, run_name(process.run), checkpoint), process.batch)


def procedure(process: Process, bounds: Bounds) -> Generator[Any, Any, Any]:
    if process.kind == "task":
        return task(process, bounds, bounds.slots[process.run])
    terms, outcomes = _terms(process, bounds), process.outcomes
    if process.kind == "commit":
        return (protocol.commit_job if bounds.job else protocol.commit)(terms, outcomes)
    if bounds.job:
        return protocol.abort_job(terms, protocol._participants(outcomes))
    return protocol.abort(terms)


class Step(NamedTuple):
    """The next step of a procedure: an action, a result or an exception."""

    action: Any = None
    result: Any = None
    error: BaseException | None = None


class Explorer:
    """Explores worlds within bounds; caches the steps of procedures."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.steps: dict[Any, Step] = {}
        self.explored = 0

    def step(self, process: Process) -> Step:
        key = (process._replace(ends=(), heard=True, worker=0), self.bounds.slots[process.run])
        found = self.steps.get(key)
        if found is None:
            found = self.steps[key] = self._run(process)
        return found

    def _run(self, process: Process) -> Step:
        steps = procedure(process, self.bounds)
        try:
            action = next(steps)
            for answer in process.history:
                action = steps.send(answer)
        except StopIteration as stop:
            return Step(result=stop.value)
        except (SinkError, ValueError) as error:
            return Step(error=error)
        return Step(action=action)

    # --- moves ------------------------------------------------------------------------------------

    def moves(self, world: World) -> Iterator[tuple[Any, World]]:
        """Yield every world that may come next, with the process that makes the step."""
        for at, process in enumerate(world.processes):
            for later in self._moves_of(world, at, process):
                yield process[:5], later
        for at, run in enumerate(world.runs):
            for later in self._moves_of_run(world, at, run):
                yield at, later
        if len(world.runs) < len(self.bounds.slots):
            yield None, self.start_run(world)
        for later in self._moves_of_brokers(world):
            yield None, later

    def _moves_of_brokers(self, world: World) -> Iterator[World]:
        for key, record in world.pending:
            rest = tuple(each for each in world.pending if each[0] != key)
            yield appended(world._replace(pending=rest), key, record)
        if world.timeouts:
            for (run, name), txn in world.txns:
                if txn.status == "open":
                    yield world.with_txn(run, name, Txn(txn.epoch + 1, "aborted"))._replace(
                        timeouts=world.timeouts - 1,
                        too_late=world.too_late or run in world.checked,
                    )

    def start_run(self, world: World) -> World:
        """Start a run from the checkpoint, even if the last run has not ended."""
        slots = self.bounds.slots[len(world.runs)]
        batch = world.spark_logs[self.bounds.checkpoint(len(world.runs))] + 1
        if batch >= self.bounds.batches:
            return world._replace(runs=(*world.runs, Run(batch, "over")))
        return self._start_batch(
            world._replace(runs=(*world.runs, Run(batch))), len(world.runs), batch, slots
        )

    def _start_batch(self, world: World, at: int, batch: int, slots: int) -> World:
        return self._with_run(world, at, Run(batch, "tasks", (None,) * slots, (0,) * slots))

    def _with_run(self, world: World, at: int, run: Run) -> World:
        return world._replace(runs=(*world.runs[:at], run, *world.runs[at + 1 :]))

    def _moves_of_run(self, world: World, at: int, run: Run) -> Iterator[World]:
        if run.phase == "tasks":
            for slot, used in enumerate(run.executions):
                # The first attempts start in the order of the slots, as workers become free; a
                # second attempt may start at any time.
                if used == 0 and slot and not run.executions[slot - 1]:
                    continue
                if run.outcomes[slot] is None and used < self.bounds.executions:
                    executions = (*run.executions[:slot], used + 1, *run.executions[slot + 1 :])
                    again = self._with_run(world, at, run._replace(executions=executions))
                    yield with_task(again, at, run.batch, slot, used)
            if all(outcome is not None for outcome in run.outcomes):
                outcomes: Any = run.outcomes
                process = Process("commit", at, run.batch, outcomes=outcomes)
                yield self._with_run(world, at, run._replace(phase="commit"))._replace(
                    processes=(*world.processes, process)
                )
        elif run.phase == "commit" and world.abandoned_commits:
            # The driver loses the connection to the commit process.
            processes = tuple(
                each._replace(heard=False) if each.kind == "commit" and each.run == at else each
                for each in world.processes
            )
            yield self._abort(
                world._replace(processes=processes, abandoned_commits=world.abandoned_commits - 1),
                at,
                run,
            )
        elif run.phase == "log":
            logs = list(world.spark_logs)
            checkpoint = self.bounds.checkpoint(at)
            logs[checkpoint] = max(logs[checkpoint], run.batch)
            done = self._with_run(world, at, run._replace(phase="over"))
            done = done._replace(spark_logs=tuple(logs))
            if run.batch + 1 < self.bounds.batches:
                done = self._start_batch(done, at, run.batch + 1, len(run.outcomes))
            yield done

    def _abort(self, world: World, at: int, run: Run) -> World:
        known = tuple(each for each in run.outcomes if each is not None) if self.bounds.job else ()
        process = Process("abort", at, run.batch, outcomes=known)
        return self._with_run(world, at, run._replace(phase="abort"))._replace(
            processes=(*world.processes, process)
        )

    def _moves_of(self, world: World, at: int, process: Process) -> Iterator[World]:
        step = self.step(process)
        if step.action is None:
            yield self._over(world, at, process, step)
            return
        action = step.action
        if isinstance(action, End):
            yield from self._end_one(world, at, process, action)
            return
        if isinstance(action, Append):
            yield from self._append(world, at, process, action)
            return
        if isinstance(action, Name):
            name, changed = take_name(world, process, action)
            yield answered(changed, at, process, name)
            return
        answer, changed = carry_out(world, action)
        if isinstance(action, Describe) and set(answer) == {Fate.OPEN}:
            changed = changed._replace(
                checked=tuple(sorted({*changed.checked, run_name(process.run)}))
            )
        yield answered(changed, at, process, answer)

    def _append(self, world: World, at: int, process: Process, action: Append) -> Iterator[World]:
        # The key is different for every attempt of an append.
        key = (
            f"{process.kind}{process.run}.{process.batch}.{process.slot}.{process.execution}."
            + str(len(process.history))
        )
        yield answered(appended(world, key, action.record), at, process, None)
        if world.delays:
            later = world._replace(
                delays=world.delays - 1, pending=(*world.pending, (key, action.record))
            )
            yield answered(later, at, process, None)

    def _end_one(self, world: World, at: int, process: Process, action: End) -> Iterator[World]:
        part = action.participants[len(process.ends)]
        ended, changed = end(world, action.run, part, action.commit)
        ends = (*process.ends, ended)
        if len(ends) == len(action.participants):
            yield answered(changed, at, process._replace(ends=()), ends)
        else:
            yield _with_process(changed, at, process._replace(ends=ends))
        if world.lost_answers and changed != world:
            yield changed._replace(lost_answers=world.lost_answers - 1)

    def _over(self, world: World, at: int, process: Process, step: Step) -> World:
        """End a procedure, and give the result to its driver if the driver still waits for it."""
        gone = world._replace(processes=(*world.processes[:at], *world.processes[at + 1 :]))
        run = world.runs[process.run]
        if isinstance(step.error, ValueError):
            return gone._replace(wrong=f"a procedure did what is not allowed: {step.error}")
        if process.kind == "abort" and step.result:
            gone = gone._replace(given_up=(*gone.given_up, run_name(process.run)))
        if process.kind == "task":
            if run.phase != "tasks" or run.batch != process.batch:
                return gone
            failed = step.error is not None or step.result is None
            if failed:
                mine = [p for p in gone.processes if _same_task(p, process)]
                spare = run.executions[process.slot] < self.bounds.executions
                if mine or spare or run.outcomes[process.slot] is not None:
                    return gone
                return self._abort(gone, process.run, run)
            if run.outcomes[process.slot] is not None:
                return gone
            outcomes = (
                *run.outcomes[: process.slot],
                step.result,
                *run.outcomes[process.slot + 1 :],
            )
            return self._with_run(gone, process.run, run._replace(outcomes=outcomes))
        if not process.heard:
            return gone
        if process.kind == "commit":
            if step.error is not None:
                return self._abort(gone, process.run, run)
            return self._with_run(gone, process.run, run._replace(phase="log"))
        return self._with_run(gone, process.run, run._replace(phase="over"))

    # --- exploring --------------------------------------------------------------------------------

    def everything(self, worlds_max: int, recover_every: int = 1, *, complete: bool = True) -> str:
        """Explore all worlds, breadth first. Returns the first violation, "" if there is none.

        If there are more than `worlds_max` worlds, raises AssertionError; without `complete`,
        returns "" after that many.
        """
        first = first_world(self.bounds)
        seen = {first}
        open_worlds = deque([first])
        while open_worlds:
            world = open_worlds.popleft()
            self.explored += 1
            wrong = violation(world, self.bounds)
            if not wrong and self.explored % recover_every == 0:
                wrong = self.recover(world)
            if wrong:
                return wrong
            for _, later in self.moves(world):
                if later not in seen:
                    if len(seen) >= worlds_max:
                        if not complete:
                            return ""
                        raise AssertionError(f"more than {worlds_max} worlds")
                    seen.add(later)
                    open_worlds.append(later)
        return ""

    def at_random(self, seed: int, walks: int, steps: int = 150) -> str:
        """Explore random walks. Returns the first violation, "" if there is none.

        The process with the highest priority moves; a few times in a walk, the next process moves
        to the end of the order. So a process may stop at any point while others proceed far.
        Uniformly chosen steps would rarely reach such states (Burckhardt et al., ASPLOS 2010).
        """
        rng = random.Random(seed)
        for _ in range(walks):
            world = first_world(self.bounds)
            recover_at = rng.randrange(steps)
            demote_at = {rng.randrange(steps // 2) for _ in range(rng.randrange(5))}
            priority: dict[Any, float] = {}
            for number in range(steps):
                self.explored += 1
                wrong = violation(world, self.bounds)
                if not wrong and number == recover_at:
                    wrong = self.recover(world)
                if wrong:
                    return wrong
                choices = list(self.moves(world))
                if not choices:
                    break
                movers = list(dict.fromkeys(mover for mover, _ in choices))
                for each in movers:
                    priority.setdefault(each, rng.random())
                first = max(movers, key=priority.__getitem__)
                if number in demote_at:
                    priority[first] = -float(number + 1)
                    first = max(movers, key=priority.__getitem__)
                world = rng.choice([later for mover, later in choices if mover == first])
            wrong = violation(world, self.bounds) or self.recover(world)
            if wrong:
                return wrong
        return ""

    # --- recovery ---------------------------------------------------------------------------------

    def recover(self, world: World) -> str:
        """Check that one more run repairs everything if no other process moves and no faults
        happen. No other run repairs a job without a log."""
        if self.bounds.job:
            return ""
        error: BaseException | None = None
        for _ in range(3):
            number = len(world.runs)
            explorer = Explorer(
                self.bounds._replace(slots=(*self.bounds.slots[:number], 2, 2, 2, 2))
            )
            explorer.steps = self.steps
            checkpoint = self.bounds.checkpoint(number)
            idle = world.spark_logs[checkpoint] + 1 >= self.bounds.batches
            quiet = world._replace(
                runs=(*(run._replace(phase="over") for run in world.runs),),
                processes=(),
                pending=(),
                lost_answers=0,
                delays=0,
                timeouts=0,
                abandoned_commits=0,
            )
            world, error = explorer.to_the_end(explorer.start_run(quiet), number)
            wrong = violation(world, self.bounds)
            if wrong:
                return f"after recovery: {wrong}"
            if error is None:
                everything = [
                    (batch + EPOCH * checkpoint, row)
                    for batch in range(self.bounds.batches)
                    for row in range(self.bounds.ROWS)
                ]
                # Of an earlier checkpoint, a batch is visible or not, but never a part of it, if
                # the run has had a batch, and so has completed what was decided.
                earlier = [each for each in world.visible if each[0] < EPOCH * checkpoint]
                parted = len(earlier) % self.bounds.ROWS and not idle
                if sorted({*world.visible} - {*earlier}) != everything or parted:
                    return f"recovered, and visible is {world.visible}"
                left = [name for name, txn in world.txns if txn.status == "open"]
                return f"recovered, and still open: {left}" if left and not idle else ""
            last = ledger.newest(world.log).state
            if isinstance(error, StaleBatch) and f"c{checkpoint}" in last.replaced:
                # A run with the earlier checkpoint, which had not claimed yet, was faster.
                return "" if last.checkpoint == "c0" else f"refused: {error}"
            if not (isinstance(error, TransactionsLost) and world.too_late):
                return f"recovery failed: {error!r}"
            if "lost in part" in str(error):
                return ""  # After a partial loss the protocol can only raise an error.
        return f"recovery goes on failing: {error!r}"

    def to_the_end(self, world: World, number: int) -> tuple[World, BaseException | None]:
        error: BaseException | None = None
        for _ in range(2000):
            for at, process in enumerate(world.processes):
                step = self.step(process)
                if step.error is not None and error is None:
                    error = step.error
                world = next(self._moves_of(world, at, process))
                break
            else:
                run = world.runs[number]
                if run.phase == "over":
                    return world, error
                world = next(self._moves_of_run(world, number, run))
        raise AssertionError("a run that does not end")


def with_task(world: World, run: int, batch: int, slot: int, execution: int) -> World:
    """Start an attempt of a task, in an idle worker process."""
    busy = {each.worker for each in world.processes if each.kind == "task" and each.run == run}
    worker = next(each for each in range(len(busy) + 1) if each not in busy)
    process = Process("task", run, batch, slot, execution, worker)
    return world._replace(processes=(*world.processes, process))


def _same_task(one: Process, other: Process) -> bool:
    return one.kind == "task" and (one.run, one.batch, one.slot) == (
        other.run,
        other.batch,
        other.slot,
    )


def _with_process(world: World, at: int, process: Process) -> World:
    return world._replace(processes=(*world.processes[:at], process, *world.processes[at + 1 :]))


def answered(world: World, at: int, process: Process, answer: Any) -> World:
    """Give the process its answer."""
    return _with_process(world, at, process._replace(history=(*process.history, answer)))
