"""Transactional ids: the records of their events, and their current states (`odradek explain txn`).

The coordinator reports each decision as a `TransactionEvent`. This module records the event in the
histories of the transactional id and of its producer ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import assert_never

from odradek_broker.coordinator.transactions.decisions import AddCall, Call, EndCall, InitCall
from odradek_broker.coordinator.transactions.events import (
    Cause,
    CompletionResumed,
    IdExpired,
    MarkerAnswer,
    MarkersRetried,
    MarkersSent,
    MarkersStopped,
    RequestRefused,
    StepDecided,
    StepNotRecorded,
    TransactionCompleted,
    TransactionEvent,
    TransactionTimedOut,
)
from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState
from odradek_broker.explain.history import (
    TEXT_MAX,
    Fields,
    History,
    RecordedEvent,
    SubjectState,
    remark,
)
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_K = EventKind
_S = TransactionState

_BY_LEADER = "AddPartitionsToTxn by a partition's leader"


_MARKERS_STOPPED = {
    MarkerAnswer.STALE: "a newer coordinator is at work: leave this transaction to it",
    MarkerAnswer.FAILED: "cannot be: say it loudly and leave the transaction as it is",
}


class TransactionRecorder:
    """Records events in the histories of their transactional id and of its producer ids."""

    def __init__(self, transactions: History, producers: History) -> None:
        self._transactions = transactions
        self._producers = producers

    def record(self, event: TransactionEvent) -> None:
        add = partial(self._transactions.record, event.transactional_id)
        match event:
            case StepDecided():
                self._step_decided(event)
            case StepNotRecorded(_, cause, call, error):
                client = _client(call)
                add(_K.TRANSACTION_NOT_RECORDED, error=error, request=cause.value, client=client)
            case RequestRefused():
                self._refused(event)
            case TransactionTimedOut():
                self._timed_out(event)
            case MarkersSent(_, current, partitions):
                marker = "COMMIT" if current.state is _S.PREPARE_COMMIT else "ABORT"
                add(_K.MARKERS_SENT, partitions=partitions, marker=marker, epoch=current.epoch)
            case MarkersRetried(_, partitions, error, pause_ms):
                pause = duration_text(pause_ms)
                add(_K.MARKERS_AGAIN, error=error, partitions=partitions, pause=pause)
            case MarkersStopped(_, partitions, error, answer):
                reason = _MARKERS_STOPPED[answer]
                add(_K.MARKERS_STOPPED, error=error, partitions=partitions, reason=reason)
            case TransactionCompleted(_, current, after):
                moved = after.identity != (current.producer_id, current.epoch)
                fields = _change(current, after) | _identity(after.identity if moved else None)
                add(_K.TRANSACTION_COMPLETE, fields)
            case CompletionResumed(_, current, partitions):
                identity = _identity((current.producer_id, current.epoch))
                fields = {"before": current.state.label, **identity}
                add(_K.TRANSACTION_RESUMED, fields, partitions=partitions)
            case IdExpired(_, current, wall_ms):
                age = duration_text(wall_ms - current.last_update_ms)
                identity = _identity((current.producer_id, current.epoch))
                fields = {"before": current.state.label, "age": age, **identity}
                add(_K.TRANSACTION_EXPIRED, fields)
            case _:
                assert_never(event)

    def _step_decided(self, event: StepDecided) -> None:
        before, after, call = event.before, event.after, event.call
        added: tuple[TopicPartition, ...] = ()
        if isinstance(call, AddCall):
            known = before.partitions if before and before.state is _S.ONGOING else ()
            added = tuple(after.partitions.difference(known))
        moved = before is None or before.identity != after.identity or isinstance(call, InitCall)
        fenced = self._fenced(before, after, call)
        fields: Fields = {
            "request": _request(event.cause, call),
            "client": _client(call),
            **_change(before, after),
            **_identity(after.identity if moved else None),
            "group": call.group or None if isinstance(call, AddCall) else None,
            "note": _note(before, after, call),
        }
        self._transactions.record(
            event.transactional_id, _K.TRANSACTION_STEP, fields | fenced, partitions=added
        )
        if isinstance(call, InitCall):
            self._record_for_producers(event.cause, call, after, fenced)

    def _timed_out(self, event: TransactionTimedOut) -> None:
        current, after = event.before, event.after
        fenced = self._holder(current)
        fields: Fields = {
            **_change(current, after),
            "age": duration_text(event.wall_ms - current.start_ms),
            "timeout": duration_text(current.timeout_ms),
            **_identity(after.identity),
        }
        self._transactions.record(event.transactional_id, _K.TRANSACTION_TIMEOUT, fields | fenced)
        self._record_for_producers(Cause.TIMEOUT, None, after, fenced)

    def _record_for_producers(
        self, cause: Cause, call: Call | None, after: Transaction, fenced: Fields
    ) -> None:
        fields: Fields = {
            "request": cause.value,
            "client": _client(call),
            "transactional_id": after.transactional_id,
            "epoch": after.identity[1],
        }
        for producer_id in {after.identity[0], fenced.get("fenced_id")} - {None}:
            self._producers.record(str(producer_id), _K.PRODUCER_OF_TRANSACTION, fields | fenced)

    def _fenced(self, before: Transaction | None, after: Transaction, call: Call) -> Fields:
        """The producer that a step fences, with the id and epoch; empty if it fences none. A new
        producer fences the previous producer with this transactional id. A producer that requests
        its next epoch (KIP-360), or ends its transaction, fences only its own late requests."""
        if before is None or not isinstance(call, InitCall) or call.producer_id != NO_PRODUCER_ID:
            return {}
        return {} if after.identity == before.identity else self._holder(before)

    def _holder(self, current: Transaction) -> Fields:
        """The client to which the present producer id and epoch were assigned, if the history of
        the transactional id still has that event."""
        producer_id, epoch = current.identity
        holder: str | None = "whoever had it"
        for event in reversed(self._transactions.about(current.transactional_id).events):
            if event.kind not in (_K.TRANSACTION_STEP, _K.TRANSACTION_TIMEOUT):
                continue
            if (event.fields.get("producer_id"), event.fields.get("epoch")) != (producer_id, epoch):
                continue
            fenced_only = event.kind is _K.TRANSACTION_TIMEOUT or (
                event.fields.get("request") == Cause.INIT.value
                and event.fields.get("after") == _S.PREPARE_ABORT.label
            )
            if fenced_only:
                return {}  # An epoch that only fences is given to no client (T-14).
            holder = str(event.fields.get("client", holder))
            break
        return {"fenced": holder, "fenced_id": producer_id, "fenced_epoch": epoch}

    def _refused(self, event: RequestRefused) -> None:
        call, error, partitions = event.call, event.error, event.partitions
        who: Fields = {"request": _request(event.cause, call), "client": _client(call)}
        reason = why_refused(event.transaction, call, error, event.pending)
        self._transactions.record(
            event.transactional_id,
            _K.TRANSACTION_REFUSED,
            who,
            error=error,
            partitions=partitions,
            producer_id=call.producer_id if call.producer_id >= 0 else "none",
            epoch=call.epoch if call.epoch >= 0 else "none",
            reason=reason,
        )
        if call.producer_id >= 0:
            self._producers.record(
                str(call.producer_id),
                _K.PRODUCER_REFUSED,
                who,
                error=error,
                partitions=partitions,
                transactional_id=event.transactional_id,
                epoch=call.epoch,
                reason=reason,
            )


# --- Words ---


def _request(cause: Cause, call: Call) -> str:
    return _BY_LEADER if cause is Cause.ADD and not call.client else cause.value


def _note(before: Transaction | None, after: Transaction, call: Call) -> str | None:
    if not isinstance(call, InitCall):
        return None
    if after.state is _S.PREPARE_ABORT:
        return (
            "; the open transaction is aborted, and the client has to retry"
            " (CONCURRENT_TRANSACTIONS)"
        )
    if call.keep_prepared and after.state is _S.ONGOING:
        return "; the prepared transaction is kept, to be committed or aborted by this client"
    if before is not None and call.producer_id != NO_PRODUCER_ID:
        if before.identity == after.identity:
            return "; the request is a repetition, because the response was lost"
        return f"; the same producer continues, from epoch {call.epoch}"
    timeout = duration_text(after.timeout_ms) if after.has_timeout else "none (two-phase commit)"
    return f"; transaction timeout {timeout}"


def why_refused(
    current: Transaction | None, call: Call, error: ErrorCode, pending: TransactionState | None
) -> str:
    """The reason why a request was refused: the expected value and the received one (T-12, T-20,
    T-30, T-65)."""
    if error is _E.POLICY_VIOLATION:
        return "it is new, and as many transactional ids are known as max.transactional.ids allows"
    if current is None:
        return "nothing is known of this transactional id: never initialised, or expired"
    producer_id, epoch = current.identity
    if error is _E.INVALID_PRODUCER_ID_MAPPING or (
        error is _E.PRODUCER_FENCED and call.producer_id not in (producer_id, NO_PRODUCER_ID)
    ):
        return f"expected producer id {producer_id}, got {call.producer_id}"
    if error is _E.PRODUCER_FENCED:
        if call.epoch != epoch:
            return f"expected epoch {epoch}, got {call.epoch}"
        return (
            f"epoch {call.epoch} is that of a transaction which has ended ({current.state.label})"
        )
    if error is _E.CONCURRENT_TRANSACTIONS:
        if current.state.is_prepared:
            return f"the last transaction is being ended ({current.state.label}); ask again"
        step = "another step" if pending is None else f"the step to {pending.label}"
        return f"{step} is being recorded; run the command again"
    if error is _E.INVALID_TXN_STATE and isinstance(call, EndCall):
        return (
            f"{'a commit' if call.commit else 'an abort'} does not fit state {current.state.label}"
        )
    if error is _E.TRANSACTION_ABORTABLE:
        return f"not part of the transaction, which is {current.state.label}"
    return f"the state is {current.state.label}"


# --- Current states ---


def client_of(events: Sequence[RecordedEvent]) -> str | None:
    """The client that last changed a transaction, as `describe_client` names it; None if it is not
    known, or has a name of which events show only a part."""
    clients = (
        str(event.fields["client"])
        for event in reversed(events)
        if event.kind is _K.TRANSACTION_STEP and "client" in event.fields
    )
    client = next(clients, None)
    return None if client is None or len(client) >= TEXT_MAX else client


def state_of_transaction(
    current: Transaction | None, wall_ms: int, started_ms: int, gone: str | None = None
) -> SubjectState:
    """The current state of a transactional id. `started_ms`: the time at which the history began;
    `gone`: the time at which the last connection of its client ended, None if it has one."""
    if current is None:
        return remark("nothing is known of this transactional id any more")
    is_open = current.state is _S.ONGOING or current.state.is_prepared
    timeout = (
        duration_text(current.timeout_ms) if current.has_timeout else "any time (two-phase commit)"
    )
    updated_ms = current.last_update_ms
    found = "as it was found at the start, in __transaction_state"
    return SubjectState.of(
        _K.NOW_TRANSACTION,
        {"state": current.state.label} | _identity(current.identity),
        partitions=current.partitions,
        age=duration_text(wall_ms - current.start_ms) if is_open else None,
        timeout=timeout if current.state is _S.ONGOING else None,
        gone=gone if current.state is _S.ONGOING else None,
        updated=duration_text(wall_ms - updated_ms) if updated_ms >= 0 else None,
        note=found if updated_ms < started_ms else None,
    )


def state_of_owner(current: Transaction, producer_id: int) -> SubjectState:
    """The current state of a transactional id that has, or had, a producer id."""
    relation = "has it"
    if producer_id not in (current.producer_id, current.next_producer_id):
        relation = "had it, until its epochs were used up"
    fields: Fields = {
        "transactional_id": current.transactional_id,
        "relation": relation,
        "state": current.state.label,
    }
    return SubjectState.of(_K.NOW_OWNER, fields | _identity(current.identity))


def _client(call: Call | None) -> str | None:
    return call.client or None if call is not None else None


def _identity(of: tuple[int, int] | None) -> Fields:
    return {} if of is None else {"producer_id": of[0], "epoch": of[1]}


def _change(before: Transaction | None, after: Transaction) -> Fields:
    return {
        "before": "(unknown)" if before is None else before.state.label,
        "after": after.state.label,
    }
