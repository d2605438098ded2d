"""The share partitions that this broker leads (rules H-170 to H-172).

A share partition is loaded when a member first fetches from it: its state is read, and its start
offset is determined if the state has none. From then on it is in memory, until its group has no
session left, its topic is deleted, or another broker or an administrator has changed its state.

    ShareFetch -----> acquire ----------------------------------> answer
    ShareAcknowledge -> Change -> state written, durable -> finish -> answer, wake fetches
    lock expires ---> available immediately -> state written
    session ends ---> Change -> state written, durable -> finish -> wake fetches

With a dead letter topic, dead letters are written before the state (`dead_letter_writer.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from odradek_broker.deferred import Deferred
from odradek_broker.partition import Partition
from odradek_broker.share.acquisition import Acquired
from odradek_broker.share.dead_letter_writer import (
    DeadLetterWriter,
    Letters,
    WriteOutcome,
    with_letters,
)
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
from odradek_broker.share.in_flight import NOBODY, ShareLimits, StateChange
from odradek_broker.share.led_partition import LedPartition
from odradek_broker.share.offset_reset import OffsetReset
from odradek_broker.share.share_partition import (
    AcknowledgementRefused,
    InvalidState,
    ShareAcknowledgementBatch,
    SharePartition,
)
from odradek_broker.share.statistics import ShareStatistics
from odradek_broker.share_state import (
    NO_DEAD_LETTERS,
    ShareKey,
    ShareState,
    StateBatch,
    StateResult,
)
from odradek_broker.slices import in_pieces, with_pauses
from odradek_broker.storage.errors import StorageError, ThreadBusy
from odradek_broker.storage.large_batches import search
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple

_E = ErrorCode

_NOT_HOSTED = "This server does not host this topic-partition."
#: The limit of share partitions in memory (D11).
PARTITIONS_MAX = 100_000

#: Error of the share coordinator -> error in the answer; other errors become UNKNOWN_SERVER_ERROR.
_STATE_ERRORS = {
    _E.NOT_COORDINATOR: _E.COORDINATOR_NOT_AVAILABLE,
    _E.COORDINATOR_NOT_AVAILABLE: _E.COORDINATOR_NOT_AVAILABLE,
    _E.COORDINATOR_LOAD_IN_PROGRESS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.GROUP_ID_NOT_FOUND: _E.GROUP_ID_NOT_FOUND,
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.UNKNOWN_TOPIC_OR_PARTITION,
    _E.FENCED_LEADER_EPOCH: _E.NOT_LEADER_OR_FOLLOWER,
    _E.FENCED_STATE_EPOCH: _E.NOT_LEADER_OR_FOLLOWER,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_LEADER_OR_FOLLOWER,
    _E.KAFKA_STORAGE_ERROR: _E.KAFKA_STORAGE_ERROR,
}
#: The errors after which a share partition is dropped, and loaded again by the next fetch.
_FENCING = frozenset(
    {_E.NOT_LEADER_OR_FOLLOWER, _E.GROUP_ID_NOT_FOUND, _E.UNKNOWN_TOPIC_OR_PARTITION}
)


class AcknowledgementOutcome(NamedTuple):
    """The outcome of acknowledgements for one partition."""

    error: ErrorCode = _E.NONE
    message: str | None = None


class SharePartitions:
    """All share partitions that this broker leads.

    `find` returns a partition of a topic; `settings` and `offset_reset` return the present settings
    of a group. `dead_letters` writes dead letters, and has the stored states. `observer` is called
    with every event (H-240).
    """

    def __init__(
        self,
        find: Callable[[str, int], Partition | None],
        settings: Callable[[str], ShareLimits],
        offset_reset: Callable[[str], OffsetReset],
        dead_letters: DeadLetterWriter,
        observer: Observer,
    ) -> None:
        self._states = dead_letters.states
        self.observer = observer
        dead_letters.observer = self.tell
        self.statistics = ShareStatistics()
        self._find = find
        self.settings = settings
        self._offset_reset = offset_reset
        self.dead_letters = dead_letters
        self.clock = dead_letters.clock
        self._scheduler = dead_letters.scheduler
        self._later = partial(self._scheduler.call_later, 0)
        self._slices = dead_letters.slices
        self._led: dict[ShareKey, LedPartition] = {}
        #: The share partitions by their group, and by the id of their topic.
        self._keys_of: dict[str | bytes, dict[ShareKey, None]] = {}

    def __len__(self) -> int:
        return len(self._led)

    def tell(self, event: ShareEvent) -> None:
        """Count an event, and pass it to the observer."""
        self.statistics.count(event)
        self.observer(event)

    def loaded(self) -> Iterator[LedPartition]:
        return (led for led in self._led.values() if led.state is not None)

    def led(self, key: ShareKey) -> LedPartition | None:
        led = self._led.get(key)
        return led if led is not None and led.state is not None else None

    def of_group(self, group_id: str) -> list[LedPartition]:
        return [led for led in self._of(group_id) if led.state is not None]

    # --- Leading ---

    def lead(self, key: ShareKey, topic: str) -> LedPartition | ErrorCode:
        """The share partition, or the reason why it cannot be led. At its first use, the share
        partition begins to load."""
        led = self._led.get(key)
        if led is not None and self.check(led) is _E.NONE:
            led.forgotten = False
            return led
        partition = self._find(topic, key.partition)
        if partition is None:
            return _E.UNKNOWN_TOPIC_OR_PARTITION
        if partition.log.offline:
            return _E.KAFKA_STORAGE_ERROR
        if len(self._led) >= PARTITIONS_MAX:
            return _E.COORDINATOR_NOT_AVAILABLE
        led = self._led[key] = LedPartition(key, topic, partition, self._later)
        for owner in (key.group_id, key.topic_id):
            self._keys_of.setdefault(owner, {})[key] = None
        asked_ms = self.clock.monotonic_ms()
        self._states.read(key, led.leader_epoch).then(
            lambda result: self._loaded(led, result, asked_ms)
        )
        return led

    def check(self, led: LedPartition) -> ErrorCode:
        """NONE, or the reason why this broker no longer leads the share partition (H-171)."""
        if led.error is _E.NONE:
            partition = led.partition
            if self._find(led.topic, led.key.partition) is not partition:
                self._drop(led, _E.UNKNOWN_TOPIC_OR_PARTITION)
            elif partition.log.offline:
                self._drop(led, _E.KAFKA_STORAGE_ERROR)
            elif partition.leader_epoch != led.leader_epoch:
                self._drop(led, _E.NOT_LEADER_OR_FOLLOWER)
        return led.error

    async def forget_group(self, group_id: str, is_used: Callable[[], bool]) -> None:
        """Drop the share partitions of a group, because it has no session left, until `is_used`
        says that it has one again. A share partition that is writing dead letters is dropped when
        they are written."""
        async for some in in_pieces(self._of(group_id)):
            for led in some if not is_used() else ():
                led.forgotten = True
                self._drop_forgotten(led)

    def _drop_forgotten(self, led: LedPartition) -> None:
        if led.forgotten and not led.letter_jobs:
            self._drop(led, _E.NOT_LEADER_OR_FOLLOWER)

    def forget(self, key: ShareKey) -> None:
        """Drop a share partition whose stored state was initialized again or deleted."""
        led = self._led.get(key)
        if led is not None:
            self._drop(led, _E.NOT_LEADER_OR_FOLLOWER)

    def forget_topic(self, topic_id: bytes) -> None:
        for led in self._of(topic_id):
            self._drop(led, _E.UNKNOWN_TOPIC_OR_PARTITION)

    def close(self) -> None:
        """Stop leading all share partitions: the broker stops, and no timer may write to a closed
        log."""
        for led in list(self._led.values()):
            self._drop(led, _E.NOT_LEADER_OR_FOLLOWER)

    def _of(self, owner: str | bytes) -> list[LedPartition]:
        # The result is a copy: dropping a share partition wakes fetches, and these may drop other
        # share partitions.
        return [self._led[key] for key in self._keys_of.get(owner, ())]

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
        if stored.dead_letters_from is None:
            self._begin(led, stored, {}, asked_ms)
            return
        led.dead_letters_from = stored.dead_letters_from
        self.dead_letters.open_letters(led, stored.dead_letters_from).then(
            lambda letters: self._begin(led, stored, letters, asked_ms)
        )

    def _begin(
        self,
        led: LedPartition,
        stored: ShareState,
        letters: Letters | ErrorCode,
        asked_ms: int,
    ) -> None:
        self._slices.run(self._serve(led, stored, letters, asked_ms))

    async def _serve(
        self,
        led: LedPartition,
        stored: ShareState,
        letters: Letters | ErrorCode,
        asked_ms: int,
    ) -> None:
        """Begin to serve a share partition. Its state gets the dead letters that are missing from
        the stored state (H-206)."""
        if led.error is not _E.NONE:
            return
        if isinstance(letters, ErrorCode):
            self._drop(led, letters)
            return
        try:
            start_offset = stored.start_offset
            if start_offset < 0:
                reset = self._offset_reset(led.key.group_id)
                log, now_ms = led.partition.log, self.clock.wall_ms()
                start_offset = await search(
                    self._slices, lambda known: reset.offset_in(log, now_ms, known)
                )
                if led.error is not _E.NONE:
                    return
            batches, added = with_letters(stored.batches, letters, start_offset)
            state = await with_pauses(
                SharePartition.restored(start_offset, stored.state_epoch, batches)
            )
            if led.error is not _E.NONE:
                return
            led.state = state
        except ThreadBusy:
            # Share consumers fetch again after this error, but fail at that of ThreadBusy.
            self._drop(led, _E.OFFSET_NOT_AVAILABLE)
        except StorageError as problem:
            self._drop(led, problem.error)
        except InvalidState:
            self._drop(led, _E.UNKNOWN_SERVER_ERROR)
        else:
            took_ms = self.clock.monotonic_ms() - asked_ms
            self.tell(Loaded(led.key, start_offset, batches, took_ms))
            if led.dead_letters_from is not None:
                led.unstored.update(added)
                led.store(self._states, (), NO_DEAD_LETTERS)
            led.wake()

    # --- Fetches ---

    def tell_acquired(
        self,
        led: LedPartition,
        member_id: str,
        acquired: Sequence[Acquired],
        settings: ShareLimits,
    ) -> None:
        """Pass to the observer which records a fetch has acquired, and which no longer exist."""
        self._tell_removed(led)
        if acquired:
            lock_ms = settings.record_lock_duration_ms
            self.tell(RecordsAcquired(led.key, member_id, acquired, lock_ms))

    def tell_nothing(self, led: LedPartition, member_id: str, reason: NothingReason) -> None:
        """Pass to the observer the reason why a fetch has acquired no records."""
        self.tell(NothingAcquired(led.key, member_id, reason))

    def move_log_start(self, led: LedPartition, log_start_offset: int) -> None:
        """Called when the log begins at a later offset (H-166)."""
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

    async def acknowledge(
        self, key: ShareKey, member_id: str, acknowledgements: Sequence[ShareAcknowledgementBatch]
    ) -> Deferred[AcknowledgementOutcome]:
        """Take a member's acknowledgements; resolves when they are durable (D5, H-172). There are
        pauses (N-57)."""
        led = self._led.get(key)
        error = _E.UNKNOWN_TOPIC_OR_PARTITION if led is None else self.check(led)
        if led is None or error is not _E.NONE:
            return Deferred.of(AcknowledgementOutcome(error, _NOT_HOSTED if led is None else None))
        # Nothing is in flight in a share partition that is being loaded.
        state = led.state or SharePartition(0)
        change = StateChange(member_id, self.settings(key.group_id))
        # Those that matter. Records before the start offset are gone, and a repeated renewal is
        # one: a request may have any number of both.
        told: list[ShareAcknowledgementBatch] = []
        async for some in in_pieces(acknowledgements):
            for each in some:
                if each.last_offset >= state.start_offset and each not in told[-1:]:
                    told.append(each)
            now_ms = self.clock.monotonic_ms()
            try:
                state.acknowledge(member_id, some, now_ms, change.settings, change)
            except AcknowledgementRefused as refused:
                error, message = refused.error, refused.message
                self.tell(AcknowledgementsRefused(key, member_id, told, error, message))
                # Locks may have expired during a pause.
                self.watch_locks(led)
                led.wake()
                return Deferred.of(AcknowledgementOutcome(error, message))
        if self.check(led) is not _E.NONE:
            state.finish(change, durable=False, now_ms=self.clock.monotonic_ms())
            return Deferred.of(AcknowledgementOutcome(led.error))
        self.watch_locks(led)
        return self._write(
            led,
            state,
            change,
            lambda error: RecordsAcknowledged(key, member_id, told, change.stored, error),
        )

    def release(self, member_id: str, keys: Sequence[ShareKey], end: SessionEnd) -> None:
        """Release all records that a member has acquired, because its session has ended (H-162)."""
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
        change: StateChange,
        event: Callable[[ErrorCode], ShareEvent],
    ) -> Deferred[AcknowledgementOutcome]:
        """Store a change, and finish it when it is durable. `event` makes the event of success or
        of an error."""
        # An acknowledgement that changes no state may repeat an earlier acknowledgement whose state
        # is final but not stored yet. The member gets its answer when this state is stored (H-205).
        if not change.stored and not led.unstored:
            self.tell(event(_E.NONE))
            return Deferred.of(AcknowledgementOutcome())
        outcome: Deferred[AcknowledgementOutcome] = Deferred()

        def written(done: WriteOutcome) -> None:
            result, decided = done
            error = result.error
            if error is not _E.NONE:
                error = _STATE_ERRORS.get(error, _E.UNKNOWN_SERVER_ERROR)
            if decided is not None:
                state.finish(change, durable=decided, now_ms=self.clock.monotonic_ms())
                self.tell(event(_E.NONE if decided else error))
            if error in _FENCING:
                self._drop(led, error)
            self._drop_forgotten(led)
            self.watch_locks(led)
            outcome.resolve(
                AcknowledgementOutcome(error, None if error is _E.NONE else result.message)
            )
            led.wake()

        if change.given_up:
            self.dead_letters.write(led, change).then(written)
        else:
            led.store(self._states, change.stored).then(
                lambda result: written(WriteOutcome(result, result.error is _E.NONE))
            )
        return outcome

    # --- Locks ---

    def watch_locks(self, led: LedPartition) -> None:
        """Set the timer to the end of the next lock or pause (H-160, H-200)."""
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

    def expire_locks(
        self, group_id: str, topic: str | None = None, partition: int | None = None
    ) -> list[tuple[str, int, int, int]]:
        """End locks of a group immediately, in all partitions or in those of `topic` and
        `partition`. Returns topic, partition, first and last offset of the released records."""
        expired: list[tuple[str, int, int, int]] = []
        for key in list(self._keys_of.get(group_id, ())):
            led = self._led[key]
            if led.state is None or topic not in (None, led.topic):
                continue
            if partition not in (None, key.partition):
                continue
            ended = led.state.end_locks(self.clock.monotonic_ms())
            if ended:
                expired += [(led.topic, key.partition, first, last) for first, last in ended]
                if led.timer is not None:
                    led.timer.cancel()
                self._locks_expired(led)
        return expired

    def _locks_expired(self, led: LedPartition) -> None:
        """Release records whose lock has expired. They are available immediately, or after a pause.
        The new state is stored afterwards, and is valid even if it cannot be stored (H-160)."""
        led.timer = None
        state = led.state
        if state is None or led.error is not _E.NONE:
            return
        settings = self.settings(led.key.group_id)
        given_up = StateChange(NOBODY, settings) if settings.dead_letter_topic else None
        stored = state.apply_lock_expiry(self.clock.monotonic_ms(), settings, given_up)
        self.watch_locks(led)
        if given_up is not None and given_up.stored:
            self._write(led, state, given_up, _expired(led.key, given_up))
        if stored:
            self.tell(LocksExpired(led.key, stored, settings.delivery_count_limit))
            self._store_expired(led, state, stored)
        led.wake()

    def _store_expired(
        self, led: LedPartition, state: SharePartition, stored: Sequence[StateBatch]
    ) -> None:
        def written(result: StateResult) -> None:
            state.settle()
            if _STATE_ERRORS.get(result.error, _E.NONE) in _FENCING:
                self._drop(led, _STATE_ERRORS[result.error])
            led.wake()

        led.store(self._states, stored).then(written)


def _returned(
    key: ShareKey, change: StateChange, end: SessionEnd
) -> Callable[[ErrorCode], ShareEvent]:
    """Return a function that makes the event of released records from the error of the write."""
    return lambda error: RecordsReturned(
        key, change.member_id, end, change.stored, change.settings.delivery_count_limit, error
    )


def _expired(key: ShareKey, change: StateChange) -> Callable[[ErrorCode], ShareEvent]:
    """Return a function that makes the event of locks that expired after the last allowed delivery.
    If the change could not be written, the event has no changed states, because `expire` is called
    again."""
    return lambda error: LocksExpired(
        key, () if error else change.stored, change.settings.delivery_count_limit
    )
