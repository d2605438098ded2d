"""What happened to a transactional id, as events for people: who did what, and why it was refused.

The shard says what was decided (`shard.Event`); here it becomes part of the histories of the
transactional id and of the producer ids that it is about.
"""

from __future__ import annotations

from typing import TypedDict

from odradek_broker.coordinator.transactions.deciding import AddCall, Call, EndCall, InitCall
from odradek_broker.coordinator.transactions.interfaces import TopicPartition
from odradek_broker.coordinator.transactions.shard import Doing, Event
from odradek_broker.coordinator.transactions.states import TransactionState
from odradek_broker.coordinator.transactions.transaction import NO_PRODUCER_ID, Transaction
from odradek_broker.history import History, Now
from odradek_broker.history_words import Value, What, span
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState

_BY_LEADER = "AddPartitionsToTxn by a partition's leader"


class _Fenced(TypedDict):
    """Who is fenced; None for nobody."""

    fenced: str | None
    fenced_id: int | None
    fenced_epoch: int | None


_NOBODY: _Fenced = {"fenced": None, "fenced_id": None, "fenced_epoch": None}


def tell(event: Event, transactions: History, producers: History) -> None:
    """Record an event of the shard in the history of its id, and of the producers it concerns."""
    if event.what is Doing.EXPIRED and event.error is not _E.NONE:
        return  # The next look finds it again.
    if event.call is not None and event.after is None:
        _tell_refused(event, event.call, transactions, producers)
    elif event.error is not _E.NONE and event.after is not None:
        transactions.record(
            event.transactional_id,
            What.TRANSACTION_NOT_RECORDED,
            error=event.error,
            request=event.what.value,
            client=_client(event.call),
        )
    elif event.call is not None and event.after is not None:
        _tell_step(event, event.call, event.after, transactions, producers)
    else:
        _tell_own(event, transactions, producers)


# --- Requests ---


def _tell_step(
    event: Event, call: Call, after: Transaction, transactions: History, producers: History
) -> None:
    before = event.before
    request = event.what.value if call.client or event.what is not Doing.ADD else _BY_LEADER
    added: tuple[TopicPartition, ...] = ()
    if isinstance(call, AddCall):
        known = before.partitions if before is not None and before.state is _S.ONGOING else set()
        added = tuple(after.partitions.difference(known))
    moved = before is None or before.identity != after.identity or isinstance(call, InitCall)
    fenced = _fenced(before, after, call, transactions)
    transactions.record(
        event.transactional_id,
        What.TRANSACTION_STEP,
        places=added,
        request=request,
        client=_client(call),
        before=_label(before),
        after=after.state.label,
        producer_id=after.identity[0] if moved else None,
        epoch=after.identity[1] if moved else None,
        group=call.group or None if isinstance(call, AddCall) else None,
        note=_note(before, after, call),
        **fenced,
    )
    if isinstance(call, InitCall):
        _tell_producers(event, after, fenced, producers)


def _tell_producers(event: Event, after: Transaction, fenced: _Fenced, producers: History) -> None:
    concerned = {after.identity[0], fenced["fenced_id"]} - {None}
    for producer_id in concerned:
        producers.record(
            str(producer_id),
            What.PRODUCER_OF_TRANSACTION,
            request=event.what.value,
            client=_client(event.call),
            transactional_id=event.transactional_id,
            epoch=after.identity[1],
            **fenced,
        )


def _fenced(
    before: Transaction | None, after: Transaction, call: Call, transactions: History
) -> _Fenced:
    """A new instance takes the id over from whoever held it; an old one that asks for its next
    epoch (KIP-360), or ends its transaction, fences nobody but its own late requests."""
    if before is None or not isinstance(call, InitCall) or call.producer_id != NO_PRODUCER_ID:
        return _NOBODY
    return _NOBODY if after.identity == before.identity else _holder(before, transactions)


def _holder(held: Transaction, transactions: History) -> _Fenced:
    """Who was given the identity that an id has: found in its past, where that reaches back."""
    producer_id, epoch = held.identity
    holder: str | None = "whoever had it"
    for event in reversed(transactions.about(held.transactional_id).events):
        if event.what not in (What.TRANSACTION_STEP, What.TRANSACTION_TIMEOUT):
            continue
        if (event.fields.get("producer_id"), event.fields.get("epoch")) != (producer_id, epoch):
            continue
        fenced_only = event.what is What.TRANSACTION_TIMEOUT or (
            event.fields.get("request") == Doing.INIT.value
            and event.fields.get("after") == _S.PREPARE_ABORT.label
        )
        if fenced_only:
            return _NOBODY  # Nobody was ever given the epoch that fences (T-14).
        holder = str(event.fields.get("client", holder))
        break
    return {"fenced": holder, "fenced_id": producer_id, "fenced_epoch": epoch}


def _note(before: Transaction | None, after: Transaction, call: Call) -> str | None:
    if not isinstance(call, InitCall):
        return None
    if after.state is _S.PREPARE_ABORT:
        return (
            "; the open transaction is aborted, and the client is told to ask again"
            " (CONCURRENT_TRANSACTIONS)"
        )
    if call.keep_prepared and after.state is _S.ONGOING:
        return "; the prepared transaction is kept, to be committed or aborted by this client"
    if before is not None and call.producer_id != NO_PRODUCER_ID:
        if before.identity == after.identity:
            return "; this was asked before, and the answer was lost"
        return f"; the same producer goes on, from epoch {call.epoch}"
    timeout = span(after.timeout_ms) if after.has_timeout else "none (two-phase commit)"
    return f"; transaction timeout {timeout}"


# --- Refusals ---


def _tell_refused(event: Event, call: Call, transactions: History, producers: History) -> None:
    request = event.what.value if call.client or event.what is not Doing.ADD else _BY_LEADER
    reason = reason_of(event.before, call, event.error, event.pending)
    transactions.record(
        event.transactional_id,
        What.TRANSACTION_REFUSED,
        error=event.error,
        places=event.places,
        request=request,
        client=_client(call),
        producer_id=call.producer_id if call.producer_id >= 0 else "none",
        epoch=call.epoch if call.epoch >= 0 else "none",
        reason=reason,
    )
    if call.producer_id >= 0:
        producers.record(
            str(call.producer_id),
            What.PRODUCER_REFUSED,
            error=event.error,
            places=event.places,
            request=request,
            client=_client(call),
            transactional_id=event.transactional_id,
            epoch=call.epoch,
            reason=reason,
        )


def reason_of(
    held: Transaction | None, call: Call, error: ErrorCode, pending: TransactionState | None
) -> str:
    """Why a request was refused: what was expected, and what came (T-12, T-20, T-30, T-65)."""
    if error is _E.POLICY_VIOLATION:
        return "it is new, and as many transactional ids are known as max.transactional.ids allows"
    if held is None:
        return "nothing is known of this transactional id: never initialised, or expired"
    producer_id, epoch = held.identity
    if error is _E.INVALID_PRODUCER_ID_MAPPING or (
        error is _E.PRODUCER_FENCED and call.producer_id not in (producer_id, NO_PRODUCER_ID)
    ):
        return f"expected producer id {producer_id}, got {call.producer_id}"
    if error is _E.PRODUCER_FENCED:
        if call.epoch != epoch:
            return f"expected epoch {epoch}, got {call.epoch}"
        return f"epoch {call.epoch} is that of a transaction which has ended ({held.state.label})"
    if error is _E.CONCURRENT_TRANSACTIONS:
        if held.state.is_prepared:
            return f"the last transaction is being ended ({held.state.label}); ask again"
        step = "another step" if pending is None else f"the step to {pending.label}"
        return f"{step} is being recorded; ask again"
    if error is _E.INVALID_TXN_STATE and isinstance(call, EndCall):
        return f"{'a commit' if call.commit else 'an abort'} does not fit state {held.state.label}"
    if error is _E.TRANSACTION_ABORTABLE:
        return f"not part of the transaction, which is {held.state.label}"
    return f"the state is {held.state.label}"


# --- The coordinator's own doing ---


def _tell_own(event: Event, transactions: History, producers: History) -> None:
    name, held = event.transactional_id, event.before
    assert held is not None, "the coordinator acts on what it knows"
    after = event.after
    if event.what is Doing.MARKERS_SENT:
        transactions.record(
            name,
            What.MARKERS_SENT,
            places=event.places,
            marker="COMMIT" if held.state is _S.PREPARE_COMMIT else "ABORT",
            epoch=held.epoch,
        )
    elif event.what is Doing.MARKERS_AGAIN:
        transactions.record(
            name,
            What.MARKERS_AGAIN,
            error=event.error,
            places=event.places,
            pause=span(event.pause_ms),
        )
    elif event.what is Doing.MARKERS_STOPPED:
        transactions.record(
            name,
            What.MARKERS_STOPPED,
            error=event.error,
            places=event.places,
            reason=event.answer.value,
        )
    elif event.what is Doing.MARKERS_WRITTEN and after is not None:
        moved = after.identity != (held.producer_id, held.epoch)
        transactions.record(
            name,
            What.TRANSACTION_COMPLETE,
            before=held.state.label,
            after=after.state.label,
            producer_id=after.producer_id if moved else None,
            epoch=after.epoch if moved else None,
        )
    elif event.what is Doing.RESUMED:
        transactions.record(
            name,
            What.TRANSACTION_RESUMED,
            places=event.places,
            before=held.state.label,
            producer_id=held.producer_id,
            epoch=held.epoch,
        )
    elif event.what is Doing.EXPIRED:
        transactions.record(
            name,
            What.TRANSACTION_EXPIRED,
            before=held.state.label,
            age=span(event.wall_ms - held.last_update_ms),
            producer_id=held.producer_id,
            epoch=held.epoch,
        )
    elif event.what is Doing.TIMEOUT and after is not None:
        fenced = _holder(held, transactions)
        transactions.record(
            name,
            What.TRANSACTION_TIMEOUT,
            before=held.state.label,
            after=after.state.label,
            age=span(event.wall_ms - held.start_ms),
            timeout=span(held.timeout_ms),
            producer_id=after.identity[0],
            epoch=after.identity[1],
            **fenced,
        )
        _tell_producers(event, after, fenced, producers)


# --- Now ---


def now_of_transaction(held: Transaction | None, wall_ms: int, started_ms: int) -> Now:
    """What a transactional id is. `started_ms`: when the history began."""
    if held is None:
        reason = "nothing is known of this transactional id any more"
        return Now.of(What.NOW_NOTHING, {"reason": reason})
    is_open = held.state is _S.ONGOING or held.state.is_prepared
    producer_id, epoch = held.identity
    timeout = span(held.timeout_ms) if held.has_timeout else "any time (two-phase commit)"
    replayed = held.last_update_ms < started_ms
    fields: dict[str, Value | None] = {
        "state": held.state.label,
        "producer_id": producer_id,
        "epoch": epoch,
        "age": span(wall_ms - held.start_ms) if is_open else None,
        "timeout": timeout if held.state is _S.ONGOING else None,
        "updated": span(wall_ms - held.last_update_ms) if held.last_update_ms >= 0 else None,
        "note": "as it was found at the start, in __transaction_state" if replayed else None,
    }
    return Now.of(What.NOW_TRANSACTION, fields, held.partitions)


def now_of_producer_id(held: Transaction, producer_id: int) -> Now:
    """How a transactional id is connected with a producer id."""
    relation = "has it"
    if producer_id not in (held.producer_id, held.next_producer_id):
        relation = "had it, until its epochs were used up"
    fields: dict[str, Value | None] = {
        "transactional_id": held.transactional_id,
        "relation": relation,
        "state": held.state.label,
        "producer_id": held.identity[0],
        "epoch": held.identity[1],
    }
    return Now.of(What.NOW_OWNER, fields)


def _client(call: Call | None) -> str | None:
    return call.client or None if call is not None else None


def _label(held: Transaction | None) -> str:
    return "(unknown)" if held is None else held.state.label
