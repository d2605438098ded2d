"""The records of the decision log of one query as plain values, the choice of the record that
counts, and the changes of state.

Every record has the whole state after a decision, and in `after` the offset of the newest record
that its writer knew. A record counts only if no other record that counts was appended between
`after` and the record (S-04). So of several records with equal `after`, only the first counts.
Therefore the records that count do not contradict each other, and a reader needs only the newest of
them (S-05).

Only the functions at the end change states; illegal changes raise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from odradek_protocol.lazy_tuple import NamedTuple
from pyspark_odradek.errors import SinkError, StaleBatch, Superseded
from pyspark_odradek.exactly_once.identity import Writer

FORMAT = 1
#: The value of `after` in the first record of a query.
BEGINNING = -1
#: The limit of the superseded runs, and of the replaced checkpoints, in a state. A writer of such a
#: run or checkpoint is refused, and open transactions of such a run are aborted.
PAST_MAX = 32


class LedgerRecordType(Enum):
    """The kind of a record."""

    CLAIM = "claim"
    COMMIT = "commit"
    DONE = "done"
    RESIGN = "resign"
    REVOKE = "revoke"


class Participant(NamedTuple):
    """A prepared transaction with the rows of one task. `version`: the version of Kafka's
    transactions, 1 or 2."""

    name: str
    producer_id: int
    epoch: int
    version: int
    slot: int
    rows: int


@dataclass(frozen=True)
class LedgerState:
    """The decisions of a query.

    `holder`: the run with the newest claim, "" if there is none; `past`: runs that must do nothing
    more. `batch`: the newest decided batch, decided by `run`, with the number of its `rows`;
    `done`: true if all of its `participants` are known to be ended. `targets`: the number that the
    module `targets` computes from the rows of each topic, or None if the decision was made by an
    older connector that did not distinguish topics. `checkpoint`: the checkpoint that counts
    `batch`, None if it is the query itself or unknown; `replaced`: the checkpoints before it.
    """

    holder: str = ""
    past: tuple[str, ...] = ()
    batch: int = -1
    run: str = ""
    rows: int = 0
    done: bool = True
    participants: tuple[Participant, ...] = ()
    targets: str | None = None
    checkpoint: str | None = None
    replaced: tuple[str, ...] = ()

    def batch_of(self, writer: Writer) -> int:
        """The newest decided batch of the writer's checkpoint; -1 if there is none (S-19)."""
        other = None not in (self.checkpoint, writer.checkpoint)
        return -1 if other and self.checkpoint != writer.checkpoint else self.batch

    def over(self, writer: Writer) -> int:
        """The newest batch of the writer's checkpoint whose transactions are no longer needed."""
        batch = self.batch_of(writer)
        return batch if self.done else max(batch - 1, -1)


class LedgerRecord(NamedTuple):
    """A record of the decision log."""

    kind: LedgerRecordType
    after: int
    state: LedgerState


class LedgerEntry(NamedTuple):
    """A record with its offset and key in the log."""

    offset: int
    key: str
    record: LedgerRecord


class NewestDecision(NamedTuple):
    """The newest record that counts; if there is none, the initial state, with the offset
    BEGINNING.

    `needless`: the keys of the other records that were read.
    """

    offset: int = BEGINNING
    key: str = ""
    state: LedgerState = LedgerState()
    needless: tuple[str, ...] = ()


# --- which record counts --------------------------------------------------------------------------


def newest(entries: Iterable[LedgerEntry]) -> NewestDecision:
    """The newest record that counts, found in the records of one query in the order of their
    offsets (S-05).

    A writer sets `after` only to offsets of records that count. So the largest `after` is the
    offset of the last but one record that counts, and of the records with this `after`, the first
    record counts. Records below the offset `after` are not needed, so compaction may remove them in
    any order.
    """
    best: LedgerEntry | None = None
    keys = []
    for entry in entries:
        keys.append(entry.key)
        if best is None or entry.record.after > best.record.after:
            best = entry
    if best is None:
        return NewestDecision()
    needless = tuple(key for key in keys if key != best.key)
    return NewestDecision(best.offset, best.key, best.record.state, needless)


def must_read_from(entries: Iterable[LedgerEntry]) -> int | None:
    """The offset from which all records must be read for `newest` to be valid; None if there are no
    records.

    A reader that begins at a higher offset may miss the first of several records with equal
    `after`.
    """
    return max((entry.record.after + 1 for entry in entries), default=None)


# --- bytes ----------------------------------------------------------------------------------------


def key_of(query: str, nonce: str) -> str:
    """The key of a record. Keys are unique, because compaction keeps only one record of each
    key.
    """
    return f"{nonce}/{query}"


def query_of(key: str) -> str:
    """The query of a key."""
    return key.partition("/")[2]


def encode(record: LedgerRecord) -> bytes:
    """The record as compact JSON; see `decode`."""
    state = record.state
    value = {
        "v": FORMAT,
        "kind": record.kind.value,
        "after": record.after,
        "holder": state.holder,
        "past": state.past,
        "batch": state.batch,
        "run": state.run,
        "rows": state.rows,
        "done": state.done,
        "parts": state.participants,
    }
    if state.targets is not None:
        value["targets"] = state.targets
    if state.checkpoint is not None:
        value |= {"checkpoint": state.checkpoint, "replaced": state.replaced}
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes, *, where: str = "") -> LedgerRecord:
    """A record. Raises SinkError for invalid bytes, or for an unknown version."""
    try:
        found: Any = json.loads(value)
        version = found["v"]
        if version == FORMAT:
            return _decoded(found)
    except (ValueError, TypeError, KeyError) as error:
        raise SinkError(
            f"odradek: {where or 'the decision log'} holds something that is no decision "
            f"({type(error).__name__}: {error}); nobody else may write to that topic"
        ) from error
    raise SinkError(
        f"odradek: {where or 'the decision log'} was written by a newer odradek (format {version}, "
        f"this one knows {FORMAT}); run the query with that one"
    )


def _decoded(found: Any) -> LedgerRecord:
    state = LedgerState(
        holder=str(found["holder"]),
        past=tuple(map(str, found["past"])),
        batch=int(found["batch"]),
        run=str(found["run"]),
        rows=int(found["rows"]),
        done=bool(found["done"]),
        participants=tuple(
            Participant(str(part[0]), *map(int, part[1:])) for part in found["parts"]
        ),
        targets=_text(found.get("targets")),
        checkpoint=_text(found.get("checkpoint")),
        replaced=tuple(map(str, found.get("replaced", ()))),
    )
    return LedgerRecord(LedgerRecordType(found["kind"]), int(found["after"]), state)


def _text(found: Any) -> str | None:
    return None if found is None else str(found)


# --- what may be done -----------------------------------------------------------------------------


def refuse_superseded(state: LedgerState, writer: Writer) -> None:
    """Refuse a run that was superseded or that has given up (S-06)."""
    if writer.run not in state.past:
        return
    if writer.commit_id is not None:
        raise Superseded(
            f"odradek: another job with commitId {writer.commit_id} has begun to write after this one, "
            "or this one has given up; so this one writes nothing more. If both write the same, the "
            "other suffices; otherwise give every write a commitId of its own"
        )
    by = f"by run {state.holder}" if state.holder else "or has given up"
    raise Superseded(
        f"odradek: run {writer.run} of query {writer.query} was superseded {by}. Two runs use one "
        "checkpoint (copies of it, or one queryId), or this one was thought dead and started again "
        "elsewhere: stop this one. A copy that shall run too needs a checkpoint of its own"
        f"{'' if writer.checkpoint is None else ', and another queryId'}"
    )


def refuse_stale(state: LedgerState, writer: Writer, batch: int) -> None:
    """Refuse a batch that is older than the decided batch, as after a restart from an old
    checkpoint (S-07), and a checkpoint that was replaced by another (S-19)."""
    if writer.checkpoint is not None and writer.checkpoint in state.replaced:
        raise StaleBatch(
            f"odradek: query {writer.query} was continued with a newer checkpoint ({state.checkpoint}) "
            f"than this one ({writer.checkpoint}), so what this one does now was partly written "
            "already. Use the newest checkpoint, or a new one and mind the starting offsets; or give "
            "this one another queryId"
        )
    if batch >= state.batch_of(writer):
        return
    if writer.commit_id is not None:
        raise StaleBatch(
            f"odradek: {writer.write(batch)} is refused, because commitVersion {state.batch} was written "
            f"already, and the versions of a commitId must increase: use {state.batch + 1} or more, or "
            "another commitId"
        )
    # A decision of unknown checkpoint counts as one of this checkpoint.
    named = "" if state.checkpoint is not None else " (with another queryId, if it has one)"
    raise StaleBatch(
        f"odradek: query {writer.query} is at batch {batch}, but batch {state.batch} was written "
        "already. The checkpoint is older than what was written (an old copy, a restored "
        "backup): what it does now was partly written by others. Use the newest checkpoint, or "
        f"a new one{named} and mind the starting offsets"
    )


# --- how the state moves --------------------------------------------------------------------------


def claim(state: LedgerState, run: str) -> LedgerRecord | None:
    """The state after `run` has claimed the query; None if the newest claim is already that of
    `run` (S-06)."""
    if state.holder == run:
        return None
    if run in state.past:
        raise ValueError(f"run {run} was superseded and may not claim")
    past = _past(state, state.holder) if state.holder else state.past
    return _record(LedgerRecordType.CLAIM, replace(state, holder=run, past=past))


def commit(
    state: LedgerState,
    writer: Writer,
    batch: int,
    rows: int,
    targets: str,
    participants: tuple[Participant, ...],
) -> LedgerRecord:
    """The state after the decision of a batch (S-08). A batch without participants is finished
    immediately."""
    run = writer.run
    if state.holder != run or not state.done or batch <= state.batch_of(writer):
        raise ValueError(f"run {run} may not decide batch {batch} on {state}")
    checkpoint, replaced = writer.checkpoint or state.checkpoint, state.replaced
    if state.checkpoint is not None and state.checkpoint != checkpoint:
        replaced = (*replaced, state.checkpoint)[-PAST_MAX:]
    return _record(
        LedgerRecordType.COMMIT,
        replace(
            state,
            batch=batch,
            run=run,
            rows=rows,
            targets=targets,
            done=not participants,
            participants=participants,
            checkpoint=checkpoint,
            replaced=replaced,
        ),
    )


def finish(state: LedgerState, run: str) -> LedgerRecord:
    """The state after the transactions of all participants have ended (S-10)."""
    _check_carrying_out(state, run)
    return _record(LedgerRecordType.DONE, replace(state, done=True, participants=()))


def revoke(state: LedgerState, run: str) -> LedgerRecord:
    """The state after the decision was taken back, because the transactions of all participants
    were aborted (S-12).
    """
    _check_carrying_out(state, run)
    # `targets` is kept, because it shows whether topics were distinguished.
    return _record(
        LedgerRecordType.REVOKE,
        replace(state, batch=state.batch - 1, run="", rows=0, done=True, participants=()),
    )


def resign(state: LedgerState, run: str) -> LedgerRecord:
    """The state after `run` has given up: this run decides nothing more (S-14)."""
    if run in state.past:
        raise ValueError(f"run {run} has no say already")
    holder = "" if state.holder == run else state.holder
    return _record(LedgerRecordType.RESIGN, replace(state, holder=holder, past=_past(state, run)))


def _check_carrying_out(state: LedgerState, run: str) -> None:
    if state.holder != run or state.done:
        raise ValueError(f"run {run} has nothing to carry out on {state}")


def _past(state: LedgerState, run: str) -> tuple[str, ...]:
    return (*state.past, run)[-PAST_MAX:]


def _record(kind: LedgerRecordType, state: LedgerState) -> LedgerRecord:
    """The record. The code that appends the record sets `after`."""
    return LedgerRecord(kind, BEGINNING, state)
