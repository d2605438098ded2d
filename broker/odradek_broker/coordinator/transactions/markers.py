"""The markers that end transactions: their progress, and writing them (rules T-40 to T-45).

`MarkerProgress` keeps, for a transaction that is being ended, the partitions without a marker. The
transaction coordinator of this broker and WriteTxnMarkers from the network both write through
`MarkerWriter`, at each partition's leader, so that a marker has the same effect in both cases (D8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from odradek_broker.coordinator.transactions.decisions import VERSION_2
from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState
from odradek_broker.deferred import Deferred, gather
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.partition import Partition
from odradek_broker.platform.fault_points import FaultPoint, FaultPoints
from odradek_broker.platform.seams import Clock
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass

PartitionCodes = Mapping[TopicPartition, ErrorCode]
"""An error code for each partition."""


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """End one producer's transaction in these partitions (T-40).

    `commit` False aborts. `transaction_version`: 2 if the epoch was raised for this marker, and so
    must be higher than that of the data (T-41).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    partitions: Sequence[TopicPartition]


MarkerResults = dict[TopicPartition, ErrorCode]

WriteMarker = Callable[[MarkerRequest], Deferred[MarkerResults]]
"""See `MarkerWriter.write`."""

_E = ErrorCode

#: The first and the longest pause between two attempts.
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
    # The topic was deleted, and a mirror topic has its name: the transaction has no records there.
    _E.INVALID_REQUEST: MarkerAnswer.DONE,
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
    """The markers of one prepared transaction. Not stored: after a restart all markers are written
    again."""

    __slots__ = ("attempts", "coordinator_epoch", "in_flight", "remaining", "transaction")

    def __init__(self, transaction: Transaction, coordinator_epoch: int) -> None:
        self.transaction = transaction
        self.coordinator_epoch = coordinator_epoch
        self.remaining: set[TopicPartition] = set(transaction.partitions)
        self.attempts = 0
        self.in_flight = False

    def request(self) -> MarkerRequest:
        """The request for the markers that are missing (T-40)."""
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
        """The pause before the next attempt, in ms."""
        return min(BACKOFF_MAX_MS, BACKOFF_MS << min(self.attempts, 20))

    def answered(
        self,
        codes: Mapping[TopicPartition, ErrorCode],
        exists: Callable[[TopicPartition], bool],
    ) -> dict[MarkerAnswer, list[TopicPartition]]:
        """Take the answers to one request. Returns the partitions by the meaning of their answer.

        A partition without an answer is asked again; a partition whose topic is deleted needs no
        marker.
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


class Leadership(Protocol):
    """The leaders in the cluster metadata."""

    def leader_of(self, name: str, partition: int, /) -> int | None:
        """The node id of the leader; None if there is no such partition."""
        ...

    def is_mirror(self, name: str, /) -> bool:
        """True for a mirror topic, to which only the mirror adds records."""
        ...


class MarkerWriter:
    """Writes markers into the partitions that this broker leads.

    `partition` finds a partition; `offsets_marker_written` is called with the markers in
    `__consumer_offsets` (O-17; see `GroupCoordinator.marker_written`).
    """

    def __init__(
        self,
        partition: Callable[[str, int], Partition | None],
        metadata: Leadership,
        offsets_marker_written: Callable[[int, int, bool, Deferred[ErrorCode]], None],
        clock: Clock,
        fault_points: FaultPoints,
    ) -> None:
        self._partition = partition
        self._metadata = metadata
        self._offsets_marker_written = offsets_marker_written
        self._clock = clock
        self._fault_points = fault_points

    def write(self, marker: MarkerRequest) -> Deferred[MarkerResults]:
        """Write a producer's markers; resolves when all of them are durable or refused.

        Codes (T-43): NONE; 3 if there is no such partition, 6 if another broker leads it; 42 for a
        mirror topic (I-02); 47 and 52 if a newer producer or coordinator has written (T-41); 56
        after an error of the disk.
        """
        partitions = list(dict.fromkeys(marker.partitions))
        return gather([self._write_to(partition, marker) for partition in partitions]).map(
            lambda codes: dict(zip(partitions, codes, strict=True))
        )

    def _write_to(self, where: TopicPartition, marker: MarkerRequest) -> Deferred[ErrorCode]:
        topic, index = where
        partition = self._partition(topic, index)
        if partition is None:
            led = self._metadata.leader_of(topic, index) is not None
            return Deferred.of(
                ErrorCode.NOT_LEADER_OR_FOLLOWER if led else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if self._metadata.is_mirror(topic):
            return Deferred.of(ErrorCode.INVALID_REQUEST)
        self._fault_points.reach(FaultPoint.MARKER_TORN)
        written = partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            commit=marker.commit,
            transaction_version=marker.transaction_version,
            now_ms=self._clock.wall_ms(),
        )
        refused = written.done and written.result() is not ErrorCode.NONE
        if not refused:
            self._fault_points.reach(FaultPoint.MARKER_WRITTEN)
        if topic == OFFSETS_TOPIC and not refused:
            self._offsets_marker_written(index, marker.producer_id, marker.commit, written)
        return written
