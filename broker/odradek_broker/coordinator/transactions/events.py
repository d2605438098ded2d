"""Events of transactional ids: a shard tells an observer of all that it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from odradek_broker.coordinator.transactions.decisions import Call
from odradek_broker.coordinator.transactions.markers import MarkerAnswer
from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode


class TransactionEventKind(Enum):
    """The cause of an event: a request by its name in Kafka, or the coordinator itself."""

    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn"
    VERIFY = "verification of a batch"
    COMMIT = "EndTxn(commit)"
    ABORT = "EndTxn(abort)"
    TIMEOUT = "timeout"
    EXPIRED = "expired"
    RESUMED = "resumed"
    MARKERS_SENT = "markers sent"
    MARKERS_AGAIN = "markers sent again"
    MARKERS_STOPPED = "markers stopped"
    MARKERS_WRITTEN = "markers written"


class TransactionEvent(NamedTuple):
    """Something that happened to a transactional id, for people (`odradek explain`).

    `after` is None where nothing changed. `pending`: the state of the step that was on its way.
    `partitions`, `answer` and `pause_ms`: of markers.
    """

    wall_ms: int
    transactional_id: str
    kind: TransactionEventKind
    before: Transaction | None
    after: Transaction | None
    error: ErrorCode = ErrorCode.NONE
    call: Call | None = None
    pending: TransactionState | None = None
    partitions: Sequence[TopicPartition] = ()
    answer: MarkerAnswer = MarkerAnswer.DONE
    pause_ms: int = 0


Observer = Callable[[TransactionEvent], None]


def unobserved(_: TransactionEvent) -> None:
    """Nobody wants to know."""
