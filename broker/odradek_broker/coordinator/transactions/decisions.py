"""The decisions about the requests of producers with a transactional id (InitProducerId,
AddPartitionsToTxn, EndTxn), and about aborts by the coordinator itself.

A zombie is a producer that goes on after another instance has taken over its transactional id.
`fence_producer` raises the epoch of an open transaction, and the decision about each request
answers PRODUCER_FENCED to a zombie, which has an older epoch. The leader of a partition refuses the
batches of a zombie (`storage/producers/state.py`).

A decision is an error, or records and an answer. The functions here read only their arguments. A
decision may need a new producer id (`needs_producer_id`); the caller then decides again with the
new id and the state that is stored by then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import Enum

from odradek_broker.coordinator.transactions.transaction import (
    COMPLETED,
    NO_PARTITIONS,
    Transaction,
    TransactionState,
)
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    NO_TRANSACTION_TIMEOUT_MS,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

_E = ErrorCode
_S = TransactionState

#: The transaction version from which on every end of a transaction raises the epoch (KIP-890).
VERSION_2 = 2

#: The largest epoch, a signed 16-bit integer.
EPOCH_MAX = 32_767

#: The first epoch that clients do not get: the last epoch is reserved for fencing by the
#: coordinator (T-13).
EPOCH_EXHAUSTED = EPOCH_MAX - 1


class InitCall(NamedTuple):
    """An InitProducerId with a transactional id. Producer id and epoch are -1 if the producer has
    none yet.

    `client`: a readable description of the client; empty for the broker itself.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False
    client: str = ""


class EndCall(NamedTuple):
    """An EndTxn. `version` is the transaction version: 2 from EndTxn 5 on."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    version: int
    client: str = ""


class AddCall(NamedTuple):
    """Partitions for a transaction. `version` as in `EndCall`. `group`: the group whose offsets are
    committed, if the partition is one of `__consumer_offsets`."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Collection[TopicPartition]
    version: int
    client: str = ""
    group: str = ""


Call = InitCall | AddCall | EndCall


class InitAnswer(NamedTuple):
    """The answer to InitProducerId."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1
    ongoing_producer_id: int = -1
    ongoing_epoch: int = -1


class EndAnswer(NamedTuple):
    """The answer to EndTxn, with the producer id and epoch to use from then on."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. `after`: the state to record, if any. `producer_id` and `epoch`: the identity to
    answer. `ongoing_*`: the identity of a transaction that was kept (KIP-939)."""

    error: ErrorCode = _E.NONE
    after: Transaction | None = None
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    ongoing_producer_id: int = NO_PRODUCER_ID
    ongoing_epoch: int = NO_PRODUCER_EPOCH
    needs_producer_id: bool = False


NEEDS_PRODUCER_ID = Decision(needs_producer_id=True)


def is_exhausted(epoch: int) -> bool:
    """True if the next epoch is the one reserved for fencing (T-13)."""
    return epoch >= EPOCH_EXHAUSTED


def fence_producer(
    current: Transaction, fresh_id: int | None, wall_ms: int, *, keep_last_epoch: bool = False
) -> Decision:
    """Abort an open transaction under an epoch that its producer does not have.

    The epoch is raised once. The markers have the raised epoch, and the client's next identity is
    newer than this epoch. The new epoch is computed from the stored state, so that a second attempt
    does not raise it again if the first record could not be written (T-14).
    """
    epoch = min(current.epoch + 1, EPOCH_MAX)
    next_id, next_epoch = current.next_producer_id, current.next_epoch
    previous_id = current.previous_producer_id
    rotates = epoch == EPOCH_MAX
    if next_epoch != NO_PRODUCER_EPOCH:
        rotates = is_exhausted(next_epoch)
        next_epoch += 1
    if rotates:
        # The answer to a retried EndTxn has the stored next identity, so a producer must be able to
        # use this identity (T-66).
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        previous_id = current.identity[0]
        next_id, next_epoch = fresh_id, 0
    after = replace(
        current,
        state=_S.PREPARE_ABORT,
        epoch=epoch,
        last_epoch=current.identity[1] if keep_last_epoch else NO_PRODUCER_EPOCH,
        previous_producer_id=previous_id,
        next_producer_id=next_id,
        next_epoch=next_epoch,
        last_update_ms=wall_ms,
    )
    return Decision(after=after)


def decide_init_producer_id(
    current: Transaction | None, call: InitCall, fresh_id: int | None, wall_ms: int
) -> Decision:
    """The effect of an InitProducerId (T-12). The caller has checked that no transition of the id
    is pending."""
    timeout_ms = NO_TRANSACTION_TIMEOUT_MS if call.enable_two_phase_commit else call.timeout_ms
    if current is None:
        return _first_identity(call.transactional_id, timeout_ms, fresh_id, wall_ms)
    given = call.producer_id != NO_PRODUCER_ID
    if current.state.is_prepared:
        return Decision(_E.CONCURRENT_TRANSACTIONS)
    if given and not _may_own(current, call):
        return Decision(_E.PRODUCER_FENCED)
    if current.state is _S.ONGOING:
        if given and (call.producer_id, call.epoch) != current.identity:
            # A zombie must not abort the transaction of its successor.
            return Decision(_E.PRODUCER_FENCED)
        if call.keep_prepared:
            return _keep(current, timeout_ms, fresh_id, wall_ms)
        return _fence_for_init(current, given, fresh_id, wall_ms)
    fresh = replace(
        current,
        state=_S.EMPTY,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        last_update_ms=wall_ms,
    )
    if given and call.epoch == current.last_epoch:
        # The epoch was raised already, and the answer was lost.
        return _answered(fresh)
    if given and (call.producer_id, call.epoch) != (current.producer_id, current.epoch):
        return Decision(_E.PRODUCER_FENCED)
    last_epoch = current.epoch if given else NO_PRODUCER_EPOCH
    if not is_exhausted(current.epoch):
        return _answered(replace(fresh, epoch=current.epoch + 1, last_epoch=last_epoch))
    if fresh_id is None:
        return NEEDS_PRODUCER_ID
    return _answered(
        replace(
            fresh,
            producer_id=fresh_id,
            previous_producer_id=current.producer_id,
            epoch=0,
            last_epoch=last_epoch,
        )
    )


def _may_own(current: Transaction, call: InitCall) -> bool:
    """True if the caller is the producer of this id, or a producer whose answer with a new producer
    id was lost."""
    if call.producer_id in (current.producer_id, current.next_producer_id):
        return True
    return call.producer_id == current.previous_producer_id and is_exhausted(call.epoch)


def _first_identity(
    transactional_id: str, timeout_ms: int, fresh_id: int | None, wall_ms: int
) -> Decision:
    if fresh_id is None:
        return NEEDS_PRODUCER_ID
    return _answered(
        Transaction(transactional_id, fresh_id, 0, timeout_ms, _S.EMPTY, last_update_ms=wall_ms)
    )


def _answered(after: Transaction) -> Decision:
    return Decision(after=after, producer_id=after.producer_id, epoch=after.epoch)


def _fence_for_init(
    current: Transaction, given: bool, fresh_id: int | None, wall_ms: int
) -> Decision:
    step = fence_producer(current, fresh_id, wall_ms, keep_last_epoch=given)
    if step.after is None:
        return step
    return replace(step, error=_E.CONCURRENT_TRANSACTIONS)


def _keep(current: Transaction, timeout_ms: int, fresh_id: int | None, wall_ms: int) -> Decision:
    """Keep an open transaction, for another instance to commit or abort (T-73)."""
    producer_id, epoch = current.identity
    previous_id = current.previous_producer_id
    if is_exhausted(epoch):
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        previous_id = producer_id
        producer_id, epoch = fresh_id, NO_PRODUCER_EPOCH
    after = replace(
        current,
        timeout_ms=timeout_ms,
        previous_producer_id=previous_id,
        next_producer_id=producer_id,
        next_epoch=epoch + 1,
        last_epoch=NO_PRODUCER_EPOCH,
        last_update_ms=wall_ms,
    )
    return Decision(
        after=after,
        producer_id=after.next_producer_id,
        epoch=after.next_epoch,
        ongoing_producer_id=current.producer_id,
        ongoing_epoch=current.epoch,
    )


def decide_add_partitions(
    current: Transaction | None, call: AddCall, pending: bool, wall_ms: int
) -> Decision:
    """The effect of an AddPartitionsToTxn (T-20). `pending` is true while another transition
    is not durable; `pending` is checked before the identity (KAFKA-18660)."""
    if current is None:
        return Decision(_E.INVALID_PRODUCER_ID_MAPPING)
    if pending or current.state.is_prepared:
        return Decision(_E.CONCURRENT_TRANSACTIONS)
    if current.producer_id != call.producer_id:
        return Decision(_E.INVALID_PRODUCER_ID_MAPPING)
    if current.epoch != call.epoch:
        return Decision(_E.PRODUCER_FENCED)
    if current.next_epoch != NO_PRODUCER_EPOCH:
        # A kept transaction can only be ended, and accepts no more partitions (T-73).
        return Decision(_E.PRODUCER_FENCED)
    ongoing = current.state is _S.ONGOING
    if ongoing and current.partitions.issuperset(call.partitions):
        return Decision()
    after = replace(
        current,
        state=_S.ONGOING,
        partitions=current.partitions.union(call.partitions),
        client_version=call.version,
        last_update_ms=wall_ms,
        start_ms=current.start_ms if ongoing else wall_ms,
    )
    return Decision(after=after)


def verify_partitions(
    current: Transaction | None, call: AddCall
) -> dict[TopicPartition, ErrorCode]:
    """A code for each partition, NONE if it was added (T-22). A pending transition does not matter,
    because the log checks again."""
    error = _E.NONE
    if current is None or current.producer_id != call.producer_id:
        error = _E.INVALID_PRODUCER_ID_MAPPING
    elif current.epoch != call.epoch:
        error = _E.PRODUCER_FENCED
    elif current.state.is_prepared:
        error = _E.CONCURRENT_TRANSACTIONS
    if current is None or error is not _E.NONE:
        return dict.fromkeys(call.partitions, error)
    return {
        part: _E.NONE if part in current.partitions else _E.TRANSACTION_ABORTABLE
        for part in call.partitions
    }


class EndTxnEffect(Enum):
    """The effects of an EndTxn with a valid identity."""

    PREPARE = "decide: write the Prepare record"
    DONE = "nothing: it was a retry, and the transaction is complete"


Ending = EndTxnEffect | ErrorCode

#: The table for transactions of version 1 (EndTxn 0 to 4): (state, commit) -> effect (T-30).
#: Between the decision and the durable Complete record, every EndTxn is refused without the table.
END_V1: dict[tuple[TransactionState, bool], Ending] = {
    (_S.EMPTY, True): _E.INVALID_TXN_STATE,
    (_S.EMPTY, False): _E.INVALID_TXN_STATE,
    (_S.ONGOING, True): EndTxnEffect.PREPARE,
    (_S.ONGOING, False): EndTxnEffect.PREPARE,
    (_S.COMPLETE_COMMIT, True): EndTxnEffect.DONE,
    (_S.COMPLETE_COMMIT, False): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False): EndTxnEffect.DONE,
}

#: The table for transactions of version 2 (EndTxn 5): (state, commit, retry) -> effect (T-65).
#: `retry` is true for an EndTxn with the previous epoch or producer id, which an earlier attempt
#: has replaced. Between the decision and the durable Complete record, every EndTxn is refused
#: without the table.
END_V2: dict[tuple[TransactionState, bool, bool], Ending] = {
    (_S.EMPTY, False, True): _E.PRODUCER_FENCED,
    (_S.EMPTY, False, False): EndTxnEffect.PREPARE,
    (_S.EMPTY, True, True): _E.PRODUCER_FENCED,
    (_S.EMPTY, True, False): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False, True): EndTxnEffect.DONE,
    (_S.COMPLETE_ABORT, False, False): EndTxnEffect.PREPARE,
    (_S.COMPLETE_ABORT, True, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, True, False): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_COMMIT, False, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_COMMIT, False, False): EndTxnEffect.PREPARE,
    (_S.COMPLETE_COMMIT, True, True): EndTxnEffect.DONE,
    (_S.COMPLETE_COMMIT, True, False): _E.INVALID_TXN_STATE,
    (_S.ONGOING, False, True): _E.PRODUCER_FENCED,
    (_S.ONGOING, False, False): EndTxnEffect.PREPARE,
    (_S.ONGOING, True, True): _E.PRODUCER_FENCED,
    (_S.ONGOING, True, False): EndTxnEffect.PREPARE,
}


def decide_end(
    current: Transaction | None, call: EndCall, pending: bool, fresh_id: int | None, wall_ms: int
) -> Decision:
    """The effect of an EndTxn; see `END_V1` and `END_V2`. `pending`: true from the decision of a
    step until its record is durable, and for the end of a transaction until its Complete record is
    durable (T-65).
    """
    if current is None:
        return Decision(_E.INVALID_PRODUCER_ID_MAPPING)
    pending = pending or current.state.is_prepared
    ending: Ending
    if call.version >= VERSION_2:
        ending = _end_v2(current, call, pending)
    else:
        ending = _end_v1(current, call, pending)
    if isinstance(ending, ErrorCode):
        return Decision(ending)
    producer_id, epoch = current.identity
    if ending is EndTxnEffect.DONE:
        return Decision(producer_id=producer_id, epoch=epoch)
    if call.version >= VERSION_2:
        return _prepare_v2(current, call, fresh_id, wall_ms)
    after = replace(current, state=_prepared(call.commit), client_version=1, last_update_ms=wall_ms)
    return Decision(after=after, producer_id=producer_id, epoch=epoch)


def _end_v1(current: Transaction, call: EndCall, pending: bool) -> Ending:
    producer_id, epoch = current.identity
    fenced_by_rotation = call.producer_id == current.previous_producer_id and is_exhausted(
        call.epoch
    )
    if producer_id != call.producer_id and not fenced_by_rotation:
        return _E.INVALID_PRODUCER_ID_MAPPING
    if fenced_by_rotation or epoch != call.epoch:
        return _E.PRODUCER_FENCED
    return _E.CONCURRENT_TRANSACTIONS if pending else END_V1[current.state, call.commit]


def _end_v2(current: Transaction, call: EndCall, pending: bool) -> Ending:
    if pending:
        # A producer that has begun its next transaction has an identity that is not stored yet.
        # Such a producer must not be fenced, so `pending` is checked before the identity.
        return _E.CONCURRENT_TRANSACTIONS
    stored_id, stored_epoch = current.identity
    after_overflow = (
        call.producer_id == current.previous_producer_id
        and is_exhausted(call.epoch)
        and stored_epoch == 0
        and current.state not in (_S.EMPTY, _S.ONGOING)
    )
    if call.producer_id != stored_id and not after_overflow:
        return _E.INVALID_PRODUCER_ID_MAPPING
    # The end of a transaction of version 1 does not raise the epoch, so a producer with an older
    # epoch was fenced.
    raised = current.client_version >= VERSION_2 and call.epoch + 1 == stored_epoch
    retry = after_overflow or raised
    if not retry and call.epoch != stored_epoch:
        return _E.PRODUCER_FENCED
    return END_V2[current.state, call.commit, retry]


def _prepared(commit: bool) -> TransactionState:
    return _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT


def _prepare_v2(
    current: Transaction, call: EndCall, fresh_id: int | None, wall_ms: int
) -> Decision:
    """Record the decision under a new epoch, and answer the identity to use from then on (T-63,
    T-64)."""
    kept = current.next_epoch != NO_PRODUCER_EPOCH
    client_id, client_epoch = current.identity
    after = replace(
        current,
        state=_prepared(call.commit),
        epoch=min(current.epoch + 1, EPOCH_MAX),
        last_epoch=client_epoch,
        client_version=VERSION_2,
        last_update_ms=wall_ms,
        # An abort without an open transaction has no start time.
        start_ms=current.start_ms if current.state is _S.ONGOING else wall_ms,
    )
    if is_exhausted(client_epoch):
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        after = replace(
            after, previous_producer_id=client_id, next_producer_id=fresh_id, next_epoch=0
        )
        return Decision(after=after, producer_id=fresh_id, epoch=0)
    if kept:
        after = replace(after, next_epoch=client_epoch + 1)
    answer_id, answer_epoch = after.identity
    return Decision(after=after, producer_id=answer_id, epoch=answer_epoch)


def complete_transaction(current: Transaction, wall_ms: int) -> Transaction:
    """The state of the transaction after all of its markers are written."""
    producer_id, epoch = current.identity
    return replace(
        current,
        state=COMPLETED[current.state],
        producer_id=producer_id,
        epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_epoch=NO_PRODUCER_EPOCH,
        partitions=NO_PARTITIONS,
        last_update_ms=wall_ms,
    )
