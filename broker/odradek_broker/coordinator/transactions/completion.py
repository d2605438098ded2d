"""The completion of a transaction after its decision is durable: its markers, then its Complete
record (T-33, T-40 to T-45).

A decision is never undone: markers are requested until every partition has its marker. A request of
a shard to the rest of the broker, for a new producer id or for markers, is an effect in its outbox.
`Effects` carries out the effects after each decision, and the result of an effect leads to the
shard's next decision.

The transaction coordinator of this broker and WriteTxnMarkers from the network both write markers
through `MarkerWriter`, at each partition's leader, so that a marker has the same effect in both
cases (D8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

import structlog

from odradek_broker.coordinator.runtime import (
    Core,
    CoreOutcome,
    Decision,
    Instant,
    Runtime,
    RuntimeState,
)
from odradek_broker.coordinator.timers import Timers
from odradek_broker.coordinator.transactions.decisions import VERSION_2, complete_transaction
from odradek_broker.coordinator.transactions.events import (
    Cause,
    MarkerAnswer,
    MarkersRetried,
    MarkersSent,
    MarkersStopped,
    Observer,
    StepNotRecorded,
    TransactionCompleted,
)
from odradek_broker.coordinator.transactions.transaction import (
    TRANSACTION_APPEND_ERRORS,
    Transaction,
    TransactionState,
    check_step,
    encode,
)
from odradek_broker.deferred import Deferred, gather
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.partition import Partition
from odradek_broker.platform.fault_points import FaultPoint, FaultPoints
from odradek_broker.platform.seams import Clock
from odradek_broker.slices import Slices, in_pieces, in_sorted_order, paced, pause_in_change
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

_E = ErrorCode


class TransactionTimer(Enum):
    """The purpose of a timer."""

    TIMEOUTS = "look for transactions that ran out of time"
    TIMED_OUT = "abort a transaction that ran out of time"
    EXPIRY = "look for ids that nobody uses"
    MARKERS = "write the markers that are left"
    PARKED = "give up waiting for the end of the last transaction"


class TransactionTimerName(NamedTuple):
    """The name of a deadline; `number` distinguishes the parked calls of a transactional id."""

    kind: TransactionTimer
    transactional_id: str = ""
    number: int = 0


PartitionCodes = Mapping[TopicPartition, ErrorCode]
"""An error code for each partition."""


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """A request to end one producer's transaction in these partitions (T-40).

    `commit` False aborts. `transaction_version` is 2 if the epoch was raised for this marker; then
    the marker's epoch must be higher than the epoch of the data (T-41). `absent`: the code of a
    partition that does not exist.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    partitions: Sequence[TopicPartition]
    absent: ErrorCode = _E.UNKNOWN_TOPIC_OR_PARTITION


MarkerResults = dict[TopicPartition, ErrorCode]

WriteMarker = Callable[[MarkerRequest], Deferred[MarkerResults]]
"""See `MarkerWriter.write`."""


log = structlog.get_logger("odradek.transactions")

#: The most markers that are written at once.
_MARKERS_AT_ONCE = 8
#: The limit of transactions whose markers are being written, for all shards together; further
#: transactions wait.
MARKERS_IN_FLIGHT_MAX = 500


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """A request to the partitions' leaders to write markers. `decide` is called with the codes in
    their answers."""

    transactional_id: str
    request: MarkerRequest
    decide: Callable[[Mapping[TopicPartition, ErrorCode], Instant], Decision]


@dataclass(frozen=True, slots=True)
class TakeProducerId:
    """A request for a producer id. `decide` is called with the id, or with None if there is
    none."""

    transactional_id: str
    decide: Callable[[int | None, Instant], Decision]
    refuse: Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class DecideAgain:
    """A request to decide a parked call again."""

    decide: Callable[[Instant], Decision]


Effect = SendMarkers | TakeProducerId | DecideAgain


class EffectsCore(Core, Protocol):
    """A core that requests effects."""

    outbox: deque[Effect]


C = TypeVar("C", bound=EffectsCore)


class Effects(Generic[C]):
    """Carries out the effects of all shards."""

    def __init__(
        self,
        next_producer_id: Callable[[], Deferred[int | None]],
        write_marker: WriteMarker,
    ) -> None:
        self._next_producer_id = next_producer_id
        self._write_marker = write_marker
        self._at_work: set[Runtime[C]] = set()
        self._markers_waiting: deque[tuple[Runtime[C], SendMarkers]] = deque()
        self._markers_in_flight = 0

    def carry_out(self, runtime: Runtime[C]) -> None:
        """Carry out the effects of the shard, until its outbox is empty.

        An effect that completes before its call returns leads to another call of this method. That
        inner call leaves further effects to the outer call, so that calls do not nest without
        limit.
        """
        if runtime in self._at_work:
            return
        self._at_work.add(runtime)
        try:
            while runtime.core.outbox and runtime.state is RuntimeState.ACTIVE:
                self._do(runtime, runtime.core.outbox.popleft())
        finally:
            self._at_work.discard(runtime)

    def _do(self, runtime: Runtime[C], effect: Effect) -> None:
        if isinstance(effect, TakeProducerId):
            self._take_producer_id(runtime, effect)
        elif isinstance(effect, SendMarkers):
            self._markers_waiting.append((runtime, effect))
            self._send_waiting()
        else:
            runtime.run(effect.decide)

    # --- Producer ids ---

    def _take_producer_id(self, runtime: Runtime[C], effect: TakeProducerId) -> None:
        def given(producer_id: int | None) -> None:
            if runtime.state is RuntimeState.ACTIVE:
                runtime.run(lambda now: effect.decide(producer_id, now), effect.refuse)
            else:
                effect.refuse(runtime.error)

        self._next_producer_id().then(given)

    # --- Markers ---

    def _send_waiting(self) -> None:
        while self._markers_waiting and self._markers_in_flight < MARKERS_IN_FLIGHT_MAX:
            runtime, sent = self._markers_waiting.popleft()
            if runtime.state is RuntimeState.ACTIVE:
                self._send(runtime, sent)

    def _send(self, runtime: Runtime[C], sent: SendMarkers) -> None:
        self._markers_in_flight += 1

        def answered(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            self._markers_in_flight -= 1
            _log_refusals(sent, codes)
            if runtime.state is RuntimeState.ACTIVE:
                runtime.run(lambda now: sent.decide(codes, now))
            self._send_waiting()

        self._write_marker(sent.request).then(answered)


#: The most refused markers of a transaction that one answer logs.
_REFUSALS_LOGGED_MAX = 20


def _log_refusals(sent: SendMarkers, codes: Mapping[TopicPartition, ErrorCode]) -> None:
    refused = [each for each in codes.items() if each[1] and not each[1].retriable]
    for (topic, index), code in refused[:_REFUSALS_LOGGED_MAX]:
        log.error(
            "a transaction marker was refused",
            transactional_id=sent.transactional_id,
            topic=topic,
            partition=index,
            error=code.name,
            refused=len(refused),
        )


#: The first and the longest pause between two attempts.
BACKOFF_MS = 100
BACKOFF_MAX_MS = 10_000

#: The meaning of a code from a partition's leader (T-43). Codes that are not in the table are
#: FAILED.
ANSWERS: dict[ErrorCode, MarkerAnswer] = {
    _E.NONE: MarkerAnswer.DONE,
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerAnswer.DONE,
    _E.UNSUPPORTED_VERSION: MarkerAnswer.DONE,
    # The topic was deleted, and a mirror topic has its name now: the transaction has no records in
    # the mirror topic.
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
    """The markers of one prepared transaction. They are not stored: after a restart all markers are
    written again."""

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
            partitions=tuple(self.remaining),
            # A deleted topic needs no markers (T-43).
            absent=_E.NONE,
        )

    def backoff_ms(self) -> int:
        """The pause before the next attempt, in ms."""
        return min(BACKOFF_MAX_MS, BACKOFF_MS << min(self.attempts, 20))

    def all_written(self, codes: Mapping[TopicPartition, ErrorCode]) -> bool:
        """True if these answers to one request say that all markers are durable."""
        return self.remaining == codes.keys() and not [code for code in codes.values() if code]

    async def answered(
        self,
        codes: Mapping[TopicPartition, ErrorCode],
        exists: Callable[[TopicPartition], bool],
    ) -> dict[MarkerAnswer, list[TopicPartition]]:
        """Take the answers to one request. Returns the partitions by the meaning of their answer.

        A partition without an answer gets another request; a partition whose topic is deleted needs
        no marker.
        """
        self.attempts += 1
        found: dict[MarkerAnswer, list[TopicPartition]] = {}
        async for some in in_pieces(await in_sorted_order(self.remaining)):
            for part in some:
                code = codes.get(part, _E.REQUEST_TIMED_OUT)
                answer = ANSWERS.get(code, MarkerAnswer.FAILED)
                if answer is MarkerAnswer.RETRY and not exists(part):
                    answer = MarkerAnswer.DONE
                found.setdefault(answer, []).append(part)
        self.remaining.difference_update(found.get(MarkerAnswer.DONE, ()))
        return found


class Completion:
    """Ends the decided transactions of one shard; `transactions`, `timers` and `outbox` are the
    shard's.

    `coordinator_epoch`: the leader epoch of the shard's partition, which every marker has (T-57).
    `exists`: true for an existing partition; deleted topics need no markers (T-43). `on_complete`
    is called with an id that may begin its next transaction.
    """

    def __init__(
        self,
        transactions: Mapping[str, Transaction],
        timers: Timers[TransactionTimerName],
        outbox: deque[Effect],
        coordinator_epoch: int,
        exists: Callable[[TopicPartition], bool],
        observer: Observer,
        fault_points: FaultPoints,
        on_complete: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._timers = timers
        self._outbox = outbox
        self._coordinator_epoch = coordinator_epoch
        self._exists = exists
        self._observer = observer
        self._fault_points = fault_points
        self._on_complete = on_complete
        #: The decided transactions whose Complete records are not durable, by their ids.
        self.under_way: dict[str, MarkerProgress] = {}

    def begin(self, name: str, now: Instant) -> CoreOutcome:
        """Begin to write the markers of a transaction whose decision is durable."""
        current = self._transactions.get(name)
        if current is None or not current.state.is_prepared:
            return CoreOutcome()
        self.under_way[name] = MarkerProgress(current, self._coordinator_epoch)
        return self.send_markers(name, now)

    def send_markers(self, name: str, now: Instant) -> CoreOutcome:
        """Request the markers that are not written yet; if all are written, complete the
        transaction."""
        progress = self.under_way.get(name)
        if progress is None or progress.in_flight:
            return CoreOutcome()
        if not progress.remaining:
            return self._complete(name, now)
        progress.in_flight = True
        request = progress.request()
        self._observer(MarkersSent(name, progress.transaction, request.partitions))
        self._outbox.append(SendMarkers(name, request, partial(self._answered, name)))
        return CoreOutcome()

    def _answered(
        self, name: str, codes: Mapping[TopicPartition, ErrorCode], now: Instant
    ) -> Decision:
        """Take the leaders' answers to one `SendMarkers`."""
        progress = self.under_way.get(name)
        if progress is None or not progress.in_flight:
            return CoreOutcome()
        progress.in_flight = False
        if not progress.all_written(codes):
            return self._answered_otherwise(name, progress, codes, now)
        progress.remaining.clear()
        return self._all_written(name, now)

    async def _answered_otherwise(
        self,
        name: str,
        progress: MarkerProgress,
        codes: Mapping[TopicPartition, ErrorCode],
        now: Instant,
    ) -> CoreOutcome:
        found = await progress.answered(codes, self._exists)
        if self.under_way.get(name) is not progress:
            return CoreOutcome()
        for answer in (MarkerAnswer.STALE, MarkerAnswer.FAILED):
            if answer in found:
                del self.under_way[name]
                error = codes.get(found[answer][0], _E.REQUEST_TIMED_OUT)
                self._observer(MarkersStopped(name, found[answer], error, answer))
                return CoreOutcome()
        if progress.remaining:
            again = found[MarkerAnswer.RETRY]
            error = codes.get(again[0], _E.REQUEST_TIMED_OUT)
            self._observer(MarkersRetried(name, again, error, progress.backoff_ms()))
            self._retry(name, progress, now)
            return CoreOutcome()
        return self._all_written(name, now)

    def _all_written(self, name: str, now: Instant) -> CoreOutcome:
        self._fault_points.reach(FaultPoint.ALL_MARKERS_DURABLE)
        return self._complete(name, now)

    def clear(self) -> None:
        """Drop all completions, because this broker no longer coordinates the ids."""
        self.under_way.clear()

    # --- Inside ---

    def _retry(self, name: str, progress: MarkerProgress, now: Instant) -> None:
        timer = TransactionTimerName(TransactionTimer.MARKERS, name)
        self._timers.set(timer, now.monotonic_ms + progress.backoff_ms())

    def _complete(self, name: str, now: Instant) -> CoreOutcome:
        """Write the Complete record (T-33). Later requests use the new state without waiting for
        the disk; their records follow the Complete record."""
        before = self._transactions[name]
        after = complete_transaction(before, now.wall_ms)
        check_step(name, before.state, after.state)
        self._observer(TransactionCompleted(name, before, after))

        def after_append(error: ErrorCode, then: Instant) -> CoreOutcome:
            progress = self.under_way.get(name)
            if error is not _E.NONE:
                self._observer(StepNotRecorded(name, Cause.MARKERS_WRITTEN, None, error))
                if progress is not None:
                    progress.attempts += 1
                    self._retry(name, progress, then)
                return CoreOutcome()
            self.under_way.pop(name, None)
            return CoreOutcome()

        self._on_complete(name)
        return CoreOutcome([encode(after)], [], after_append, TRANSACTION_APPEND_ERRORS)


class PartitionLeaders(Protocol):
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
        metadata: PartitionLeaders,
        offsets_marker_written: Callable[[int, int, bool, Deferred[ErrorCode]], None],
        clock: Clock,
        fault_points: FaultPoints,
        slices: Slices,
    ) -> None:
        self._partition = partition
        self._metadata = metadata
        self._slices = slices
        self._offsets_marker_written = offsets_marker_written
        self._clock = clock
        self._fault_points = fault_points

    def write(self, marker: MarkerRequest) -> Deferred[MarkerResults]:
        """Write a producer's markers; resolves when all of them are durable or refused.

        The code of a partition is NONE if its marker is durable. The other codes are `absent` for
        an unknown partition, 6 if another broker leads the partition, 42 for a mirror topic (I-02),
        47 if a newer producer has written, 52 if a newer coordinator has written (T-41), and 56
        after an error of the disk (T-43). The markers of many partitions are written in slices.
        """
        if len(marker.partitions) > _MARKERS_AT_ONCE:
            return self._slices.deferred(self._write_many(marker))
        partitions = sorted(set(marker.partitions))
        return gather([self._write_to(partition, marker) for partition in partitions]).map(
            lambda codes: dict(zip(partitions, codes, strict=True))
        )

    async def _write_many(self, marker: MarkerRequest) -> MarkerResults:
        partitions = await in_sorted_order(set(marker.partitions))
        written = [
            (partition, self._write_to(partition, marker))
            async for partition in paced(partitions, changing=True)
        ]
        codes = {partition: await code async for partition, code in paced(written, changing=True)}
        await pause_in_change()
        return codes

    def _write_to(self, where: TopicPartition, marker: MarkerRequest) -> Deferred[ErrorCode]:
        topic, index = where
        partition = self._partition(topic, index)
        if partition is None:
            led = self._metadata.leader_of(topic, index) is not None
            return Deferred.of(_E.NOT_LEADER_OR_FOLLOWER if led else marker.absent)
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
