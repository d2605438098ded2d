"""A transactional id: its state, the legal transitions, and its record in the log.

Numbers, names and legal transitions are Kafka's (T-05). Dead and PrepareEpochFence are never
stored: an id is Dead while its tombstone is written, and in PrepareEpochFence while the record of
the abort that fences its producer is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import repeat

from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_pieces, in_sorted_order, with_pauses
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    NO_TRANSACTION_TIMEOUT_MS,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored import transaction_log
from odradek_protocol.stored.transaction_log import (
    LAST_EPOCH_TAG,
    NEXT_EPOCH_TAG,
    StoredPartitions,
    TransactionLogValue,
)


class TransactionState(IntEnum):
    """The state of a transactional id, with its number in the log. `label` is its name in
    DescribeTransactions."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """True if the transaction is decided and its markers are being written (T-32)."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open, so that the id may expire (T-06)."""
        return self in _IDLE


_S = TransactionState

_LABELS = {
    _S.EMPTY: "Empty",
    _S.ONGOING: "Ongoing",
    _S.PREPARE_COMMIT: "PrepareCommit",
    _S.PREPARE_ABORT: "PrepareAbort",
    _S.COMPLETE_COMMIT: "CompleteCommit",
    _S.COMPLETE_ABORT: "CompleteAbort",
    _S.DEAD: "Dead",
    _S.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
STATE_OF_LABEL = {label: state for state, label in _LABELS.items()}

_IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

#: The states from which each state may be entered.
ENTERED_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: _IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # This state is entered from an idle state only in version 2, in which a client may abort
    # without knowing that no partition was added (T-65).
    _S.PREPARE_ABORT: _IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: _IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

#: The states that records may have.
STORED_STATES = frozenset(_S) - {_S.DEAD, _S.PREPARE_EPOCH_FENCE}

#: The state that follows a prepared one when all markers are written.
COMPLETED: dict[TransactionState, TransactionState] = {
    _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
    _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
}


class IllegalTxnTransition(RuntimeError):
    """A transition that is not in `ENTERED_FROM`: a bug of this program, not an error of a
    client."""


def check_step(transactional_id: str, before: TransactionState, after: TransactionState) -> None:
    """Raise IllegalTransition unless `ENTERED_FROM` allows this step."""
    if before not in ENTERED_FROM[after]:
        raise IllegalTxnTransition(
            f"transactional id {transactional_id!r} cannot go from {before.label} to {after.label}"
        )


#: Storage error of an append of a transaction's record -> error in the answer (T-04).
TRANSACTION_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id. Times are in milliseconds since 1970.

    `last_epoch`: the epoch before the last raise; the client may still use `last_epoch`, because
    the answer with the new epoch may have been lost (T-12). `client_version`: the transaction
    version of the client's last request. `next_producer_id` and `next_epoch`: the identity of the
    client once this transaction is complete (T-64, KIP-939).
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_epoch: int = NO_PRODUCER_EPOCH
    last_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP

    @property
    def has_timeout(self) -> bool:
        """False for a producer with two-phase commit: its transaction waits for its decision
        without limit (KIP-939)."""
        return self.timeout_ms != NO_TRANSACTION_TIMEOUT_MS

    @property
    def identity(self) -> tuple[int, int]:
        """(producer id, epoch) that the client must use: the next identity if there is one,
        otherwise the present identity."""
        if self.next_epoch != NO_PRODUCER_EPOCH:
            return self.next_producer_id, self.next_epoch
        return self.producer_id, self.epoch


def encode(transaction: Transaction) -> Record:
    """The record of a transactional id (T-02)."""
    value = _stored(transaction)
    if transaction.state is not TransactionState.EMPTY:
        value.transaction_partitions = [
            StoredPartitions(topic=topic, partition_ids=indexes)
            for topic, indexes in in_order(transaction.partitions)
        ]
    key = transaction_log.encode_key(transaction.transactional_id)
    return key, transaction_log.encode_value(value)


async def encode_in_pieces(transaction: Transaction) -> Record:
    """Like `encode`, for a transaction with many partitions."""
    value = _stored(transaction)
    by_topic: dict[str, StoredPartitions] = {}
    async for some in in_pieces(await in_sorted_order(transaction.partitions)):
        for topic, index in some:
            if topic not in by_topic:
                by_topic[topic] = StoredPartitions(topic=topic, partition_ids=[])
            by_topic[topic].partition_ids.append(index)
    value.transaction_partitions = list(by_topic.values())
    key = transaction_log.encode_key(transaction.transactional_id)
    return key, await with_pauses(transaction_log.encode_value_with_pauses(value))


def _stored(transaction: Transaction) -> TransactionLogValue:
    """The value of the record, without partitions."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    transaction_log.set_tagged_epoch(value, NEXT_EPOCH_TAG, transaction.next_epoch)
    transaction_log.set_tagged_epoch(value, LAST_EPOCH_TAG, transaction.last_epoch)
    return value


def tombstone(transactional_id: str) -> Record:
    """The tombstone of a transactional id (T-06)."""
    return transaction_log.encode_key(transactional_id), None


def decode(transactional_id: str, data: bytes) -> Transaction:
    """The state in the value of a record. Raises DecodeError if the value is not valid."""
    value = transaction_log.decode_value(data)
    partitions: set[TopicPartition] = set()
    for part in value.transaction_partitions or ():
        partitions.update(zip(repeat(part.topic), part.partition_ids, strict=False))
    return _transaction(transactional_id, value, partitions)


async def decode_in_pieces(transactional_id: str, data: bytes) -> Transaction:
    """Like `decode`, for a large value."""
    value = await with_pauses(transaction_log.decode_value_with_pauses(data))
    partitions: set[TopicPartition] = set()
    async for some in in_pieces(value.transaction_partitions or ()):
        for part in some:
            partitions.update(zip(repeat(part.topic), part.partition_ids, strict=False))
    return _transaction(transactional_id, value, partitions)


def _transaction(
    transactional_id: str, value: TransactionLogValue, partitions: set[TopicPartition]
) -> Transaction:
    status = value.transaction_status
    if status not in {int(state) for state in STORED_STATES}:
        raise DecodeError(f"transactional id {transactional_id!r} is stored in state {status}")
    next_epoch = transaction_log.tagged_epoch(value, NEXT_EPOCH_TAG)
    if value.next_producer_id != NO_PRODUCER_ID and next_epoch == NO_PRODUCER_EPOCH:
        # Kafka writes no epoch with a new producer id, which begins at epoch 0 (T-64).
        next_epoch = 0
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(status),
        partitions=frozenset(partitions) or NO_PARTITIONS,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_epoch=next_epoch,
        last_epoch=transaction_log.tagged_epoch(value, LAST_EPOCH_TAG),
        client_version=value.client_transaction_version,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
    )


def in_order(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """The topics in order, each with its partitions in order. There may be many partitions."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    return [(topic, sorted(by_topic[topic])) for topic in sorted(by_topic)]
