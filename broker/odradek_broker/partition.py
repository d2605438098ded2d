"""The partitions that this broker leads, each with its log and the requests that wait for
durability or for data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.storage.errors import LogCorrupt, StorageError
from odradek_broker.storage.log import AppendResult, PartitionLog
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.log_durability import LogDurability
from odradek_broker.storage.validation import DecompressionBudget, ValidatedBatch
from odradek_protocol.constants import NO_LEADER_EPOCH, NO_OFFSET, NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchError, iter_batches
from odradek_protocol.records.builder import control_batch, simple_batch
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.control_marker import ControlType

_LOAD_BYTES = 1024 * 1024

#: A callback for a change of the partition that it gets.
Waiter = Callable[[Any], None]
#: Calls a function in the next turn of the loop.
Later = Callable[[Callable[[], None]], object]
#: The most waiters that are called in a turn: some milliseconds if all of them read and answer.
WOKEN_AT_ONCE = 200


class Wakes:
    """Calls the waiters of a partition, which may be thousands, a part of them in each turn of the
    loop (N-57). `later` None: all at once."""

    __slots__ = ("_due", "_later")

    def __init__(self, later: Later | None) -> None:
        self._later = later
        #: The waiters that are called in later turns.
        self._due: dict[Waiter, None] = {}

    def wake(self, partition: Any, waiters: dict[Waiter, None]) -> None:
        """Call all waiters in the order of the dict. A waiter that is removed before its turn is
        not called."""
        if self._later is None or (len(waiters) <= WOKEN_AT_ONCE and not self._due):
            for waiter in list(waiters):
                waiter(partition)
            return
        are_due = bool(self._due)
        self._due.update(waiters)
        if not are_due:
            self._go_on(partition, waiters)

    def _go_on(self, partition: Any, waiters: dict[Waiter, None]) -> None:
        some = list(islice(self._due, WOKEN_AT_ONCE))
        for waiter in some:
            del self._due[waiter]
        if self._due and self._later is not None:
            self._later(partial(self._go_on, partition, waiters))
        for waiter in some:
            if waiter in waiters:
                waiter(partition)


class UpToDateSession(Protocol):
    """A partition at which a fetch session is up to date: the client knows all records and offsets
    of the partition."""

    def moved(self) -> None:
        """Called when the partition's offsets have changed, or the partition has failed or was
        deleted.

        Before the call, the partition removes this object from `Partition.up_to_date_sessions`.
        During the call, a parked fetch of the session adds itself to the partition's
        `data_waiters`, and the partition calls these waiters next.
        """
        ...


class StoredRecord(NamedTuple):
    """A stored record. `producer_id` is -1 for a record outside of transactions, `timestamp_ms` for
    a record without a timestamp."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    is_control: bool = False
    timestamp_ms: int = -1


class Partition:
    """A partition that this broker leads.

    `request_flush` is called to make the log durable; the result arrives by a callback of the log.
    `later`: see `Wakes`.
    """

    __slots__ = (
        "_flush_waiters",
        "_request_flush",
        "_wakes",
        "data_waiters",
        "durable_waiters",
        "leader_epoch",
        "log",
        "recorded",
        "up_to_date_sessions",
    )

    def __init__(
        self,
        log: PartitionLog,
        leader_epoch: int,
        request_flush: Callable[[LogDurability], None],
        later: Later | None = None,
    ) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self._request_flush = request_flush
        self._wakes = Wakes(later)
        #: True if the record that creates this partition is durable.
        self.recorded = True
        self.durable_waiters: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        self._flush_waiters: list[Callable[[ErrorCode], None]] = []
        #: The callbacks for new readable records and for the deletion of the partition. They are
        #: called in the order of this dict; see `fetch/parked.py`.
        self.data_waiters: dict[Waiter, None] = {}
        #: The sessions that are notified once, and then removed, when the log has changed in any
        #: way; see `fetch/sessions.py`.
        self.up_to_date_sessions: dict[UpToDateSession, None] = {}
        log.on_moved = self._advanced
        log.on_offline = self._failed
        log.on_flush_wanted = request_flush
        log.on_flushed = self._flushed

    def append(
        self,
        batch: memoryview,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 1,
        budget: DecompressionBudget | None = None,
        prepared: ValidatedBatch | None = None,
    ) -> AppendResult:
        """Append one batch and request its flush. Raises StorageError if the batch is refused, and
        TakesLong; see `PartitionLog.append`."""
        log = self.log
        result = log.append(
            batch,
            origin=origin,
            now_ms=now_ms,
            leader_epoch=self.leader_epoch,
            transaction_version=transaction_version,
            budget=budget,
            prepared=prepared,
        )
        if log.high_watermark < log.log_end_offset:
            self._request_flush(log.durability)
        return result

    @property
    def next_offset(self) -> int:
        return self.log.log_end_offset

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """The error for a client with this leader epoch; NONE for the partition's own epoch, and
        for -1 (F-11)."""
        if epoch == -1 or epoch == self.leader_epoch:
            return ErrorCode.NONE
        if epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def durable(self, last_offset: int) -> bool:
        """True if all records up to and including this offset are durable, so that they may be
        acknowledged (D5).
        """
        return self.log.high_watermark > last_offset

    def when_durable(self, last_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call `callback` with NONE when all records up to `last_offset` are durable, or with the
        disk's error."""
        if self.log.offline:
            callback(ErrorCode.KAFKA_STORAGE_ERROR)
        elif self.durable(last_offset):
            callback(ErrorCode.NONE)
        else:
            self.durable_waiters.append((last_offset, callback))

    def when_flushed(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call `callback` with NONE after the next flush of the segment files, or with the disk's
        error. The caller has requested the flush."""
        if self.log.offline:
            callback(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._flush_waiters.append(callback)

    def append_internal(
        self, records: list[tuple[bytes | None, bytes | None]], now_ms: int
    ) -> Deferred[ErrorCode]:
        """Append records of an internal topic as one batch.

        The records are appended when this method returns. The result, NONE or the error, comes when
        they are durable.
        """
        return self._append_own(simple_batch(records, now_ms), now_ms)

    def append_transactional(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer_id: int,
        producer_epoch: int,
    ) -> Deferred[ErrorCode]:
        """Append records like `append_internal`, but as part of a producer's transaction (O-17)."""
        batch = simple_batch(
            records,
            now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
        )
        return self._append_own(batch, now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        transaction_version: int,
        now_ms: int,
    ) -> Deferred[ErrorCode]:
        """Write the marker that ends a producer's transaction in this partition (T-40 to T-42,
        R-30).

        If the log refuses the marker because of its epochs, or because of an error of the disk,
        nothing is written, and the result is the error, immediately. Otherwise the result arrives
        when the marker is durable. By then the last stable offset has moved, and fetches that
        waited for it were woken (T-45, F-03).
        """
        batch = control_batch(
            ControlType.COMMIT if commit else ControlType.ABORT,
            coordinator_epoch,
            producer_id,
            producer_epoch,
            now_ms,
        )
        return self._append_own(batch, now_ms, transaction_version)

    def _append_own(
        self, batch: bytearray, now_ms: int, transaction_version: int = 1
    ) -> Deferred[ErrorCode]:
        deferred: Deferred[ErrorCode] = Deferred()
        try:
            result = self.append(
                memoryview(batch), now_ms, AppendOrigin.COORDINATOR, transaction_version
            )
        except StorageError as error:
            deferred.resolve(error.error)
            return deferred
        self.when_durable(result.last_offset, deferred.resolve)
        return deferred

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, its end offset); (-1, -1) for an unknown epoch (F-13).

        All records of an epoch before the log's first epoch were deleted. As in Kafka, such an
        epoch ends where the first epoch begins, also a negative one. Raises StorageError.
        """
        log = self.log
        entries = log.leader_epochs.entries
        if epoch == NO_LEADER_EPOCH or epoch > self.leader_epoch:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.leader_epoch or not entries:
            return epoch, log.log_end_offset
        if epoch < entries[0][0]:
            return epoch, entries[0][1]
        return log.leader_epochs.end_offset(epoch, log.log_end_offset)

    def read_stored(self, first_offset: int = 0) -> Iterator[StoredRecord]:
        """Every record in the log from an offset on, control records included. Raises StorageError,
        also for an unreadable batch and an offline log."""
        log = self.log
        log.load(0)
        offset = max(first_offset, log.log_start_offset)
        while offset < log.log_end_offset:
            data = log.read_at_once(offset, _LOAD_BYTES)
            if not data:
                return
            behind = offset
            try:
                for position, header in iter_batches(data):
                    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
                    for record in read_records(data, position, header):
                        if record.offset >= offset:
                            yield StoredRecord(
                                record.offset,
                                record.key,
                                record.value,
                                producer_id,
                                header.is_control,
                                record.timestamp,
                            )
                    behind = header.next_offset
            except BatchError as problem:
                raise LogCorrupt(
                    f"{log.name} is damaged after offset {behind}: {problem}"
                ) from problem
            if behind <= offset:
                raise LogCorrupt(f"{log.name} has no batch at offset {offset} or after it")
            offset = behind

    def read_all(self, first_offset: int = 0) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of every record from an offset on, without control records."""
        for record in self.read_stored(first_offset):
            if not record.is_control:
                yield record.offset, record.key, record.value

    def wake(self) -> None:
        """Make every fetch that waits for data check again."""
        self.notify_sessions()
        self._wakes.wake(self, self.data_waiters)

    def notify_sessions(self) -> None:
        """Notify all sessions that are up to date at this partition of a change of the
        partition."""
        if self.up_to_date_sessions:
            sessions, self.up_to_date_sessions = self.up_to_date_sessions, {}
            for session in sessions:
                session.moved()

    def _advanced(self, log: PartitionLog) -> None:
        waiters = self.durable_waiters
        while waiters and log.high_watermark > waiters[0][0]:
            waiters.popleft()[1](ErrorCode.NONE)
        if self.data_waiters or self.up_to_date_sessions:
            self.wake()

    def _flushed(self) -> None:
        if self._flush_waiters:
            waiters, self._flush_waiters = self._flush_waiters, []
            for callback in waiters:
                callback(ErrorCode.NONE)

    def _failed(self, log: PartitionLog) -> None:
        self._give_up(ErrorCode.KAFKA_STORAGE_ERROR)

    def deleted(self) -> None:
        """Answer the requests that wait for durability with an error, and wake the requests that
        wait for data, because the log is deleted."""
        self._give_up(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _give_up(self, error: ErrorCode) -> None:
        waiters, self.durable_waiters = self.durable_waiters, deque()
        flush_waiters, self._flush_waiters = self._flush_waiters, []
        for callback in [*(callback for _, callback in waiters), *flush_waiters]:
            callback(error)
        self.wake()


class LedPartitions:
    """The partitions that this broker leads, by topic and index."""

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[int, Partition]] = {}

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, if it exists and this node leads it (D8).

        A partition exists once its creation is durable, because otherwise a crash could remove
        acknowledged records together with the topic (D4).
        """
        partitions = self.by_topic.get(topic)
        if partitions is None:
            return None
        partition = partitions.get(index)
        return partition if partition is not None and partition.recorded else None

    def all(self) -> Iterator[tuple[str, int, Partition]]:
        """All partitions: (topic, index, partition). Partitions may be created and removed during
        the iteration."""
        for topic, partitions in list(self.by_topic.items()):
            for index, partition in list(partitions.items()):
                yield topic, index, partition
