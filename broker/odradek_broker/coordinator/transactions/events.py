"""The events of transactional ids: each decision passes an event to an observer.

`odradek_broker.explain.transactions` turns events into texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from odradek_broker.coordinator.transactions.decisions import Call
from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple


class Cause(Enum):
    """The cause of a step: a request, named as in Kafka, or the coordinator itself."""

    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn"
    VERIFY = "verification of a batch"
    COMMIT = "EndTxn(commit)"
    ABORT = "EndTxn(abort)"
    TIMEOUT = "timeout"
    MARKERS_WRITTEN = "markers written"


class MarkerAnswer(Enum):
    """The consequence of the error code that a leader returned for a partition."""

    DONE = "the marker is there, or no longer needed"
    RETRY = "ask again later"
    STALE = "a newer coordinator is at work: stop, and leave the transaction to it"
    FAILED = "stop, and leave the transaction as it is"


class StepDecided(NamedTuple):
    """A step was decided because of a request. `before`: None for an unknown id."""

    transactional_id: str
    cause: Cause
    call: Call
    before: Transaction | None
    after: Transaction


class StepNotRecorded(NamedTuple):
    """The record of a step was refused. `call`: None for a step of the coordinator itself."""

    transactional_id: str
    cause: Cause
    call: Call | None
    error: ErrorCode


class RequestRefused(NamedTuple):
    """A request was answered with an error. `pending`: the state to which a pending transition
    leads, None without a pending transition."""

    transactional_id: str
    cause: Cause
    call: Call
    error: ErrorCode
    transaction: Transaction | None
    pending: TransactionState | None
    partitions: Sequence[TopicPartition]


class TransactionTimedOut(NamedTuple):
    """The coordinator aborts a transaction that has been open for too long, at `wall_ms`."""

    transactional_id: str
    before: Transaction
    after: Transaction
    wall_ms: int


class MarkersSent(NamedTuple):
    """Markers were requested from the leaders of these partitions."""

    transactional_id: str
    transaction: Transaction
    partitions: Sequence[TopicPartition]


class MarkersRetried(NamedTuple):
    """Partitions did not take their markers; the markers are requested again after a pause."""

    transactional_id: str
    partitions: Sequence[TopicPartition]
    error: ErrorCode
    pause_ms: int


class MarkersStopped(NamedTuple):
    """Partitions did not take their markers, and the coordinator stops completing the
    transaction.
    """

    transactional_id: str
    partitions: Sequence[TopicPartition]
    error: ErrorCode
    answer: MarkerAnswer


class TransactionCompleted(NamedTuple):
    """All markers are written; the Complete record follows."""

    transactional_id: str
    before: Transaction
    after: Transaction


class CompletionResumed(NamedTuple):
    """A load has found a decided transaction; its markers are written again."""

    transactional_id: str
    transaction: Transaction
    partitions: Sequence[TopicPartition]


class IdExpired(NamedTuple):
    """An unused id was removed at `wall_ms` (T-06)."""

    transactional_id: str
    transaction: Transaction
    wall_ms: int


TransactionEvent = (
    StepDecided
    | StepNotRecorded
    | RequestRefused
    | TransactionTimedOut
    | MarkersSent
    | MarkersRetried
    | MarkersStopped
    | TransactionCompleted
    | CompletionResumed
    | IdExpired
)

Observer = Callable[[TransactionEvent], None]


def unobserved(_: TransactionEvent) -> None:
    """Ignore an event: the default observer."""
