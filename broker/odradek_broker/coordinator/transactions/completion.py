"""From a durable decision to the end of a transaction: its markers, then its Complete record (T-33, T-40,
T-43). A decision is never taken back, so this goes on until every partition has its marker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from odradek_broker.coordinator.runtime import Instant, Outcome
from odradek_broker.coordinator.timers import Timers
from odradek_broker.coordinator.transactions.deadlines import Deadline, TimerName
from odradek_broker.coordinator.transactions.effects import Effect, SendMarkers
from odradek_broker.coordinator.transactions.end_transaction import complete_transaction
from odradek_broker.coordinator.transactions.events import (
    Observer,
    TransactionEvent,
    TransactionEventKind,
)
from odradek_broker.coordinator.transactions.pending_markers import MarkerAnswer, MarkerProgress
from odradek_broker.coordinator.transactions.states import check_step
from odradek_broker.coordinator.transactions.transaction import (
    TRANSACTION_APPEND_ERRORS,
    Transaction,
    encode,
)
from odradek_broker.platform.fault_points import FaultPoint, FaultPoints
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

_E = ErrorCode


class Completion:
    """Ends the decided transactions of one shard; `transactions`, `timers` and `outbox` are the shard's.

    `coordinator_epoch`: the partition's leader epoch, in every marker (T-57). `exists`: is there such a
    partition? Markers for deleted topics are not needed (T-43). `on_complete`: an id may begin its next
    transaction.
    """

    def __init__(
        self,
        transactions: Mapping[str, Transaction],
        timers: Timers[TimerName],
        outbox: deque[Effect],
        coordinator_epoch: int,
        exists: Callable[[TopicPartition], bool],
        observer: Observer,
        faults: FaultPoints,
        on_complete: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._timers = timers
        self._outbox = outbox
        self._coordinator_epoch = coordinator_epoch
        self._exists = exists
        self._observer = observer
        self._faults = faults
        self._on_complete = on_complete
        self._under_way: dict[str, MarkerProgress] = {}

    def is_under_way(self, name: str) -> bool:
        """Is the id's transaction decided, and its Complete record not durable?"""
        return name in self._under_way

    def begin(self, name: str, now: Instant) -> Outcome:
        """The decision is durable: write the markers, then that they are written."""
        held = self._transactions.get(name)
        if held is None or not held.state.is_prepared:
            return Outcome()
        self._under_way[name] = MarkerProgress(held, self._coordinator_epoch)
        return self.send_markers(name, now)

    def send_markers(self, name: str, now: Instant) -> Outcome:
        """Those that are left; without any the transaction is complete."""
        progress = self._under_way.get(name)
        if progress is None or progress.in_flight:
            return Outcome()
        if not progress.remaining:
            return self._complete(name, now)
        progress.in_flight = True
        request = progress.request()
        self._observer(
            TransactionEvent(
                now.wall_ms,
                name,
                TransactionEventKind.MARKERS_SENT,
                progress.transaction,
                None,
                partitions=request.partitions,
            )
        )
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
                self._tell(name, found[answer], codes, answer, now)
                return Outcome()
        if progress.remaining:
            pause_ms = progress.backoff_ms()
            self._tell(name, found[MarkerAnswer.RETRY], codes, MarkerAnswer.RETRY, now, pause_ms)
            self._retry(name, progress, now)
            return Outcome()
        self._faults.reach(FaultPoint.ALL_MARKERS_DURABLE)
        return self._complete(name, now)

    def clear(self) -> None:
        """This broker coordinates these ids no more."""
        self._under_way.clear()

    # --- Inside ---

    def _tell(
        self,
        name: str,
        partitions: Sequence[TopicPartition],
        codes: Mapping[TopicPartition, ErrorCode],
        answer: MarkerAnswer,
        now: Instant,
        pause_ms: int = 0,
    ) -> None:
        """These partitions did not take their markers: now, or for good."""
        again = answer is MarkerAnswer.RETRY
        self._observer(
            TransactionEvent(
                now.wall_ms,
                name,
                TransactionEventKind.MARKERS_AGAIN
                if again
                else TransactionEventKind.MARKERS_STOPPED,
                self._transactions.get(name),
                None,
                codes.get(partitions[0], _E.REQUEST_TIMED_OUT),
                partitions=partitions,
                answer=answer,
                pause_ms=pause_ms,
            )
        )

    def _retry(self, name: str, progress: MarkerProgress, now: Instant) -> None:
        timer = TimerName(Deadline.MARKERS, name)
        self._timers.set(timer, now.monotonic_ms + progress.backoff_ms())

    def _complete(self, name: str, now: Instant) -> Outcome:
        """T-33. Later requests build on it at once; their records come after this one."""
        before = self._transactions[name]
        after = complete_transaction(before, now.wall_ms)
        check_step(name, before.state, after.state)
        written = TransactionEventKind.MARKERS_WRITTEN
        self._observer(TransactionEvent(now.wall_ms, name, written, before, after))

        def settled(error: ErrorCode, then: Instant) -> Outcome:
            progress = self._under_way.get(name)
            if error is not _E.NONE:
                self._observer(TransactionEvent(then.wall_ms, name, written, before, after, error))
                if progress is not None:
                    progress.attempts += 1
                    self._retry(name, progress, then)
                return Outcome()
            self._under_way.pop(name, None)
            return Outcome()

        self._on_complete(name)
        return Outcome([encode(after)], [], settled, TRANSACTION_APPEND_ERRORS)
