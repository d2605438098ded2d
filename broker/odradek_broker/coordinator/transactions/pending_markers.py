"""Markers on their way: which partitions are left, and what each answer means (T-40, T-43)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from odradek_broker.coordinator.transactions.calls import VERSION_2
from odradek_broker.coordinator.transactions.interfaces import MarkerRequest
from odradek_broker.coordinator.transactions.states import TransactionState
from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

_E = ErrorCode

#: Between two attempts: the first and the longest pause.
BACKOFF_MS = 100
BACKOFF_MAX_MS = 10_000


class MarkerAnswer(Enum):
    """The consequence of a leader's answer for a partition."""

    DONE = "the marker is there, or no longer needed"
    RETRY = "ask again later"
    STALE = "a newer coordinator is at work: stop, and leave the transaction to it"
    FAILED = "stop, and leave the transaction as it is"


#: The meaning of a code from a partition's leader (T-43). Codes that are not here are FAILED.
ANSWERS: dict[ErrorCode, MarkerAnswer] = {
    _E.NONE: MarkerAnswer.DONE,
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerAnswer.DONE,
    _E.UNSUPPORTED_VERSION: MarkerAnswer.DONE,
    _E.UNKNOWN_TOPIC_OR_PARTITION: MarkerAnswer.RETRY,
    _E.NOT_LEADER_OR_FOLLOWER: MarkerAnswer.RETRY,
    _E.NOT_ENOUGH_REPLICAS: MarkerAnswer.RETRY,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: MarkerAnswer.RETRY,
    _E.REQUEST_TIMED_OUT: MarkerAnswer.RETRY,
    _E.KAFKA_STORAGE_ERROR: MarkerAnswer.RETRY,
    _E.COORDINATOR_LOAD_IN_PROGRESS: MarkerAnswer.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: MarkerAnswer.RETRY,
    _E.NOT_COORDINATOR: MarkerAnswer.RETRY,
    _E.INVALID_PRODUCER_EPOCH: MarkerAnswer.STALE,
    _E.TRANSACTION_COORDINATOR_FENCED: MarkerAnswer.STALE,
}


class MarkerProgress:
    """The markers of one prepared transaction. Soft state: after a restart all are written again."""

    __slots__ = ("attempts", "coordinator_epoch", "in_flight", "remaining", "transaction")

    def __init__(self, transaction: Transaction, coordinator_epoch: int) -> None:
        self.transaction = transaction
        self.coordinator_epoch = coordinator_epoch
        self.remaining: set[TopicPartition] = set(transaction.partitions)
        self.attempts = 0
        self.in_flight = False

    def request(self) -> MarkerRequest:
        """Markers for what is left (T-40)."""
        transaction = self.transaction
        return MarkerRequest(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            coordinator_epoch=self.coordinator_epoch,
            commit=transaction.state is TransactionState.PREPARE_COMMIT,
            transaction_version=transaction.client_version
            if transaction.client_version >= VERSION_2
            else 1,
            partitions=sorted(self.remaining),
        )

    def backoff_ms(self) -> int:
        """How long to wait before the next attempt."""
        return min(BACKOFF_MAX_MS, BACKOFF_MS << min(self.attempts, 20))

    def answered(
        self,
        codes: Mapping[TopicPartition, ErrorCode],
        exists: Callable[[TopicPartition], bool],
    ) -> dict[MarkerAnswer, list[TopicPartition]]:
        """Take one round of answers; what they mean, by meaning.

        A partition without an answer is asked again; one whose topic is gone needs no marker.
        """
        self.in_flight = False
        self.attempts += 1
        found: dict[MarkerAnswer, list[TopicPartition]] = {}
        for part in sorted(self.remaining):
            code = codes.get(part, _E.REQUEST_TIMED_OUT)
            answer = ANSWERS.get(code, MarkerAnswer.FAILED)
            if answer is MarkerAnswer.RETRY and not exists(part):
                answer = MarkerAnswer.DONE
            found.setdefault(answer, []).append(part)
        self.remaining.difference_update(found.get(MarkerAnswer.DONE, ()))
        return found
