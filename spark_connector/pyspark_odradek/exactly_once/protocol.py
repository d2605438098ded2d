"""The protocol of exactly-once writes: the steps of tasks and driver (docs/rules/spark.md).

Each procedure is a generator that yields an `Action`, receives its outcome, and in the end returns
a result. `brokers` carries out the actions on a cluster. A model in the tests carries them out on a
simulated cluster, with every interleaving, and with crashes between any two actions. The procedures
never wait, and use no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek_protocol.lazy_tuple import NamedTuple
from pyspark_odradek.errors import SinkError, StaleBatch, TooLate, TransactionsLost
from pyspark_odradek.exactly_once import ledger, targets
from pyspark_odradek.exactly_once.identity import Writer
from pyspark_odradek.exactly_once.ledger import (
    LedgerRecord,
    LedgerState,
    NewestDecision,
    Participant,
)

#: The number of attempts after which a procedure gives up, because other writers of the log were
#: always faster.
ATTEMPTS_MAX = 50
_NAMED_MAX = 5

# --- actions and their results --------------------------------------------------------------------


class Read(NamedTuple):
    """Read the log -> Found: the query's newest record that counts. All records that were
    acknowledged before the read are covered."""


class Append(NamedTuple):
    """Append to the log -> None. Afterwards the log has to be read, because it is unknown whether
    the record was appended, or will be appended later (S-04).
    """

    record: LedgerRecord


class Describe(NamedTuple):
    """Describe transactions -> a tuple of Fate, one for each participant."""

    run: str
    participants: tuple[Participant, ...]


class End(NamedTuple):
    """Commit or abort transactions -> a tuple of bool, False for each transaction whose end was
    refused. Requests are repeated until there is an answer. May raise."""

    run: str
    participants: tuple[Participant, ...]
    commit: bool


class ListOpen(NamedTuple):
    """List the open transactions of these runs of the query, and the transactional ids that have
    written no row, because their transaction only begins with the first row -> a tuple of (run,
    name)."""

    runs: tuple[str, ...]


class Fence(NamedTuple):
    """Abort transactions, given by run and name, and fence their writers -> None."""

    transactions: tuple[tuple[str, str], ...]


class Close(NamedTuple):
    """Record at the brokers that the job of this run is over -> None (S-16)."""

    run: str


class AskClosed(NamedTuple):
    """Ask whether the job of this run is over -> bool."""

    run: str


class Forget(NamedTuple):
    """Allow compaction to remove these keys of the log -> None. May fail."""

    keys: tuple[str, ...]


Action = Read | Append | Describe | End | ListOpen | Fence | Close | AskClosed | Forget
Steps = Generator[Action, Any, Any]


class Fate(Enum):
    """The outcome of a transaction. UNKNOWN if its id was used again, or if the broker does not
    know the id."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


# --- the results of tasks
# --------------------------------------------------------------------------


class Begun(NamedTuple):
    """The result of `begin_task`: whether the task writes its rows or only counts them. `over`: the
    result of `LedgerState.over`."""

    write: bool
    over: int = -1


class TaskOutcome(NamedTuple):
    """The outcome of a task whose rows are all acknowledged. A task without rows has no participant
    (S-03). `targets`: see the module `targets`."""

    rows: int
    participant: Participant | None = None
    targets: int = 0


@dataclass(frozen=True)
class Terms:
    """The conditions of a write. `lenient`: true to continue with a warning if rows are lost, or if
    a replay has different rows."""

    writer: Writer
    batch: int
    lenient: bool = False
    warn: Callable[[str], None] = lambda text: None

    @property
    def write(self) -> str:
        """The write, as an error calls it."""
        return self.writer.write(self.batch)

    @property
    def again(self) -> str:
        """The act that repeats the write, as an error calls it."""
        return "restart" if self.writer.commit_id is None else "repetition"


# --- the task -------------------------------------------------------------------------------------


def begin_task(terms: Terms) -> Generator[Action, Any, Begun]:
    """Begin a task, before its first row (S-03). Raises Superseded, StaleBatch."""
    run = terms.writer.run
    for _ in range(ATTEMPTS_MAX):
        found = yield Read()
        state = _admitted(found, terms)
        claim = ledger.claim(state, run)
        if claim is not None:
            yield _append(found, claim)
        elif state.batch_of(terms.writer) == terms.batch:
            return Begun(write=False)
        else:
            return Begun(write=True, over=state.over(terms.writer))
    raise _overtaken(terms)


def confirm_task(terms: Terms) -> Steps:
    """Check that the batch is not over. A task does so when it has its transactional id, before its
    first row (S-18). Raises Superseded, TooLate.

    The driver first records that the batch is over, and then lists the ids of the run. So either
    the driver finds this id and fences it, or this task finds the record.
    """
    found = yield Read()
    state, run = found.state, terms.writer.run
    ledger.refuse_superseded(state, terms.writer)
    if state.run == run and state.batch >= terms.batch:
        raise _too_late(terms)


def confirm_job_task(terms: Terms) -> Steps:
    """Check, as in `confirm_task`, that a batch job without a `commitId` is not over (S-16)."""
    if (yield AskClosed(terms.writer.run)):
        raise _too_late(terms)


# --- the driver -----------------------------------------------------------------------------------


def commit(terms: Terms, outcomes: tuple[TaskOutcome, ...]) -> Generator[Action, Any, bool]:
    """Commit a batch whose tasks have all succeeded. True if this run decided the batch; False if
    an earlier run did.

    Raises Superseded, StaleBatch, TransactionsLost. After an error no more rows of the batch become
    visible, unless the batch is decided; then a restart completes it.
    """
    run = terms.writer.run
    participants = _participants(outcomes)
    rows = sum(outcome.rows for outcome in outcomes)
    topics = targets.text_of(targets.total(outcome.targets for outcome in outcomes))
    checked = False
    decided = False
    for _ in range(ATTEMPTS_MAX):
        found = yield Read()
        state = _admitted(found, terms)
        claim = ledger.claim(state, run)
        if claim is not None:
            yield _append(found, claim)
        elif not state.done:
            yield from _carry_out(terms, found)
        elif state.batch_of(terms.writer) == terms.batch:
            decided = state.run == run
            if not decided:
                _compare(terms, state, rows, topics)
            yield from _clean_up(terms, found)
            return decided
        elif not checked:
            yield from _check_open(terms, participants)
            checked = True
        else:
            decision = ledger.commit(state, terms.writer, terms.batch, rows, topics, participants)
            yield _append(found, decision)
    raise _overtaken(terms)


def is_decided_for_every_topic(terms: Terms) -> Generator[Action, Any, bool]:
    """True if this batch or a newer one is decided, by a connector that did not distinguish topics
    (S-16)."""
    found = yield Read()
    return bool(found.state.batch >= terms.batch and found.state.targets is None)


def _participants(outcomes: tuple[TaskOutcome, ...]) -> tuple[Participant, ...]:
    return tuple(each.participant for each in outcomes if each.participant is not None)


def _check_open(terms: Terms, participants: tuple[Participant, ...]) -> Steps:
    """Check, before the decision, that all transactions are open: a decision cannot be undone
    (S-08).
    """
    if not participants:
        return
    fates = yield Describe(terms.writer.run, participants)
    lost = [each for each, fate in zip(participants, fates, strict=True) if fate is not Fate.OPEN]
    if lost:
        raise TransactionsLost(
            f"odradek: {terms.write} cannot be committed: "
            f"{_tasks(lost)} are not open any more. They were open for longer than the broker allows "
            "(transaction.max.timeout.ms), or somebody aborted them. Nothing of the batch is visible; "
            f"a {terms.again} writes it again. Make batches smaller, or raise that setting of the broker"
        )


def _carry_out(terms: Terms, found: NewestDecision) -> Steps:
    """Commit the transactions of a decided batch, and then record that they are ended (S-09,
    S-10)."""
    state: LedgerState = found.state
    ended = yield End(state.run, state.participants, True)
    if all(ended):
        yield _append(found, ledger.finish(state, terms.writer.run))
        return
    now = yield Read()
    if now.offset != found.offset:
        return  # Another process has appended a record first; the caller reads the log again.
    yield from _settle_loss(terms, found)


def _settle_loss(terms: Terms, found: NewestDecision) -> Steps:
    """Handle participants that were aborted after the decision (S-11, S-12)."""
    state, run = found.state, terms.writer.run
    fates = yield Describe(state.run, state.participants)
    if Fate.COMMITTED not in fates and Fate.UNKNOWN not in fates:
        # Rows of the batch are not visible, so the whole batch can be written again.
        still_open = _with(state.participants, fates, Fate.OPEN)
        if still_open:
            yield End(state.run, still_open, False)
            fates = yield Describe(state.run, state.participants)
    lost = _without(state.participants, fates, Fate.COMMITTED)
    about = terms.writer.write(state.batch)
    if all(fate is Fate.ABORTED for fate in fates):
        yield _append(found, ledger.revoke(state, run))
        now = yield Read()
        if now.state == ledger.revoke(state, run).state:
            follows = f"a {terms.again} writes it again"
            if state.batch_of(terms.writer) != state.batch:
                follows = (
                    f"its checkpoint {state.checkpoint} was replaced, so nothing writes it again"
                )
            raise TransactionsLost(
                f"odradek: {about} was decided, but {_tasks(lost)} were aborted before they were "
                "committed: recovery came later than the broker's transaction.max.timeout.ms. "
                f"Nothing of the batch is visible, and the decision is revoked: {follows}. "
                "A broker with KIP-939 keeps prepared transactions"
            )
        return
    text = (
        f"odradek: {about} is lost in part: {_tasks(lost)} were aborted after it was decided, the "
        "others are visible. Recovery came later than the broker's transaction.max.timeout.ms, or "
        "somebody aborted them"
    )
    if not terms.lenient:
        raise TransactionsLost(
            f"{text}. Write these rows by other means, and then accept the loss by one {terms.again} with "
            "failOnDataLoss=false"
        )
    terms.warn(text)
    yield _append(found, ledger.finish(state, run))


def _clean_up(terms: Terms, found: NewestDecision) -> Steps:
    """Abort the transactions of late and failed tasks and of superseded runs, because open
    transactions block readers (S-15).

    Runs that are not known to be superseded are skipped, because they may be newer.
    """
    yield from _fence_all((*found.state.past, terms.writer.run))
    if found.needless:
        yield Forget(found.needless)


# --- giving up ------------------------------------------------------------------------------------


def abort(terms: Terms) -> Generator[Action, Any, bool]:
    """Give up a failed batch (S-14). False if the batch is already decided, so that a replay
    completes it."""
    run = terms.writer.run
    for _ in range(ATTEMPTS_MAX):
        found = yield Read()
        state = found.state
        if state.run == run and not state.done:
            return False
        if run in state.past:
            # While a decided batch of an earlier run is not finished, the next run needs the
            # transactions of this batch. So only the transactions of `run` are fenced.
            yield from _fence_all(state.past if state.done else (run,))
            return True
        yield _append(found, ledger.resign(state, run))
    raise _overtaken(terms)


def _fence_all(runs: tuple[str, ...]) -> Steps:
    """Fence the transactions of these runs, of which all tasks know, or will find out, that their
    batch is over (S-18)."""
    left = yield ListOpen(runs)
    if left:
        yield Fence(left)


# --- jobs that no other job repeats ---------------------------------------------------------------


def commit_job(terms: Terms, outcomes: tuple[TaskOutcome, ...]) -> Generator[Action, Any, bool]:
    """Commit a batch job without a `commitId` (S-16). The commit of its first transaction is the
    decision."""
    participants = _participants(outcomes)
    yield from _check_open(terms, participants)
    yield from _finish_job(terms, participants)
    yield from _close_job(terms)
    return True


def abort_job(terms: Terms, participants: tuple[Participant, ...]) -> Generator[Action, Any, bool]:
    """Give up a failed job (S-16). False if a transaction of the job is already committed; then
    all transactions of the job are committed."""
    decided = False
    if participants:
        fates = yield Describe(terms.writer.run, participants)
        decided = Fate.COMMITTED in fates
        if decided:
            yield from _finish_job(terms, participants)
    yield from _close_job(terms)
    return not decided


def _finish_job(terms: Terms, participants: tuple[Participant, ...]) -> Steps:
    if not participants:
        return
    ended = yield End(terms.writer.run, participants, True)
    lost = [each for each, ok in zip(participants, ended, strict=True) if not ok]
    if lost:
        raise TransactionsLost(
            f"odradek: the job was committed in part: {_tasks(lost)} were aborted meanwhile, by the "
            "broker's transaction.max.timeout.ms or by somebody. A job with a commitId can be "
            "repeated"
        )


def _close_job(terms: Terms) -> Steps:
    """Abort what late and failed tasks have left, because no later job would do so."""
    yield Close(terms.writer.run)
    yield from _fence_all((terms.writer.run,))


# --- shared ---------------------------------------------------------------------------------------


def _admitted(found: NewestDecision, terms: Terms) -> LedgerState:
    """The state of the query, if this run is not superseded."""
    ledger.refuse_superseded(found.state, terms.writer)
    ledger.refuse_stale(found.state, terms.writer, terms.batch)
    return found.state


def _append(found: NewestDecision, record: LedgerRecord) -> Append:
    return Append(record._replace(after=found.offset))


def _compare(terms: Terms, state: LedgerState, rows: int, topics: str) -> None:
    """Check that a replay has as many rows for each topic as the written batch (S-07)."""
    if rows != state.rows:
        difference = f"rows, and now has {rows}"
    elif state.targets not in (None, topics):
        difference = f"rows for other topics than the {rows} rows that it has"
    else:
        return
    text = f"odradek: {terms.write} was written with {state.rows} {difference}. It was not written again. "
    if terms.writer.commit_id is None:
        text += "Either the checkpoint is an old copy, or the query gives other rows when it is run again"
    else:
        text += "Either another write has this commitId and commitVersion, or the job gives other rows now"
    if not terms.lenient:
        raise StaleBatch(
            f"{text}; if that is meant, accept it by one {terms.again} with failOnDataLoss=false"
        )
    terms.warn(text)


def _too_late(terms: Terms) -> TooLate:
    return TooLate(
        f"odradek: {terms.write} is over, and this attempt of a task comes too late: it has written "
        "nothing, and nothing is missing"
    )


def _overtaken(terms: Terms) -> SinkError:
    return SinkError(
        f"odradek: {terms.write} (run {terms.writer.run}) was overtaken {ATTEMPTS_MAX} times in its "
        "decision log, or its records do not arrive there; look at the broker, and at who else runs "
        "this query or job"
    )


def _with(
    participants: tuple[Participant, ...], fates: tuple[Fate, ...], fate: Fate
) -> tuple[Participant, ...]:
    return tuple(p for p, found in zip(participants, fates, strict=True) if found is fate)


def _without(
    participants: tuple[Participant, ...], fates: tuple[Fate, ...], fate: Fate
) -> tuple[Participant, ...]:
    return tuple(p for p, found in zip(participants, fates, strict=True) if found is not fate)


def _tasks(participants: list[Participant] | tuple[Participant, ...]) -> str:
    named = ", ".join(f"{p.slot} ({p.rows} rows, {p.name})" for p in participants[:_NAMED_MAX])
    more = len(participants) - _NAMED_MAX
    return f"the transactions of tasks {named}{f' and {more} more' if more > 0 else ''}"
