"""Explorations of the protocol of the exactly-once sink find no violation. In each variant without
one of the rules they must find a violation.

The large explorations are slow: ``pytest tests/spark/test_exactly_once_model.py -m slow``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any

import pytest

import budget
import exactly_once_model as model
import exactly_once_world as world_of
from exactly_once_model import Explorer
from exactly_once_world import Bounds, Name, Process, World
from pyspark_odradek.exactly_once import ledger, protocol
from pyspark_odradek.exactly_once.identity import Writer
from pyspark_odradek.exactly_once.ledger import (
    LedgerEntry,
    LedgerRecord,
    LedgerState,
    NewestDecision,
    Participant,
)
from pyspark_odradek.exactly_once.protocol import (
    Append,
    Begun,
    Close,
    End,
    Fence,
    ListOpen,
    Read,
    TaskOutcome,
    Terms,
)

# --- the protocol itself --------------------------------------------------------------------------

SMALL = {
    "a late task": Bounds(slots=(1,), executions=2, abandoned_commits=0),
    "a late task of a job": Bounds(slots=(1,), executions=2, job=True),
    "a new checkpoint": Bounds(slots=(1, 1), abandoned_commits=0, renewed=1),
    "one run, and its abort and commit at once": Bounds(slots=(2,)),
    "two runs at once": Bounds(slots=(1, 1), abandoned_commits=0),
    "answers are lost": Bounds(slots=(2,), lost_answers=1, timeouts=1),
    "appends come later": Bounds(slots=(1,), delays=1, timeouts=1),
}
LARGE = {
    "a late task, abandoned commits": Bounds(slots=(1,), executions=2),
    "late tasks of a job": Bounds(slots=(2,), executions=2, abandoned_commits=0, job=True),
    "two runs, timeouts": Bounds(slots=(1, 1), timeouts=1, abandoned_commits=0),
}
HUGE = {
    "two runs, abandoned commits": Bounds(slots=(1, 1)),
    "two executions of a task": Bounds(slots=(1,), executions=2, delays=1),
    "other tasks in the replay": Bounds(slots=(2, 1), abandoned_commits=0),
    "two batches": Bounds(slots=(1,), batches=2, executions=2),
}
RANDOM = {
    "for ever": Bounds(
        batches=3, slots=(2, 1, 2), executions=2, delays=2, lost_answers=2, abandoned_commits=2
    ),
    "until the broker's timeout": Bounds(
        batches=2,
        slots=(2, 1, 2),
        executions=2,
        delays=2,
        lost_answers=2,
        timeouts=2,
        abandoned_commits=2,
    ),
    "with new checkpoints": Bounds(
        batches=2, slots=(2, 1, 2), executions=2, delays=1, lost_answers=2, renewed=1
    ),
    "with empty tasks": Bounds(batches=3, slots=(3, 2, 3), executions=2, empty_slots=(1,)),
}


@pytest.mark.parametrize("name", budget.of_which(SMALL, list(SMALL)[:1]))
def test_every_state_of_the_small_models_is_right(name: str) -> None:
    """Rules S-01 to S-15 hold in all interleavings; a recovery is tried from every fifth state."""
    explorer = Explorer(SMALL[name])
    assert explorer.everything(60_000, recover_every=5) == ""
    assert explorer.explored > 1000


@pytest.mark.parametrize("name", budget.of_which(RANDOM, list(RANDOM)[:1]))
def test_random_walks_find_no_violation(name: str) -> None:
    explorer = Explorer(RANDOM[name])
    assert explorer.at_random(seed=1, walks=150) == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LARGE)
def test_every_state_of_the_large_models_is_right(name: str) -> None:
    assert Explorer(LARGE[name]).everything(3_000_000, recover_every=20) == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", HUGE)
def test_the_first_states_of_the_huge_models_are_right(name: str) -> None:
    """Each of these models has more than three million states. The states nearest to the first are
    explored, in all interleavings."""
    explorer = Explorer(HUGE[name])
    assert explorer.everything(500_000, recover_every=20, complete=False) == ""
    assert explorer.explored > 100_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_random_walks_find_no_violation(name: str, seed: int) -> None:
    assert Explorer(RANDOM[name]).at_random(seed, walks=4000) == ""


# --- violations if a rule is left out ---

Patch = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, tuple[Patch, str]] = {}


def mutant(name: str, found: str) -> Callable[[Patch], Patch]:
    """A decorator that registers a mutant. `found`: a part of the violation that the exploration
    must find."""

    def register(patch: Patch) -> Patch:
        MUTANTS[name] = (patch, found)
        return patch

    return register


HUNTING = (
    Bounds(slots=(1,), executions=2, abandoned_commits=0),
    Bounds(slots=(1,), executions=2, abandoned_commits=0, job=True),
    Bounds(batches=2, slots=(1,), executions=2, abandoned_commits=0),
    Bounds(slots=(1, 1), abandoned_commits=0),
    Bounds(slots=(2,), timeouts=1),
    Bounds(batches=2, slots=(2, 1, 1), executions=2, delays=1, lost_answers=1),
    Bounds(batches=2, slots=(2, 2), executions=2, timeouts=1),
    Bounds(batches=3, slots=(1, 1), executions=2),
    Bounds(batches=2, slots=(1, 1), abandoned_commits=0),
    Bounds(batches=2, slots=(2, 2), empty_slots=(1,)),
    Bounds(slots=(1, 1), abandoned_commits=0, renewed=1),
)


def hunt(seeds: int) -> str:
    """The violation that random walks within several bounds find; "" if they find none."""
    for seed in range(seeds):
        for bounds in HUNTING:
            found = Explorer(bounds).at_random(seed, walks=80)
            if found:
                return found
    return ""


@mutant("no claims: a zombie is not fenced", "")
def _no_claims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "claim", lambda state, run: None)
    patch.setattr(ledger, "refuse_superseded", lambda state, writer: None)

    def as_holder(change: Callable[..., LedgerRecord]) -> Callable[..., LedgerRecord]:
        def changed(state: LedgerState, by: Any, *rest: Any) -> LedgerRecord:
            run = by.run if isinstance(by, Writer) else by
            record = change(replace(state, holder=run), by, *rest)
            return record._replace(state=replace(record.state, holder=""))

        return changed

    patch.setattr(ledger, "commit", as_holder(ledger.commit))
    patch.setattr(ledger, "finish", as_holder(ledger.finish))


@mutant("decided before the participants are looked at", "")
def _unchecked(patch: pytest.MonkeyPatch) -> None:
    def unchecked(terms: Terms, participants: Any) -> protocol.Steps:
        yield from ()

    patch.setattr(protocol, "_check_open", unchecked)


@mutant("a new run aborts what it finds, decided or not", "")
def _fences_first(patch: pytest.MonkeyPatch) -> None:
    begin = protocol.begin_task

    def fencing(terms: Terms) -> Generator[Any, Any, Begun]:
        begun = yield from begin(terms)
        found = yield Read()
        left = yield ListOpen(found.state.past)
        yield Fence(left)
        return begun

    patch.setattr(protocol, "begin_task", fencing)


@mutant("no read-back: what was appended is taken to count", "")
def _no_read_back(patch: pytest.MonkeyPatch) -> None:
    def believing(
        commit: Callable[..., Generator[Any, Any, bool]],
    ) -> Callable[..., Generator[Any, Any, bool]]:
        def steps(terms: Terms, outcomes: tuple[TaskOutcome, ...]) -> Generator[Any, Any, bool]:
            inner = commit(terms, outcomes)
            answer: Any = None
            believed: NewestDecision | None = None
            try:
                while True:
                    action = inner.send(answer)
                    if isinstance(action, Read) and believed is not None:
                        answer, believed = believed, None
                        continue
                    answer = yield action
                    if isinstance(action, Append):
                        believed = NewestDecision(
                            action.record.after + 1, "mine", action.record.state
                        )
            except StopIteration as stop:
                return bool(stop.value)

        return steps

    patch.setattr(protocol, "commit", believing(protocol.commit))


@mutant("abort does not care for a decision", "")
def _ruthless_abort(patch: pytest.MonkeyPatch) -> None:
    def ruthless(terms: Terms) -> Generator[Any, Any, bool]:
        left = yield ListOpen((terms.writer.run,))
        yield Fence(left)
        return True

    patch.setattr(protocol, "abort", ruthless)


@mutant("abort looks for a decision, and does not prevent one", "")
def _abort_without_a_record(patch: pytest.MonkeyPatch) -> None:
    def looking(terms: Terms) -> Generator[Any, Any, bool]:
        found = yield Read()
        if found.state.run == terms.writer.run and not found.state.done:
            return False
        left = yield ListOpen((terms.writer.run,))
        yield Fence(left)
        return True

    patch.setattr(protocol, "abort", looking)


Naming = Callable[[World, Process, Name], str]


def _named(patch: pytest.MonkeyPatch, name: Naming) -> None:
    def taken(world: World, process: Process, action: Name) -> tuple[str, World]:
        return name(world, process, action), world

    patch.setattr(model, "take_name", taken)


@mutant("executions of a task share an id", "")
def _shared_ids(patch: pytest.MonkeyPatch) -> None:
    _named(patch, lambda world, process, action: f"{process.batch}-{process.slot}")


@mutant("ids of query, run, slot and attempt, shared by batches", "")
def _ids_shared_by_batches(patch: pytest.MonkeyPatch) -> None:
    _named(patch, lambda world, process, action: f"{process.slot}-{process.execution}")


@mutant("a worker uses one id for all tasks of a batch", "")
def _one_id_per_worker(patch: pytest.MonkeyPatch) -> None:
    _named(patch, lambda world, process, action: f"{process.worker}")


@mutant("a task without rows is a participant", "recovery failed")
def _empty_participant(patch: pytest.MonkeyPatch) -> None:
    def participates(process: Process) -> TaskOutcome:
        name = f"{process.batch}-{process.slot}-e"
        return TaskOutcome(0, Participant(name, 0, 0, 2, process.slot, 0))

    patch.setattr(model, "empty_outcome", participates)


@mutant("done before all participants are ended", "")
def _done_too_early(patch: pytest.MonkeyPatch) -> None:
    def early(terms: Terms, found: NewestDecision) -> protocol.Steps:
        state = found.state
        yield End(state.run, state.participants[:1], True)
        yield Append(ledger.finish(state, terms.writer.run)._replace(after=found.offset))
        yield End(state.run, state.participants[1:] or state.participants, True)

    patch.setattr(protocol, "_carry_out", early)


@mutant("the last of those that name the same record counts", "")
def _last_wins(patch: pytest.MonkeyPatch) -> None:
    def last(entries: Iterable[LedgerEntry]) -> NewestDecision:
        best = max(entries, key=lambda each: (each.record.after, each.offset), default=None)
        return (
            NewestDecision()
            if best is None
            else NewestDecision(best.offset, best.key, best.record.state)
        )

    patch.setattr(ledger, "newest", last)


@mutant("the newest record counts, whatever it names", "")
def _newest_wins(patch: pytest.MonkeyPatch) -> None:
    def last(entries: Iterable[LedgerEntry]) -> NewestDecision:
        best = max(entries, key=lambda each: each.offset, default=None)
        return (
            NewestDecision()
            if best is None
            else NewestDecision(best.offset, best.key, best.record.state)
        )

    patch.setattr(ledger, "newest", last)


@mutant("cleaning up does not spare runs that may be newer", "")
def _cleans_all(patch: pytest.MonkeyPatch) -> None:
    def everything(terms: Terms, found: NewestDecision) -> protocol.Steps:
        left = yield ListOpen(tuple(f"r{run}" for run in range(9)))
        yield Fence(left)

    patch.setattr(protocol, "_clean_up", everything)


@mutant("nothing is cleaned up", "still open")
def _cleans_nothing(patch: pytest.MonkeyPatch) -> None:
    def nothing(terms: Terms, found: NewestDecision) -> protocol.Steps:
        yield from ()

    patch.setattr(protocol, "_clean_up", nothing)


@mutant("cleaning up leaves ids alone that have written no row", "still open")
def _cleans_what_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world_of, "LISTED", ("open",))


def _nothing_confirmed(terms: Terms) -> protocol.Steps:
    yield from ()


@mutant("a task with a new id does not look whether its batch is over", "still open")
def _unconfirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(protocol, "confirm_task", _nothing_confirmed)


@mutant("a task of a job does not look whether the job is over", "still open")
def _unconfirmed_job(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(protocol, "confirm_job_task", _nothing_confirmed)


@mutant("a job cleans up before it is recorded as over", "still open")
def _closed_too_late(patch: pytest.MonkeyPatch) -> None:
    def closing(terms: Terms) -> protocol.Steps:
        yield from protocol._fence_all((terms.writer.run,))
        yield Close(terms.writer.run)

    patch.setattr(protocol, "_close_job", closing)


@mutant("a task looks whether its batch is over before it has its id", "still open")
def _confirmed_too_early(patch: pytest.MonkeyPatch) -> None:
    begin, confirm = protocol.begin_task, protocol.confirm_task

    def beginning(terms: Terms) -> Generator[Any, Any, Begun]:
        begun = yield from begin(terms)
        if begun.write:
            yield from confirm(terms)
        return begun

    patch.setattr(protocol, "begin_task", beginning)
    patch.setattr(protocol, "confirm_task", _nothing_confirmed)


@mutant("a new run does not know what older ones decided", "twice")
def _forgets(patch: pytest.MonkeyPatch) -> None:
    claim = ledger.claim

    def forgetting(state: LedgerState, run: str) -> LedgerRecord | None:
        record = claim(state, run)
        if record is None or not state.done:
            return record
        return record._replace(state=replace(record.state, batch=-1, run="", rows=0))

    patch.setattr(ledger, "claim", forgetting)


@mutant("a batch of a new checkpoint counts as one of the old checkpoint", "")
def _same_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerState, "batch_of", lambda state, writer: state.batch)


@mutant("a new checkpoint does not end the batch that the old one has decided", "")
def _ends_nothing(patch: pytest.MonkeyPatch) -> None:
    claim = ledger.claim

    def claiming(state: LedgerState, run: str) -> LedgerRecord | None:
        record = claim(state, run)
        if record is None or run == "r0":
            return record
        return record._replace(state=replace(record.state, done=True, participants=()))

    patch.setattr(ledger, "claim", claiming)


@mutant("a decision is revoked although a part of it is visible", "")
def _revokes_too_much(patch: pytest.MonkeyPatch) -> None:
    def revoking(terms: Terms, found: NewestDecision) -> protocol.Steps:
        yield Append(ledger.revoke(found.state, terms.writer.run)._replace(after=found.offset))

    patch.setattr(protocol, "_settle_loss", revoking)


@pytest.mark.full
@pytest.mark.parametrize("name", budget.of_which(MUTANTS, list(MUTANTS)[::4]))
def test_a_protocol_without_a_rule_is_found_wrong(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, expected = MUTANTS[name]
    patch(monkeypatch)
    found = hunt(seeds=12)
    assert found, "nothing was found"
    print(found)
    assert expected in found


@pytest.mark.full
def test_the_unchanged_protocol_is_not_found_wrong() -> None:
    assert hunt(seeds=1) == ""
