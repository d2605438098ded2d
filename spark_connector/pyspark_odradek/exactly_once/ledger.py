"""The decision log of one query, as values: records, which of them counts, and how the state moves.

Every record carries the whole state that holds from it on, and names in `after` the offset of the
record that its writer took for the newest. A record counts only if that was so when it came into
the log (S-04): of those that name the same `after` the first. So one counts that contradicts
nothing, and the newest one is all that a reader needs (S-05).

States change by the functions at the end, nothing else; what is not allowed raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from pyspark_odradek.errors import SinkError, StaleBatch, Superseded

FORMAT = 1
#: `after` of the first record of a query.
BEGINNING = -1
#: Superseded runs that are remembered, to tell zombies and to clean up behind them.
PAST_MAX = 32


class Kind(Enum):
    """The kind of a record."""

    CLAIM = "claim"
    COMMIT = "commit"
    DONE = "done"
    RESIGN = "resign"
    REVOKE = "revoke"


class Participant(NamedTuple):
    """A prepared transaction with the rows of one task. `version`: of Kafka's transactions, 1 or
    2."""

    name: str
    producer_id: int
    epoch: int
    version: int
    slot: int
    rows: int


@dataclass(frozen=True)
class State:
    """All that is decided for a query.

    `holder`: the run with the newest claim, "" for none; `past`: runs that may do nothing any more.
    `batch`: the newest batch that is decided, by `run`, with so many `rows`; `done`: whether its
    `participants` are known to be ended. `targets`: how many rows are for each topic, as `targets`
    tells it; None where a connector that did not keep topics apart has decided.
    """

    holder: str = ""
    past: tuple[str, ...] = ()
    batch: int = -1
    run: str = ""
    rows: int = 0
    done: bool = True
    participants: tuple[Participant, ...] = ()
    targets: str | None = None

    @property
    def over(self) -> int:
        """The newest batch whose transactions nobody needs any more."""
        return self.batch if self.done else self.batch - 1


class Record(NamedTuple):
    """A record of the decision log."""

    kind: Kind
    after: int
    state: State


class Entry(NamedTuple):
    """A record where it lies."""

    offset: int
    key: str
    record: Record


class Found(NamedTuple):
    """The newest record that counts; for none the first State, at BEGINNING.

    `needless`: keys of the other records that were seen.
    """

    offset: int = BEGINNING
    key: str = ""
    state: State = State()
    needless: tuple[str, ...] = ()


# --- which record counts --------------------------------------------------------------------------


def newest(entries: Iterable[Entry]) -> Found:
    """The newest record that counts, of the records of one query in order of their offsets (S-05).

    The largest `after` names the last but one that counts, because nobody names what he has not
    read as counting. Of those that name it the first one counts. Whatever lies before it is not
    needed, so it may be compacted away in any order.
    """
    best: Entry | None = None
    keys = []
    for entry in entries:
        keys.append(entry.key)
        if best is None or entry.record.after > best.record.after:
            best = entry
    if best is None:
        return Found()
    needless = tuple(key for key in keys if key != best.key)
    return Found(best.offset, best.key, best.record.state, needless)


def must_read_from(entries: Iterable[Entry]) -> int | None:
    """The offset from which all records must be known for `newest` to hold; None for no records.

    A reader that began further on may have missed the first of those that name the same `after`.
    """
    return max((entry.record.after + 1 for entry in entries), default=None)


# --- bytes ----------------------------------------------------------------------------------------


def key_of(query: str, nonce: str) -> str:
    """The key of a record: no two have the same, or compaction would choose between them."""
    return f"{nonce}/{query}"


def query_of(key: str) -> str:
    """The query that a key belongs to."""
    return key.partition("/")[2]


def encode(record: Record) -> bytes:
    """JSON, small; `decode` is the other way."""
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
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes, *, where: str = "") -> Record:
    """A record. SinkError for what is none, or is of a version that this one cannot read."""
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


def _decoded(found: Any) -> Record:
    state = State(
        holder=str(found["holder"]),
        past=tuple(map(str, found["past"])),
        batch=int(found["batch"]),
        run=str(found["run"]),
        rows=int(found["rows"]),
        done=bool(found["done"]),
        participants=tuple(
            Participant(str(part[0]), *map(int, part[1:])) for part in found["parts"]
        ),
        targets=None if found.get("targets") is None else str(found["targets"]),
    )
    return Record(Kind(found["kind"]), int(found["after"]), state)


# --- what may be done -----------------------------------------------------------------------------


def refuse_superseded(state: State, run: str, query: str) -> None:
    """S-06: a run that was superseded, or has given up, does nothing any more."""
    if run in state.past:
        by = f"by run {state.holder}" if state.holder else "or has given up"
        raise Superseded(
            f"odradek: run {run} of query {query} was superseded {by}. Two runs use one checkpoint "
            "(or copies of it), or this one was thought dead and started again elsewhere: stop this "
            "one. A copy that shall run too needs a checkpoint of its own"
        )


def refuse_stale(state: State, batch: int, query: str) -> None:
    """S-07: a batch that lies behind what was decided comes from an old checkpoint."""
    if batch < state.batch:
        raise StaleBatch(
            f"odradek: query {query} is at batch {batch}, but batch {state.batch} was written "
            "already. The checkpoint is older than what was written (an old copy, a restored "
            "backup): what it does now was partly written by others. Use the newest checkpoint, or "
            "a new one and mind the starting offsets"
        )


# --- how the state moves --------------------------------------------------------------------------


def claim(state: State, run: str) -> Record | None:
    """`run` holds the query from now on; None if it does already (S-06)."""
    if state.holder == run:
        return None
    if run in state.past:
        raise ValueError(f"run {run} was superseded and may not claim")
    past = _past(state, state.holder) if state.holder else state.past
    return _record(Kind.CLAIM, replace(state, holder=run, past=past))


def commit(
    state: State,
    run: str,
    batch: int,
    rows: int,
    targets: str,
    participants: tuple[Participant, ...],
) -> Record:
    """The batch is decided (S-08). Without participants there is nothing left to do."""
    if state.holder != run or not state.done or batch <= state.batch:
        raise ValueError(f"run {run} may not decide batch {batch} on {state}")
    return _record(
        Kind.COMMIT,
        replace(
            state,
            batch=batch,
            run=run,
            rows=rows,
            targets=targets,
            done=not participants,
            participants=participants,
        ),
    )


def finish(state: State, run: str) -> Record:
    """Every participant is ended (S-10)."""
    _check_carrying_out(state, run)
    return _record(Kind.DONE, replace(state, done=True, participants=()))


def revoke(state: State, run: str) -> Record:
    """Every participant is known to be aborted: as if it had not been decided (S-12)."""
    _check_carrying_out(state, run)
    # `targets` goes on to say whether topics were kept apart.
    return _record(
        Kind.REVOKE,
        replace(state, batch=state.batch - 1, run="", rows=0, done=True, participants=()),
    )


def resign(state: State, run: str) -> Record:
    """`run` will decide nothing more (S-14)."""
    if run in state.past:
        raise ValueError(f"run {run} has no say already")
    holder = "" if state.holder == run else state.holder
    return _record(Kind.RESIGN, replace(state, holder=holder, past=_past(state, run)))


def _check_carrying_out(state: State, run: str) -> None:
    if state.holder != run or state.done:
        raise ValueError(f"run {run} has nothing to carry out on {state}")


def _past(state: State, run: str) -> tuple[str, ...]:
    return (*state.past, run)[-PAST_MAX:]


def _record(kind: Kind, state: State) -> Record:
    """`after` is filled in by whoever appends it."""
    return Record(kind, BEGINNING, state)
