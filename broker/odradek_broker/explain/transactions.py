"""Transactional ids: the records of their events, and their current states (`odradek explain txn`).

The coordinator reports each decision as a `TransactionEvent`. This module records the event in the
histories of the transactional id and of its producer ids.
"""

from __future__ import annotations

from typing import TypedDict, assert_never

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
from odradek_broker.explain.history import CurrentState, History
from odradek_broker.explain.sentences import EventKind, Value, duration_text
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState

_BY_LEADER = "AddPartitionsToTxn by a partition's leader"


class _Fenced(TypedDict):
    """The fenced client with its producer id and epoch; all are None if no client was fenced."""

    fenced: str | None
    fenced_id: int | None
    fenced_epoch: int | None


_NOBODY: _Fenced = {"fenced": None, "fenced_id": None, "fenced_epoch": None}

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
        """Record an event, with its reason as text."""
        match event:
            case StepDecided():
                self._step_decided(event)
            case StepNotRecorded():
                self._transactions.record(
                    event.transactional_id,
                    EventKind.TRANSACTION_NOT_RECORDED,
                    error=event.error,
                    request=event.cause.value,
                    client=_client(event.call),
                )
            case RequestRefused():
                self._refused(event)
            case TransactionTimedOut():
                self._timed_out(event)
            case MarkersSent():
                self._markers_sent(event)
            case MarkersRetried(name, partitions, error, pause_ms):
                self._transactions.record(
                    name,
                    EventKind.MARKERS_AGAIN,
                    error=error,
                    partitions=partitions,
                    pause=duration_text(pause_ms),
                )
            case MarkersStopped(name, partitions, error, answer):
                self._transactions.record(
                    name,
                    EventKind.MARKERS_STOPPED,
                    error=error,
                    partitions=partitions,
                    reason=_MARKERS_STOPPED[answer],
                )
            case TransactionCompleted():
                self._completed(event)
            case CompletionResumed():
                self._resumed(event)
            case IdExpired():
                self._expired(event)
            case _:
                assert_never(event)

    # --- Requests ---

    def _step_decided(self, event: StepDecided) -> None:
        before, after, call = event.before, event.after, event.call
        added: tuple[TopicPartition, ...] = ()
        if isinstance(call, AddCall):
            known = (
                before.partitions if before is not None and before.state is _S.ONGOING else set()
            )
            added = tuple(after.partitions.difference(known))
        moved = before is None or before.identity != after.identity or isinstance(call, InitCall)
        fenced = self._fenced(before, after, call)
        self._transactions.record(
            event.transactional_id,
            EventKind.TRANSACTION_STEP,
            partitions=added,
            request=_request(event.cause, call),
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
            self._record_for_producers(event.cause, call, after, fenced)

    def _record_for_producers(
        self, cause: Cause, call: Call | None, after: Transaction, fenced: _Fenced
    ) -> None:
        concerned = {after.identity[0], fenced["fenced_id"]} - {None}
        for producer_id in concerned:
            self._producers.record(
                str(producer_id),
                EventKind.PRODUCER_OF_TRANSACTION,
                request=cause.value,
                client=_client(call),
                transactional_id=after.transactional_id,
                epoch=after.identity[1],
                **fenced,
            )

    def _fenced(self, before: Transaction | None, after: Transaction, call: Call) -> _Fenced:
        """The producer that a step fences. A new producer fences the previous producer with this
        transactional id. A producer that requests its next epoch (KIP-360), or ends its
        transaction, fences only its own late requests."""
        if before is None or not isinstance(call, InitCall) or call.producer_id != NO_PRODUCER_ID:
            return _NOBODY
        return _NOBODY if after.identity == before.identity else self._holder(before)

    def _holder(self, current: Transaction) -> _Fenced:
        """The client to which the present producer id and epoch were assigned, if the history of
        the transactional id still has that event."""
        producer_id, epoch = current.identity
        holder: str | None = "whoever had it"
        for event in reversed(self._transactions.about(current.transactional_id).events):
            if event.kind not in (EventKind.TRANSACTION_STEP, EventKind.TRANSACTION_TIMEOUT):
                continue
            if (event.fields.get("producer_id"), event.fields.get("epoch")) != (producer_id, epoch):
                continue
            fenced_only = event.kind is EventKind.TRANSACTION_TIMEOUT or (
                event.fields.get("request") == Cause.INIT.value
                and event.fields.get("after") == _S.PREPARE_ABORT.label
            )
            if fenced_only:
                return _NOBODY  # An epoch that only fences is given to no client (T-14).
            holder = str(event.fields.get("client", holder))
            break
        return {"fenced": holder, "fenced_id": producer_id, "fenced_epoch": epoch}

    def _refused(self, event: RequestRefused) -> None:
        call = event.call
        request = _request(event.cause, call)
        reason = why_refused(event.transaction, call, event.error, event.pending)
        self._transactions.record(
            event.transactional_id,
            EventKind.TRANSACTION_REFUSED,
            error=event.error,
            partitions=event.partitions,
            request=request,
            client=_client(call),
            producer_id=call.producer_id if call.producer_id >= 0 else "none",
            epoch=call.epoch if call.epoch >= 0 else "none",
            reason=reason,
        )
        if call.producer_id >= 0:
            self._producers.record(
                str(call.producer_id),
                EventKind.PRODUCER_REFUSED,
                error=event.error,
                partitions=event.partitions,
                request=request,
                client=_client(call),
                transactional_id=event.transactional_id,
                epoch=call.epoch,
                reason=reason,
            )

    # --- Steps of the coordinator itself ---

    def _markers_sent(self, event: MarkersSent) -> None:
        commit = event.transaction.state is _S.PREPARE_COMMIT
        self._transactions.record(
            event.transactional_id,
            EventKind.MARKERS_SENT,
            partitions=event.partitions,
            marker="COMMIT" if commit else "ABORT",
            epoch=event.transaction.epoch,
        )

    def _completed(self, event: TransactionCompleted) -> None:
        current, after = event.before, event.after
        moved = after.identity != (current.producer_id, current.epoch)
        self._transactions.record(
            event.transactional_id,
            EventKind.TRANSACTION_COMPLETE,
            before=current.state.label,
            after=after.state.label,
            producer_id=after.producer_id if moved else None,
            epoch=after.epoch if moved else None,
        )

    def _resumed(self, event: CompletionResumed) -> None:
        current = event.transaction
        self._transactions.record(
            event.transactional_id,
            EventKind.TRANSACTION_RESUMED,
            partitions=event.partitions,
            before=current.state.label,
            producer_id=current.producer_id,
            epoch=current.epoch,
        )

    def _expired(self, event: IdExpired) -> None:
        current = event.transaction
        self._transactions.record(
            event.transactional_id,
            EventKind.TRANSACTION_EXPIRED,
            before=current.state.label,
            age=duration_text(event.wall_ms - current.last_update_ms),
            producer_id=current.producer_id,
            epoch=current.epoch,
        )

    def _timed_out(self, event: TransactionTimedOut) -> None:
        current, after = event.before, event.after
        fenced = self._holder(current)
        self._transactions.record(
            event.transactional_id,
            EventKind.TRANSACTION_TIMEOUT,
            before=current.state.label,
            after=after.state.label,
            age=duration_text(event.wall_ms - current.start_ms),
            timeout=duration_text(current.timeout_ms),
            producer_id=after.identity[0],
            epoch=after.identity[1],
            **fenced,
        )
        self._record_for_producers(Cause.TIMEOUT, None, after, fenced)


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


def state_of_transaction(
    current: Transaction | None, wall_ms: int, started_ms: int
) -> CurrentState:
    """The current state of a transactional id. `started_ms`: the time at which the history
    began."""
    if current is None:
        reason = "nothing is known of this transactional id any more"
        return CurrentState.of(EventKind.NOW_NOTHING, {"reason": reason})
    is_open = current.state is _S.ONGOING or current.state.is_prepared
    producer_id, epoch = current.identity
    timeout = (
        duration_text(current.timeout_ms) if current.has_timeout else "any time (two-phase commit)"
    )
    replayed = current.last_update_ms < started_ms
    fields: dict[str, Value | None] = {
        "state": current.state.label,
        "producer_id": producer_id,
        "epoch": epoch,
        "age": duration_text(wall_ms - current.start_ms) if is_open else None,
        "timeout": timeout if current.state is _S.ONGOING else None,
        "updated": duration_text(wall_ms - current.last_update_ms)
        if current.last_update_ms >= 0
        else None,
        "note": "as it was found at the start, in __transaction_state" if replayed else None,
    }
    return CurrentState.of(EventKind.NOW_TRANSACTION, fields, current.partitions)


def state_of_owner(current: Transaction, producer_id: int) -> CurrentState:
    """The current state of a transactional id that has, or had, a producer id."""
    relation = "has it"
    if producer_id not in (current.producer_id, current.next_producer_id):
        relation = "had it, until its epochs were used up"
    fields: dict[str, Value | None] = {
        "transactional_id": current.transactional_id,
        "relation": relation,
        "state": current.state.label,
        "producer_id": current.identity[0],
        "epoch": current.identity[1],
    }
    return CurrentState.of(EventKind.NOW_OWNER, fields)


def _client(call: Call | None) -> str | None:
    return call.client or None if call is not None else None


def _label(current: Transaction | None) -> str:
    return "(unknown)" if current is None else current.state.label
