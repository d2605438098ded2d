"""The values of the model of the exactly-once sink (`exactly_once_model`): its limits, its worlds,
and what brokers do in a world."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark_odradek.exactly_once import ledger
from pyspark_odradek.exactly_once.ledger import LedgerEntry, LedgerRecordType, Participant
from pyspark_odradek.exactly_once.protocol import (
    AskClosed,
    Close,
    Describe,
    Fate,
    Fence,
    Forget,
    ListOpen,
    Read,
    TaskOutcome,
)

#: The numbers by which the batches of a checkpoint differ from those of the checkpoint before it.
EPOCH = 100
_CLOSED = "closed"
#: The states of the transactional ids that a clean-up lists.
LISTED: tuple[str, ...] = ("open", "empty")


class Bounds(NamedTuple):
    """The limits of a world. `slots`: the number of tasks of each run."""

    batches: int = 1
    slots: tuple[int, ...] = (1, 1)
    executions: int = 1  # The attempts of one task.
    lost_answers: int = 0
    delays: int = 0
    timeouts: int = 0
    abandoned_commits: int = 1
    empty_slots: tuple[int, ...] = ()  # The slots of tasks that have no rows.
    job: bool = False  # True for a batch job without a commitId, which has one run and no log.
    renewed: int = 99  # The first run with another checkpoint, and with batches of its own.
    ROWS: int = 2  # The rows of a batch.

    def checkpoint(self, run: int) -> int:
        return int(run >= self.renewed)


# --- actions of tasks that are not actions of the protocol ---


class Name(NamedTuple):
    """The action of choosing a transactional id of the worker process. The answer: the id."""

    batch: int
    over: int


class Init(NamedTuple):
    """The action InitProducerId. The answer: the epoch."""

    run: str
    name: str


class Write(NamedTuple):
    """The action of writing rows, or with no rows that of adding a partition to the transaction.
    The answer: True if the brokers have accepted it."""

    run: str
    name: str
    epoch: int
    batch: int
    rows: tuple[int, ...]


# --- the world ------------------------------------------------------------------------------------


class Txn(NamedTuple):
    """The state of one transactional id; in a `World`, (run, name) identifies the id."""

    epoch: int = -1
    status: str = "empty"  # open, committed, aborted, closed
    rows: tuple[tuple[int, int], ...] = ()  # (batch, row)
    batch: int = -1


class Process(NamedTuple):
    """A running procedure, given by the answers that it has got so far.

    `ends`: the answers to the single ends of an End action that is not complete yet.
    """

    kind: str  # task, commit, abort
    run: int
    batch: int
    slot: int = 0
    execution: int = 0
    worker: int = 0
    outcomes: tuple[TaskOutcome, ...] = ()
    history: tuple[Any, ...] = ()
    ends: tuple[bool, ...] = ()
    heard: bool = True  # False if its driver does not wait for it any more.


class Run(NamedTuple):
    """A run of the query, with its driver. `phase`: tasks, commit, abort, log, over."""

    batch: int
    phase: str = "tasks"
    outcomes: tuple[TaskOutcome | None, ...] = ()
    executions: tuple[int, ...] = ()


class World(NamedTuple):
    """The state of brokers, Spark and all processes."""

    log: tuple[LedgerEntry, ...] = ()
    log_end: int = 0
    pending: tuple[tuple[str, ledger.LedgerRecord], ...] = ()
    txns: tuple[tuple[tuple[str, str], Txn], ...] = ()
    visible: tuple[tuple[int, int], ...] = ()
    spark_logs: tuple[int, ...] = (-1, -1)  # The newest committed batch of each checkpoint.
    runs: tuple[Run, ...] = ()
    processes: tuple[Process, ...] = ()
    # The transactional ids of each worker process: ((run, worker), ((name, last batch), ...)).
    names: tuple[tuple[tuple[int, int], tuple[tuple[str, int], ...]], ...] = ()
    # The remaining numbers of the faults that `Bounds` limits.
    lost_answers: int = 0
    delays: int = 0
    timeouts: int = 0
    abandoned_commits: int = 0
    # Notes for `violation`; no procedure sees them.
    counted: int = -1
    claimer: str = ""
    claimed: tuple[str, ...] = ()
    wrong: str = ""
    checked: tuple[str, ...] = ()  # The runs that found all their transactions open.
    # True if a participant of a run in `checked` was aborted by its timeout after the check: no
    # protocol can prevent this.
    too_late: bool = False
    given_up: tuple[str, ...] = ()  # The runs whose batch was aborted.

    def txn(self, run: str, name: str) -> Txn:
        return dict(self.txns).get((run, name), Txn())

    def with_txn(self, run: str, name: str, txn: Txn) -> World:
        txns = dict(self.txns)
        txns[(run, name)] = txn
        return self._replace(txns=tuple(sorted(txns.items())))


def first_world(bounds: Bounds) -> World:
    """The world in which nothing has happened."""
    return World(
        lost_answers=bounds.lost_answers,
        delays=bounds.delays,
        timeouts=bounds.timeouts,
        abandoned_commits=bounds.abandoned_commits,
    )


# --- brokers --------------------------------------------------------------------------------------


def carry_out(world: World, action: Any) -> tuple[Any, World]:
    """Carry out an action that is a single step. Returns (answer, the world afterwards)."""
    if isinstance(action, Read):
        return ledger.newest(world.log), world
    if isinstance(action, Describe):
        return tuple(fate(world, action.run, part) for part in action.participants), world
    if isinstance(action, ListOpen):
        found = tuple(
            key for key, txn in world.txns if txn.status in LISTED and key[0] in action.runs
        )
        return found, world
    if isinstance(action, Fence):
        for run, name in action.transactions:
            _, world = init(world, run, name)
        return None, world
    if isinstance(action, Close):
        return None, world.with_txn(action.run, _CLOSED, Txn(0, "closed"))
    if isinstance(action, AskClosed):
        return world.txn(action.run, _CLOSED).status == "closed", world
    if isinstance(action, Forget):
        kept = tuple(entry for entry in world.log if entry.key not in action.keys)
        return None, world._replace(log=kept)
    if isinstance(action, Init):
        return init(world, action.run, action.name)
    assert isinstance(action, Write), action
    return write(world, action)


def init(world: World, run: str, name: str) -> tuple[int, World]:
    """InitProducerId without an expected producer id and epoch."""
    txn = world.txn(run, name)
    return txn.epoch + 1, world.with_txn(run, name, Txn(txn.epoch + 1))


def write(world: World, action: Write) -> tuple[bool, World]:
    """Append a producer's records to its open transaction, or begin a transaction with them."""
    txn = world.txn(action.run, action.name)
    if txn.epoch != action.epoch:
        return False, world
    before = txn.rows if txn.status == "open" else ()
    rows = before + tuple((action.batch, row) for row in action.rows)
    return True, world.with_txn(action.run, action.name, Txn(txn.epoch, "open", rows, action.batch))


def end(world: World, run: str, part: Participant, commit: bool) -> tuple[bool, World]:
    """EndTxn version 5: each end increases the epoch, and a repeated request gets the same response
    (T-65, T-66)."""
    txn = world.txn(run, part.name)
    target = "committed" if commit else "aborted"
    if txn.status == "open" and txn.epoch == part.epoch:
        changed = world.with_txn(run, part.name, Txn(txn.epoch + 1, target))
        if commit:
            changed = changed._replace(visible=tuple(sorted(world.visible + txn.rows)))
        return True, changed
    return txn.status == target and txn.epoch == part.epoch + 1, world


def fate(world: World, run: str, part: Participant) -> Fate:
    """The state of a transaction as DescribeTransactions returns it."""
    txn = world.txn(run, part.name)
    if txn.status == "open":
        return Fate.OPEN if txn.epoch == part.epoch else Fate.UNKNOWN
    if txn.epoch != part.epoch + 1 or txn.status == "empty":
        return Fate.UNKNOWN
    return Fate.COMMITTED if txn.status == "committed" else Fate.ABORTED


def appended(world: World, key: str, record: ledger.LedgerRecord) -> World:
    """Append the record to the log, and note what `violation` needs, as S-04 defines it."""
    entry = LedgerEntry(world.log_end, key, record)
    world = world._replace(log=(*world.log, entry), log_end=world.log_end + 1)
    if record.after != world.counted:
        return world
    world = world._replace(counted=entry.offset)
    state = record.state
    if record.kind is LedgerRecordType.CLAIM:
        wrong = ""
        if state.holder in world.claimed:
            wrong = f"{state.holder} claims a second time"
        return world._replace(
            claimer=state.holder,
            claimed=(*world.claimed, state.holder),
            wrong=world.wrong or wrong,
        )
    if record.kind is LedgerRecordType.COMMIT and state.run != world.claimer:
        return world._replace(wrong=f"the zombie {state.run} decided batch {state.batch}")
    return world


# --- judgement ------------------------------------------------------------------------------------


def violation(world: World, bounds: Bounds) -> str:
    """The violation in a world, "" if there is none."""
    if world.wrong:
        return world.wrong
    if len(set(world.visible)) != len(world.visible):
        return f"rows are visible twice: {world.visible}"
    shown = set(world.visible)
    noted = {
        batch + EPOCH * checkpoint
        for checkpoint, newest in enumerate(world.spark_logs)
        for batch in range(newest + 1)
    }
    for batch in noted:
        missing = [row for row in range(bounds.ROWS) if (batch, row) not in shown]
        if missing:
            return f"Spark has committed batch {batch}, and its rows {missing} are not visible"
    for (run, name), txn in world.txns:
        if txn.status != "open":
            continue
        if txn.batch in noted:
            return f"Spark has committed batch {txn.batch}, and its {run}.{name} is still open"
        if run in world.given_up:
            return f"{run} has given up, and its transaction {name} is still open"
    return ""
