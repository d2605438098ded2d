"""The way from a durable decision to the end of a transaction: its markers, then its Complete
record (T-33, T-40, T-43).

A decision is never undone: markers are requested until every partition has its marker. A request of
a shard to the rest of the broker, for a new producer id or for markers, is an effect in its outbox.
`Effects` carries out the effect after the decision that it comes from, and the result leads to the
shard's next decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, Protocol, TypeVar

import structlog

from odradek_broker.coordinator.runtime import Core, Instant, Outcome, Runtime, RuntimeState
from odradek_broker.coordinator.timers import Timers
from odradek_broker.coordinator.transactions.decisions import complete_transaction
from odradek_broker.coordinator.transactions.events import (
    Cause,
    MarkersRetried,
    MarkersSent,
    MarkersStopped,
    Observer,
    StepNotRecorded,
    TransactionCompleted,
)
from odradek_broker.coordinator.transactions.markers import (
    MarkerAnswer,
    MarkerProgress,
    MarkerRequest,
    WriteMarker,
)
from odradek_broker.coordinator.transactions.transaction import (
    TRANSACTION_APPEND_ERRORS,
    Transaction,
    check_step,
    encode,
)
from odradek_broker.deferred import Deferred
from odradek_broker.platform.fault_points import FaultPoint, FaultPoints
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple


class Deadline(Enum):
    """The purpose of a timer."""

    TIMEOUTS = "look for transactions that ran out of time"
    EXPIRY = "look for ids that nobody uses"
    MARKERS = "write the markers that are left"
    PARKED = "give up waiting for the end of the last transaction"


class TimerName(NamedTuple):
    """The name of a deadline; `number` distinguishes the parked calls of a transactional id."""

    kind: Deadline
    transactional_id: str = ""
    number: int = 0


log = structlog.get_logger("odradek.transactions")

#: The most transactions of a shard whose markers are being written; further ones wait.
MARKERS_IN_FLIGHT_MAX = 500


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """A request for markers of the partitions' leaders; the codes are given to
    `markers_answered`."""

    transactional_id: str
    request: MarkerRequest


@dataclass(frozen=True, slots=True)
class TakeProducerId:
    """A request for a producer id. `decide` is called with the id, or with None if there is
    none."""

    transactional_id: str
    decide: Callable[[int | None, Instant], Outcome]
    refuse: Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class DecideAgain:
    """A parked call that may be decided."""

    decide: Callable[[Instant], Outcome]


Effect = SendMarkers | TakeProducerId | DecideAgain


class EffectsCore(Core, Protocol):
    """A core that requests effects."""

    outbox: deque[Effect]

    def markers_answered(
        self, sent: SendMarkers, codes: Mapping[TopicPartition, ErrorCode], now: Instant
    ) -> Outcome:
        """The leaders' answers to one `SendMarkers`."""
        ...


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

        An effect that completes at once calls this method again; the outer call carries out the
        further effects too, so that calls do not nest without end.
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
                runtime.run(lambda now: effect.decide(producer_id, now))
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
                runtime.run(lambda now: runtime.core.markers_answered(sent, codes, now))
            self._send_waiting()

        self._write_marker(sent.request).then(answered)


def _log_refusals(sent: SendMarkers, codes: Mapping[TopicPartition, ErrorCode]) -> None:
    for (topic, index), code in codes.items():
        if code is not ErrorCode.NONE and not code.retriable:
            log.error(
                "a transaction marker was refused",
                transactional_id=sent.transactional_id,
                topic=topic,
                partition=index,
                error=code.name,
            )


_E = ErrorCode


class Completion:
    """Ends the decided transactions of one shard; `transactions`, `timers` and `outbox` are the
    shard's.

    `coordinator_epoch`: the partition's leader epoch, in every marker (T-57). `exists`: true for an
    existing partition; deleted topics need no markers (T-43). `on_complete` is called with an id
    that may begin its next transaction.
    """

    def __init__(
        self,
        transactions: Mapping[str, Transaction],
        timers: Timers[TimerName],
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
        self._under_way: dict[str, MarkerProgress] = {}

    def is_under_way(self, name: str) -> bool:
        """True if the transaction of the id is decided and its Complete record is not durable."""
        return name in self._under_way

    def begin(self, name: str, now: Instant) -> Outcome:
        """Begin to write the markers of a transaction whose decision is durable."""
        current = self._transactions.get(name)
        if current is None or not current.state.is_prepared:
            return Outcome()
        self._under_way[name] = MarkerProgress(current, self._coordinator_epoch)
        return self.send_markers(name, now)

    def send_markers(self, name: str, now: Instant) -> Outcome:
        """Request the markers that are not written yet; without any, complete the transaction."""
        progress = self._under_way.get(name)
        if progress is None or progress.in_flight:
            return Outcome()
        if not progress.remaining:
            return self._complete(name, now)
        progress.in_flight = True
        request = progress.request()
        self._observer(MarkersSent(name, progress.transaction, request.partitions))
        self._outbox.append(SendMarkers(name, request))
        return Outcome()

    def answered(
        self, sent: SendMarkers, codes: Mapping[TopicPartition, ErrorCode], now: Instant
    ) -> Outcome:
        """The leaders' answers to one `SendMarkers`."""
        name = sent.transactional_id
        progress = self._under_way.get(name)
        if progress is None or not progress.in_flight:
            return Outcome()
        found = progress.answered(codes, self._exists)
        for answer in (MarkerAnswer.STALE, MarkerAnswer.FAILED):
            if answer in found:
                del self._under_way[name]
                error = codes.get(found[answer][0], _E.REQUEST_TIMED_OUT)
                self._observer(MarkersStopped(name, found[answer], error, answer))
                return Outcome()
        if progress.remaining:
            again = found[MarkerAnswer.RETRY]
            error = codes.get(again[0], _E.REQUEST_TIMED_OUT)
            self._observer(MarkersRetried(name, again, error, progress.backoff_ms()))
            self._retry(name, progress, now)
            return Outcome()
        self._fault_points.reach(FaultPoint.ALL_MARKERS_DURABLE)
        return self._complete(name, now)

    def clear(self) -> None:
        """Drop everything: this broker does not coordinate the ids any more."""
        self._under_way.clear()

    # --- Inside ---

    def _retry(self, name: str, progress: MarkerProgress, now: Instant) -> None:
        timer = TimerName(Deadline.MARKERS, name)
        self._timers.set(timer, now.monotonic_ms + progress.backoff_ms())

    def _complete(self, name: str, now: Instant) -> Outcome:
        """Write the Complete record (T-33). Later requests use the new state at once; their records
        follow the Complete record."""
        before = self._transactions[name]
        after = complete_transaction(before, now.wall_ms)
        check_step(name, before.state, after.state)
        self._observer(TransactionCompleted(name, before, after))

        def after_append(error: ErrorCode, then: Instant) -> Outcome:
            progress = self._under_way.get(name)
            if error is not _E.NONE:
                self._observer(StepNotRecorded(name, Cause.MARKERS_WRITTEN, None, error))
                if progress is not None:
                    progress.attempts += 1
                    self._retry(name, progress, then)
                return Outcome()
            self._under_way.pop(name, None)
            return Outcome()

        self._on_complete(name)
        return Outcome([encode(after)], [], after_append, TRANSACTION_APPEND_ERRORS)
