"""The share partitions that this broker leads (rules H-170 to H-172).

A share partition is loaded when a member first fetches from it: its state is read, and its start
offset found if it has none. From then on it is in memory, until its group has no session any more,
its topic is deleted or its state was changed by somebody else.

    ShareFetch -----> acquire ----------------------------------> answer
    ShareAcknowledge -> Change -> state written, durable -> finish -> answer, wake fetches
    lock expires ---> available at once -> state written
    session ends ---> Change -> state written, durable -> finish -> wake fetches
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.partition import Partition, Waiter
from odradek_broker.platform.seams import Clock, Scheduler, Timer
from odradek_broker.share.acquisition import Acquired
from odradek_broker.share.events import (
    AcknowledgementsRefused,
    Dropped,
    Loaded,
    LocksExpired,
    LogStartMoved,
    NothingAcquired,
    NothingReason,
    Observer,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsRemoved,
    RecordsReturned,
    SessionEnd,
    ShareEvent,
)
from odradek_broker.share.in_flight import Change, ShareSettings
from odradek_broker.share.offset_reset import OffsetReset
from odradek_broker.share.share_partition import (
    Acknowledgement,
    InvalidState,
    Refused,
    SharePartition,
)
from odradek_broker.share.statistics import ShareStatistics
from odradek_broker.share_state import ShareKey, StateBatch, StateResult
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode

_E = ErrorCode

_NOT_HOSTED = "This server does not host this topic-partition."
#: The limit of share partitions in memory (D11).
PARTITIONS_MAX = 100_000

#: The error for a client, by the error of the state; any other is UNKNOWN_SERVER_ERROR.
_STATE_ERRORS = {
    _E.NOT_COORDINATOR: _E.COORDINATOR_NOT_AVAILABLE,
    _E.COORDINATOR_NOT_AVAILABLE: _E.COORDINATOR_NOT_AVAILABLE,
    _E.COORDINATOR_LOAD_IN_PROGRESS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.GROUP_ID_NOT_FOUND: _E.GROUP_ID_NOT_FOUND,
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.UNKNOWN_TOPIC_OR_PARTITION,
    _E.FENCED_LEADER_EPOCH: _E.NOT_LEADER_OR_FOLLOWER,
    _E.FENCED_STATE_EPOCH: _E.NOT_LEADER_OR_FOLLOWER,
}
#: The errors after which a share partition is not led any more: it is loaded again.
_FENCING = frozenset(
    {_E.NOT_LEADER_OR_FOLLOWER, _E.GROUP_ID_NOT_FOUND, _E.UNKNOWN_TOPIC_OR_PARTITION}
)


class ShareStates(Protocol):
    """The stored states of share partitions."""

    def read(self, key: ShareKey, leader_epoch: int, /) -> Deferred[StateResult]:
        """Read a state, and fence earlier leaders."""
        ...

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        /,
    ) -> Deferred[StateResult]:
        """Add batches to a state; resolves when they are durable."""
        ...


class Outcome(NamedTuple):
    """The outcome of acknowledgements for one partition."""

    error: ErrorCode = _E.NONE
    message: str | None = None


class LedPartition:
    """A share partition that this broker leads. `state` is None while it is loaded; `error` is the
    reason why it is not led any more, or NONE. `data_waiters` are called when records may be
    available, or after an error."""

    __slots__ = (
        "data_waiters",
        "error",
        "key",
        "leader_epoch",
        "partition",
        "state",
        "timer",
        "timer_at_ms",
        "topic",
    )

    def __init__(self, key: ShareKey, topic: str, partition: Partition) -> None:
        self.key = key
        self.topic = topic
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state: SharePartition | None = None
        self.error = _E.NONE
        self.data_waiters: dict[Waiter, None] = {}
        self.timer: Timer | None = None
        self.timer_at_ms = 0

    def wake(self) -> None:
        """Let the fetches that wait here check again."""
        for waiter in list(self.data_waiters):
            waiter()


class SharePartitions:
    """All share partitions that this broker leads.

    `find` gives a partition of a topic; `settings` and `offset_reset` the present settings of a
    group. `observer` is told of every event (H-240).
    """

    def __init__(
        self,
        states: ShareStates,
        find: Callable[[str, int], Partition | None],
        settings: Callable[[str], ShareSettings],
        offset_reset: Callable[[str], OffsetReset],
        clock: Clock,
        scheduler: Scheduler,
        observer: Observer,
    ) -> None:
        self._states = states
        self._observer = observer
        self.statistics = ShareStatistics()
        self._find = find
        self.settings = settings
        self._offset_reset = offset_reset
        self.clock = clock
        self._scheduler = scheduler
        self._led: dict[ShareKey, LedPartition] = {}
        #: The share partitions by their group, and by the id of their topic.
        self._keys_of: dict[str | bytes, dict[ShareKey, None]] = {}

    def __len__(self) -> int:
        return len(self._led)

    def tell(self, event: ShareEvent) -> None:
        """Count an event, and pass it to the observer."""
        self.statistics.count(event)
        self._observer(event)

    def loaded(self) -> Iterator[LedPartition]:
        """The share partitions that are loaded."""
        return (led for led in self._led.values() if led.state is not None)

    def of_group(self, group_id: str) -> list[LedPartition]:
        """The share partitions of a group that are loaded."""
        keys = self._keys_of.get(group_id, {})
        return [self._led[key] for key in keys if self._led[key].state is not None]

    # --- Leading ---

    def lead(self, key: ShareKey, topic: str) -> LedPartition | ErrorCode:
        """The share partition, which is being loaded at its first use; or the reason why it cannot
        be led."""
        led = self._led.get(key)
        if led is not None and self.check(led) is _E.NONE:
            return led
        partition = self._find(topic, key.partition)
        if partition is None:
            return _E.UNKNOWN_TOPIC_OR_PARTITION
        if partition.log.offline:
            return _E.KAFKA_STORAGE_ERROR
        if len(self._led) >= PARTITIONS_MAX:
            return _E.COORDINATOR_NOT_AVAILABLE
        led = self._led[key] = LedPartition(key, topic, partition)
        for owner in (key.group_id, key.topic_id):
            self._keys_of.setdefault(owner, {})[key] = None
        asked_ms = self.clock.monotonic_ms()
        self._states.read(key, led.leader_epoch).then(
            lambda result: self._loaded(led, result, asked_ms)
        )
        return led

    def check(self, led: LedPartition) -> ErrorCode:
        """NONE, or the reason why this broker leads the share partition no more (H-171)."""
        if led.error is _E.NONE:
            partition = led.partition
            if self._find(led.topic, led.key.partition) is not partition:
                self._drop(led, _E.UNKNOWN_TOPIC_OR_PARTITION)
            elif partition.log.offline:
                self._drop(led, _E.KAFKA_STORAGE_ERROR)
            elif partition.leader_epoch != led.leader_epoch:
                self._drop(led, _E.NOT_LEADER_OR_FOLLOWER)
        return led.error

    def forget_group(self, group_id: str) -> None:
        """Forget the share partitions of a group, because it has no session any more."""
        self._forget(group_id, _E.NOT_LEADER_OR_FOLLOWER)

    def forget_topic(self, topic_id: bytes) -> None:
        """Forget the share partitions of a deleted topic."""
        self._forget(topic_id, _E.UNKNOWN_TOPIC_OR_PARTITION)

    def _forget(self, owner: str | bytes, error: ErrorCode) -> None:
        # Whoever is woken by one of them may find that another one is led no more.
        for led in [self._led[key] for key in self._keys_of.get(owner, ())]:
            self._drop(led, error)

    def _drop(self, led: LedPartition, error: ErrorCode) -> None:
        if led.error is not _E.NONE:
            return
        led.error = error
        if led.state is not None:
            self.tell(Dropped(led.key, error))
        del self._led[led.key]
        for owner in (led.key.group_id, led.key.topic_id):
            keys = self._keys_of[owner]
            del keys[led.key]
            if not keys:
                del self._keys_of[owner]
        if led.timer is not None:
            led.timer.cancel()
        led.wake()

    def _loaded(self, led: LedPartition, result: StateResult, asked_ms: int) -> None:
        """Begin to serve a share partition whose state was read (H-170)."""
        if led.error is not _E.NONE:
            return
        stored = result.state
        if result.error is not _E.NONE or stored is None:
            self._drop(led, _STATE_ERRORS.get(result.error, _E.UNKNOWN_SERVER_ERROR))
            return
        try:
            start_offset = stored.start_offset
            if start_offset < 0:
                reset = self._offset_reset(led.key.group_id)
                start_offset = reset.offset_in(led.partition.log, self.clock.wall_ms())
            led.state = SharePartition.restored(start_offset, stored.state_epoch, stored.batches)
        except StorageError as problem:
            self._drop(led, problem.error)
        except InvalidState:
            self._drop(led, _E.UNKNOWN_SERVER_ERROR)
        else:
            took_ms = self.clock.monotonic_ms() - asked_ms
            self.tell(Loaded(led.key, start_offset, stored.batches, took_ms))
            led.wake()

    # --- Fetches ---

    def tell_acquired(
        self,
        led: LedPartition,
        member_id: str,
        acquired: Sequence[Acquired],
        settings: ShareSettings,
    ) -> None:
        """Tell the observer what a fetch has acquired, and what it did not find any more."""
        self._tell_removed(led)
        if acquired:
            lock_ms = settings.record_lock_duration_ms
            self.tell(RecordsAcquired(led.key, member_id, acquired, lock_ms))

    def tell_nothing(self, led: LedPartition, member_id: str, reason: NothingReason) -> None:
        """Tell the observer why a fetch has acquired nothing."""
        self.tell(NothingAcquired(led.key, member_id, reason))

    def move_log_start(self, led: LedPartition, log_start_offset: int) -> None:
        """Note that the log begins later (H-166)."""
        state = led.state
        if state is not None and state.start_offset < log_start_offset:
            before = state.start_offset
            state.move_log_start(log_start_offset)
            self._tell_removed(led)
            self.tell(LogStartMoved(led.key, before, log_start_offset))

    def _tell_removed(self, led: LedPartition) -> None:
        for each in led.state.take_removed() if led.state is not None else ():
            self.tell(RecordsRemoved(led.key, each))

    # --- Acknowledgements ---

    def acknowledge(
        self, key: ShareKey, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> Deferred[Outcome]:
        """Take a member's acknowledgements; resolves when they are durable (D5, H-172)."""
        led = self._led.get(key)
        error = _E.UNKNOWN_TOPIC_OR_PARTITION if led is None else self.check(led)
        if led is None or error is not _E.NONE:
            return Deferred.of(Outcome(error, _NOT_HOSTED if led is None else None))
        try:
            # Nothing is in flight in a share partition that is being loaded.
            state = led.state or SharePartition(0)
            change = state.acknowledge(
                member_id,
                acknowledgements,
                self.clock.monotonic_ms(),
                self.settings(key.group_id),
            )
        except Refused as refused:
            error, message = refused.error, refused.message
            self.tell(AcknowledgementsRefused(key, member_id, acknowledgements, error, message))
            return Deferred.of(Outcome(error, message))
        self.watch_locks(led)
        return self._write(
            led,
            state,
            change,
            lambda error: RecordsAcknowledged(
                key, member_id, acknowledgements, change.stored, error
            ),
        )

    def release(self, member_id: str, keys: Sequence[ShareKey], end: SessionEnd) -> None:
        """Give back everything that a member has, because its session is over (H-162)."""
        for key in keys:
            led = self._led.get(key)
            if led is not None and led.state is not None:
                now_ms = self.clock.monotonic_ms()
                change = led.state.release(member_id, now_ms, self.settings(key.group_id))
                if change.stored:
                    self._write(led, led.state, change, _returned(key, change, end))

    def _write(
        self,
        led: LedPartition,
        state: SharePartition,
        change: Change,
        event: Callable[[ErrorCode], ShareEvent],
    ) -> Deferred[Outcome]:
        """Store a change, and finish it when it is durable. `event` says that it is, or the
        error."""
        if not change.stored:
            self.tell(event(_E.NONE))
            return Deferred.of(Outcome())
        outcome: Deferred[Outcome] = Deferred()

        def written(result: StateResult) -> None:
            error = result.error
            if error is not _E.NONE:
                error = _STATE_ERRORS.get(error, _E.UNKNOWN_SERVER_ERROR)
            state.finish(change, durable=error is _E.NONE, now_ms=self.clock.monotonic_ms())
            self.tell(event(error))
            if error in _FENCING:
                self._drop(led, error)
            self.watch_locks(led)
            outcome.resolve(Outcome(error, None if error is _E.NONE else result.message))
            led.wake()

        self._store(led, state, change.stored).then(written)
        return outcome

    def _store(
        self, led: LedPartition, state: SharePartition, batches: Sequence[StateBatch]
    ) -> Deferred[StateResult]:
        return self._states.write(
            led.key,
            state.state_epoch,
            led.leader_epoch,
            state.start_offset,
            state.completed,
            batches,
        )

    # --- Locks ---

    def watch_locks(self, led: LedPartition) -> None:
        """Have the timer ring when the next lock or pause ends (H-160, H-200)."""
        deadline_ms = None if led.state is None else led.state.next_deadline_ms
        if deadline_ms is None or led.error is not _E.NONE:
            return
        if led.timer is not None:
            if led.timer_at_ms <= deadline_ms:
                return
            led.timer.cancel()
        led.timer_at_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self.clock.monotonic_ms())
        led.timer = self._scheduler.call_later(delay_ms, lambda: self._locks_expired(led))

    def _locks_expired(self, led: LedPartition) -> None:
        """Take back records whose lock has expired. They are available at once, or after a pause;
        what happened is stored afterwards, and also counts if that fails (H-160)."""
        led.timer = None
        state = led.state
        if state is None or led.error is not _E.NONE:
            return
        settings = self.settings(led.key.group_id)
        stored = state.expire(self.clock.monotonic_ms(), settings)
        self.watch_locks(led)
        if not stored:
            led.wake()
            return
        self.tell(LocksExpired(led.key, stored, settings.delivery_count_limit))

        def written(result: StateResult) -> None:
            state.settle()
            if _STATE_ERRORS.get(result.error, _E.NONE) in _FENCING:
                self._drop(led, _STATE_ERRORS[result.error])
            led.wake()

        self._store(led, state, stored).then(written)
        led.wake()


def _returned(key: ShareKey, change: Change, end: SessionEnd) -> Callable[[ErrorCode], ShareEvent]:
    """The event of records that are given back, by the error of the write."""
    return lambda error: RecordsReturned(
        key, change.member_id, end, change.stored, change.settings.delivery_count_limit, error
    )
