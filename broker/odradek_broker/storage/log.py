"""The log of a partition: append, read, roll, and the offsets that bound them (rules L, R, F, P).

Flushes are in `log_durability`, the removal of records is in `log_trimming`, the open files are in
`log_files`.

Not thread-safe: everything but `FlushTicket.sync` runs on the loop's thread, and no method waits,
so check and append are one critical section (P-19).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from odradek_broker.storage.cleaner.swap import finish_swaps
from odradek_broker.storage.errors import (
    AppendRejected,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
    no_room,
    out_of_files,
)
from odradek_broker.storage.index import RELATIVE_OFFSET_MAX
from odradek_broker.storage.leader_epochs import LeaderEpochs
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.log_durability import LogDurability
from odradek_broker.storage.log_files import LogFiles
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_broker.storage.log_trimming import LogTrimming
from odradek_broker.storage.producers.producer_files import EndMarker, Producers
from odradek_broker.storage.producers.state import (
    Duplicate,
    ProducerStateError,
    ProducerStateManager,
    last_stable_offset,
)
from odradek_broker.storage.producers.watch import NOBODY, ProducerWatch
from odradek_broker.storage.reading import BatchInLog, Known, LogReader
from odradek_broker.storage.recovery import RecoveryReport
from odradek_broker.storage.segment import Segment, SegmentList, TruncateFailed
from odradek_broker.storage.transaction_index import TransactionIndex
from odradek_broker.storage.validation import (
    DecompressionBudget,
    PlainRules,
    ValidatedBatch,
    check_plain,
    prepare,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.records.batch import BatchHeader, stamp

PLENTY_BYTES = 2**31 - 1
#: The limit of expired producers that are reported to the watch at a time.
_EXPIRED_REPORTED_MAX = 100


@dataclass(slots=True)
class AppendResult:
    """The offsets of a batch in the log. `log_append_time_ms` is -1 with CreateTime (R-03). A
    `duplicate` was in the log before, but may not be durable yet: wait for its offset as for that
    of a new batch (P-10)."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


def _ignore(*_: object) -> None:
    pass


class PartitionLog:
    """The log of `<topic>-<partition>`. Files are opened at the first use that needs them.

    Hooks are called on the loop's thread. `on_moved(log)`: HW, LSO or the log start has moved.
    `on_flushed`: the segment files were flushed. `on_offline(log)`, called once: the disk failed.
    `on_flush_wanted(durability)`: a flush is due because a segment was rolled, although no request
    waits for the flush. `watch` observes producers.
    """

    __slots__ = (
        "_epochs",
        "_files",
        "_last_stable_offset",
        "_plain_rules",
        "_producers",
        "_reader",
        "_segments",
        "_topic_partition",
        "_unreadable",
        "config",
        "directory",
        "durability",
        "high_watermark",
        "loaded",
        "log_end_offset",
        "log_start_offset",
        "name",
        "offline",
        "offline_reason",
        "on_flush_wanted",
        "on_flushed",
        "on_moved",
        "on_offline",
        "options",
        "partition",
        "report",
        "topic",
        "topic_id",
        "watch",
    )

    # Copies of attributes of `_files`, set when the files are opened: appends and reads reach them
    # with one look-up less.
    _segments: SegmentList
    _producers: Producers
    _epochs: LeaderEpochs
    _reader: LogReader

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        directory: str,
        config: LogConfig,
        options: LogOptions,
        start: LogStart,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.topic_id = topic_id
        self.directory = directory
        self.config = config
        self.loaded = False
        """True while the files are open."""
        self.offline = False
        self.offline_reason = ""
        self.log_start_offset = start.log_start_offset
        self.log_end_offset = start.log_end_offset
        self.high_watermark = start.log_end_offset
        self.on_moved: Callable[[PartitionLog], None] = _ignore
        self.on_offline: Callable[[PartitionLog], None] = _ignore
        self.on_flush_wanted: Callable[[LogDurability], None] = _ignore
        self.on_flushed: Callable[[], None] = _ignore
        self.watch: ProducerWatch = NOBODY
        self.report = RecoveryReport(topic, partition)
        self.options = options
        self._files = LogFiles(directory, options)
        self.durability = LogDurability(self, self._files, options, start)
        self._plain_rules = PlainRules.of(config)
        self._topic_partition = (topic, partition)
        self._last_stable_offset = start.log_end_offset
        self._unreadable = False

    # ---- opening and closing

    def load(self, now_ms: int, later: list[Callable[[], None]] | None = None) -> RecoveryReport:
        """Open the files, and recover them if they were not left by a clean stop. The first use of
        the log calls this method; a broker that starts after a crash calls it for all logs. Raises
        PartitionOffline; raises StorageError if the load may be tried again.

        `later` collects the syncs, to be called in any thread before the recovered records are
        read; if one raises OSError, call `recovery_failed`. If `later` is None, the syncs are
        called immediately.
        """
        if self.loaded:
            return self.report
        if self.offline:
            raise self.offline_error()
        start, files, report = self.durability.start, self._files, self.report
        loader = files.loader(start, self.config, self.topic_id, report, now_ms, later)
        try:
            loaded = loader.load()
        except OSError as problem:
            if not loader.fsync_failed and not out_of_files(problem):
                self.options.unopened[self.name] = self
            raise self.failed("opening it", problem) from problem
        files.opened(loaded, start, report)
        self._segments, self._epochs = files.segments, files.epochs
        self._producers = files.producers
        self._reader = LogReader(
            files.segments,
            files.producers.aborted_transactions,
            self.options.handles,
            self._read_failed,
        )
        self.loaded = True
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.durability.opened(loaded.log_end_offset)
        self.move_high_watermark(loaded.log_end_offset)
        return report

    def recovery_failed(self, problem: OSError) -> PartitionOffline:
        """Take the log offline until a restart, because a sync of recovered files failed (D5)."""
        self.durability.recovery_failed()
        self.go_offline(f"opening it failed: {problem}")
        return self.offline_error()

    def missing_at_first_use(self) -> str:
        """The name of a missing or damaged file without which `load` has to read batches, maybe
        many, even after a clean stop; empty if there is no such file. Raises PartitionOffline.
        """
        try:
            return self._files.missing_at_first_use(self.log_end_offset)
        except OSError as problem:
            raise self.failed("opening it", problem) from problem

    def create_files(self, now_ms: int) -> None:
        """Make the directory of a new partition, empty. Raises OSError, PartitionOffline.

        Nothing waits for the disk: the first flush makes all of it durable, and a partition without
        any acknowledged record can be made again from the cluster's metadata.
        """
        self._files.make(self.topic_id)
        self.load(now_ms)

    def write_topic_id(self, topic_id: bytes) -> None:
        """Write the topic's id into partition.metadata, unsynced. Raises OSError."""
        self.topic_id = topic_id
        self._files.write_topic_id(topic_id)

    def ensure_loaded(self, now_ms: int = 0) -> None:
        """Open the files if they are closed. Raises PartitionOffline, StorageError."""
        if not self.loaded:
            self.load(now_ms)
        if self.offline:
            raise self.offline_error()

    def close(self, *, clean: bool) -> None:
        """Close the files. `clean`: flush, complete the indexes, take a snapshot and finish a swap
        that was begun, so that the next start can trust the files. Raises PartitionOffline,
        OSError."""
        if not self.loaded:
            return
        try:
            # Without a clean stop, the next opening finishes a committed swap.
            swap, self._files.swap = self._files.swap, None
            if clean and not self.offline:
                self.durability.flush()
                self._files.seal(self.log_end_offset)
        finally:
            self._producers.aborted_transactions.close()
            self.durability.closed(self.log_start_offset, clean=clean)
            self._segments.close()
            self.loaded = False
        if swap is not None and clean and not self.offline:
            finish_swaps(self.options.files, self.directory)

    @property
    def trimming(self) -> LogTrimming:
        """The removal of records. Made for each use: each log would keep it for long."""
        return LogTrimming(self, self._files, self.durability)

    # ---- disk errors

    def abandon(self) -> None:
        """Stop using the log, whose directory was removed (L-38)."""
        self.close(clean=False)
        if self.options.unopened.get(self.name) is self:
            del self.options.unopened[self.name]
        self._readable_again()
        self.offline = True
        self.offline_reason = "it was deleted"
        # Else all would refer to each other, and only a collection of all garbage would free them.
        self.durability.abandoned()
        self.on_moved = self.on_offline = self.on_flushed = _ignore
        with suppress(AttributeError):
            del self._reader

    def go_offline(self, reason: str) -> None:
        """Take the partition offline after a disk error in its own files."""
        if not self.offline:
            # A log that is being opened again still has the reason that was reported.
            is_reported = bool(self.offline_reason)
            self.offline = True
            self.offline_reason = reason
            self.options.disk.took_offline(self.name, reason, is_reported=is_reported)
            self.on_offline(self)

    def take_offline(self, reason: str) -> None:
        """Take the partition offline with its whole directory, whose failure was reported."""
        self.options.unopened.pop(self.name, None)
        self._readable_again()
        if not self.offline:
            self.offline = True
            self.offline_reason = reason
            self.on_offline(self)

    def failed(self, doing: str, problem: OSError) -> StorageError:
        """The error for a failed operation. The partition goes offline, unless the operation failed
        because too many files are open."""
        if out_of_files(problem):
            return StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} failed for {self.name}: {problem}"
            )
        self.go_offline(f"{doing} failed: {problem}")
        return self.offline_error()

    def _read_failed(self, doing: str, problem: OSError) -> StorageError:
        """The error for a failed read. Other reads may work, and this one may work later."""
        reason = f"{doing} failed for {self.name}: {problem}"
        if not out_of_files(problem):
            self._unreadable = True
            self.options.disk.read_failed(self.name, reason)
        return StorageError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def _readable_again(self) -> None:
        self._unreadable = False
        self.options.disk.unreadable.pop(self.name, None)

    def open_again(self, now_ms: int) -> bool:
        """Try again to open a log that could not be opened (`LogOptions.unopened`); True if the log
        is served. A log whose fsync failed is never opened again."""
        if self.options.unopened.pop(self.name, None) is not self:
            return not self.offline
        self.offline = False
        try:
            self.load(now_ms)
        except StorageError:
            return False
        self.offline_reason = ""
        self.options.disk.on_online(self.name)
        return True

    def offline_error(self) -> PartitionOffline:
        """The error for any use of a partition that is offline."""
        return PartitionOffline(self.name, self.offline_reason)

    # ---- offsets

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed reads: HW, or the first offset of the first
        undecided transaction (T-45, L-12). Never raises: an offline partition keeps its last
        value."""
        if not self.loaded and not self.offline:
            with suppress(StorageError):
                self.load(0)
        return self._last_stable_offset

    @property
    def producers(self) -> ProducerStateManager:
        """The producers' state, for verification of transactions and DescribeProducers. Only
        `append` changes it."""
        self.ensure_loaded()
        return self._producers.state

    @property
    def producers_restored_to(self) -> int:
        """The offset below which producer state was rebuilt, from a snapshot and from the log, when
        the log was opened (P-28)."""
        self.ensure_loaded()
        return self._producers.restored_to

    def remove_expired_producers(self, now_ms: int) -> int:
        """Remove expired producers (P-24); returns their number."""
        self._producers.state.expiration_ms = self.options.producer_expiration_ms()
        expired = self._producers.state.remove_expired(now_ms)
        for producer_id in expired[:_EXPIRED_REPORTED_MAX]:
            self.watch.expired(self._topic_partition, producer_id)
        return len(expired)

    @property
    def leader_epochs(self) -> LeaderEpochs:
        self.ensure_loaded()
        return self._epochs

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; for inspection."""
        self.ensure_loaded()
        return list(self._segments)

    @property
    def size_bytes(self) -> int:
        self.ensure_loaded()
        return self._segments.total_bytes

    def move_high_watermark(self, high_watermark: int, *, others_moved: bool = False) -> None:
        """Set the high watermark, and the last stable offset with it. `others_moved`: the log start
        has also moved, or the log end has fallen."""
        stable_before = self._last_stable_offset
        moved = others_moved or high_watermark != self.high_watermark
        self.high_watermark = high_watermark
        state = self._producers.state
        state.high_watermark_moved(high_watermark)
        self._last_stable_offset = last_stable_offset(
            high_watermark, self.log_start_offset, state.first_unstable_offset
        )
        if moved or stable_before != self._last_stable_offset:
            self.on_moved(self)

    # ---- appending

    def append(
        self,
        batch: memoryview,
        *,
        origin: AppendOrigin,
        now_ms: int,
        leader_epoch: int,
        transaction_version: int = 1,
        budget: DecompressionBudget | None = None,
        prepared: ValidatedBatch | None = None,
    ) -> AppendResult:
        """Validate, stamp in place and write exactly one batch (L-07).

        `batch` must be writable and is changed. With origin REPLAY or MIRROR it stays unchanged,
        and its offsets must not be below the log end. `transaction_version` is used for markers
        only (T-41), `budget` for compressed batches. `prepared`: the batch, validated before.
        Raises AppendRejected and TakesLong, with nothing written and no state changed (P-18, L-08).
        """
        if self.offline or not self.loaded:
            self._ensure_appendable(now_ms)
        rules = self._plain_rules
        if rules.config is not self.config:
            rules = self._plain_rules = PlainRules.of(self.config)
        log_append_time_ms = -1
        plain = check_plain(batch, rules, now_ms) if origin is AppendOrigin.CLIENT else None
        if plain is not None:
            header = plain
        else:
            if prepared is None:
                prepared = prepare(batch, self.config, origin, now_ms, budget)
            batch, header, log_append_time_ms = prepared.appended_at(now_ms)
        has_producer = header.producer_id >= 0
        marker: EndMarker | None = None
        if has_producer:
            try:
                if header.is_control:
                    marker = self._producers.check_marker(
                        header, batch, origin, transaction_version
                    )
                else:
                    verdict = self._producers.state.check(header, origin, now_ms)
                    if type(verdict) is Duplicate:
                        self.watch.duplicate(self._topic_partition, header, verdict)
                        return self._answer_duplicate(verdict)
            except ProducerStateError as rejected:
                self.watch.refused(self._topic_partition, header, rejected)
                raise
        if origin is AppendOrigin.CLIENT or origin is AppendOrigin.COORDINATOR:
            header.base_offset = self.log_end_offset
            header.leader_epoch = leader_epoch
            stamp(batch, 0, header.base_offset, leader_epoch)
        else:
            self._check_replayed(header)
        base_offset = header.base_offset
        last_offset = base_offset + header.last_offset_delta
        self._write(batch, header, last_offset, now_ms)
        self.log_end_offset = last_offset + 1
        if header.leader_epoch > self._epochs.latest:
            self._begin_epoch(header.leader_epoch, base_offset)
        if has_producer:
            self._apply_producer(header, marker, base_offset, last_offset, now_ms)
        else:
            self._producers.state.map_end_offset = last_offset + 1
        if self.config.durability == "page-cache":
            self.move_high_watermark(last_offset + 1)
        return AppendResult(
            base_offset, last_offset, log_append_time_ms, self.log_start_offset, False
        )

    def _begin_epoch(self, epoch: int, offset: int) -> None:
        self._epochs.assign(epoch, offset)
        # There may be a gap before the first batch. If a broker finds no checkpoint of log start
        # offsets when it starts, it takes the log start from the first epoch.
        self._epochs.reach_back(self.log_start_offset)
        self._files.write_epochs()

    def _ensure_appendable(self, now_ms: int) -> None:
        try:
            self.ensure_loaded(now_ms)
        except StorageError as problem:
            raise AppendRejected(problem.error, problem.message) from problem

    def _answer_duplicate(self, batch: Duplicate) -> AppendResult:
        """The answer to a batch that is in the log already (P-10)."""
        return AppendResult(
            batch.base_offset, batch.last_offset, batch.timestamp, self.log_start_offset, True
        )

    def _check_replayed(self, header: BatchHeader) -> None:
        if header.base_offset < self.log_end_offset:
            raise AppendRejected(
                ErrorCode.INVALID_RECORD,
                f"the batch has base offset {header.base_offset}, below the log end"
                f" {self.log_end_offset}",
            )
        if header.last_offset - self.log_end_offset > RELATIVE_OFFSET_MAX:
            raise AppendRejected(
                ErrorCode.INVALID_RECORD,
                f"the batch ends at offset {header.last_offset}, more than {RELATIVE_OFFSET_MAX}"
                f" after the log end {self.log_end_offset}: no segment can hold both",
            )
        if header.base_offset > self.log_end_offset:
            self.durability.gap_end_offset = header.next_offset

    def _write(self, batch: memoryview, header: BatchHeader, last_offset: int, now_ms: int) -> None:
        config = self.config
        segments = self._segments
        try:
            if segments.must_roll(header, last_offset, config, now_ms):
                # The new segment begins at the log end, not at the batch's offset, which may come
                # after a gap. Otherwise a start after a crash would conclude from the gap that the
                # segment before it has lost its end (L-32).
                self.roll_at(self.log_end_offset, now_ms)
            segments.active.append(
                batch,
                header.size_bytes,
                last_offset,
                header.max_timestamp,
                config.index_interval_bytes,
            )
        except OSError as problem:
            if isinstance(problem, TruncateFailed) and not no_room(problem):
                self.go_offline(str(problem))
            else:
                self.options.disk.failed(problem, header.size_bytes)
            raise AppendRejected(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"writing to partition {self.name} failed: {problem.strerror or problem}",
            ) from problem

    def _apply_producer(
        self,
        header: BatchHeader,
        marker: EndMarker | None,
        base_offset: int,
        last_offset: int,
        now_ms: int,
    ) -> None:
        state = self._producers.state
        known = state.entry(header.producer_id)
        epoch_before = None if known is None else known.epoch
        if epoch_before != header.producer_epoch:
            self.watch.new_epoch(self._topic_partition, header, epoch_before)
        if marker is None:
            state.update(header, base_offset, last_offset, now_ms)
            return
        aborted = self._producers.aborted_transactions
        try:
            self._producers.apply(
                header, marker, self._segments.active, base_offset, last_offset, now_ms
            )
        except OSError as problem:
            # The marker is in the log, but its entry is not in the index on disk: readers would
            # take aborted records for committed ones. A restart rebuilds the index.
            reason = f"writing the transaction index of {self.name} failed: {problem}"
            self.go_offline(reason)
            raise AppendRejected(ErrorCode.KAFKA_STORAGE_ERROR, reason) from problem
        if aborted.broken:
            # A power cut must not bring the removed index back.
            self._files.directory.dirty = True

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end; nothing happens if the active one is empty. Raises
        PartitionOffline, or OSError, after which the old segment stays active."""
        self.ensure_loaded(now_ms)
        if self._segments.active.size_bytes:
            self.roll_at(self.log_end_offset, now_ms)

    def forget_producers(self, now_ms: int) -> None:
        """Forget all producers, none of which has an open transaction. A later start restores none
        of them, once `producers_forgotten` is true and the recovery point on disk is the log end.
        Raises StorageError, OSError."""
        self.ensure_loaded(now_ms)
        if self._producers.state.open_transactions:
            raise ValueError(f"{self.name} has open transactions")
        self._producers.forget_all(self.log_end_offset)
        self.roll(now_ms)
        self._files.take_snapshot_of_base(self.log_end_offset)
        self._files.directory.dirty = True
        self.on_flush_wanted(self.durability)

    @property
    def producers_forgotten(self) -> bool:
        """True if all writes of `forget_producers` are on disk, in the files and not only in the
        journal.
        """
        end_offset = self.log_end_offset
        synced = self.durability.synced_offset >= end_offset
        return synced and not self._producers.is_volatile(end_offset)

    def roll_at(self, base_offset: int, now_ms: int) -> None:
        """Begin a new segment at an offset. After an OSError the old segment stays active."""
        self._files.roll(base_offset, self.config, now_ms)
        # Also with fsync durability: without an append nothing else flushes the snapshot (P-27).
        self.on_flush_wanted(self.durability)

    # ---- reading

    def read(self, offset: int, max_bytes: int, *, upper_bound: int, minimum_one: bool) -> bytes:
        """Whole batches from the one that holds `offset`, all below `upper_bound` (R-16, F-03).

        At most `max_bytes`, except that with `minimum_one` the first is returned whole (F-06).
        Empty at or above `upper_bound`. OffsetOutOfRange (F-07), LogCorrupt, PartitionOffline.
        """
        if self.offline or not self.loaded:
            self.ensure_loaded()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        upper_bound = min(upper_bound, self.log_end_offset)
        if offset >= upper_bound:
            return b""
        data = self._reader.read(offset, max_bytes, upper_bound, minimum_one=minimum_one)
        if self._unreadable:
            self._readable_again()
        return data

    def read_at_once(self, offset: int, max_bytes: int) -> bytes:
        """Read up to the end of the log. Indexes that do not match are rebuilt before the call
        returns, because a coordinator that loads and a broker that starts cannot try again
        (L-33)."""
        with self.options.handles.without_background():
            return self.read(offset, max_bytes, upper_bound=self.log_end_offset, minimum_one=True)

    def readable_bytes(self, offset: int, upper_bound: int) -> int:
        """The bytes from the batch that has `offset` to the bound (F-04); 0 for an offset outside
        the log. Never raises: if the bytes cannot be counted the result is PLENTY_BYTES, so that
        the read is tried and raises the error."""
        upper_bound = min(upper_bound, self.log_end_offset)
        if not self.log_start_offset <= offset < upper_bound:
            return 0
        try:
            self.ensure_loaded()
            return self._reader.count_bytes(offset, upper_bound)
        except StorageError:
            return PLENTY_BYTES

    def first_batch_bytes(self, offset: int, upper_bound: int) -> int:
        """The bytes of the first batch that a read from `offset` returns. The batch may be larger
        than the limit of the read (F-04, F-06). 0 and PLENTY_BYTES mean the same as for
        `readable_bytes`."""
        upper_bound = min(upper_bound, self.log_end_offset)
        if not self.log_start_offset <= offset < upper_bound:
            return 0
        try:
            self.ensure_loaded()
            return self._reader.first_batch_bytes(offset, upper_bound)
        except StorageError:
            return PLENTY_BYTES

    def unread_batch(self, offset: int) -> BatchInLog | None:
        """The batch with the first record at or after `offset` that consumers can read; None if
        there is none yet. Raises StorageError if the log is not open, or if finding the batch would
        take much work."""
        if self.offline or not self.loaded:
            raise StorageError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self.name} is not open")
        return self._reader.data_batch_at(max(offset, self.log_start_offset), self.high_watermark)

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of every transaction that was aborted with a marker at or
        above `start` and began below `end` (F-09). Raises LogCorrupt, IndexesBeingRebuilt,
        PartitionOffline."""
        self.ensure_loaded()
        return self._reader.aborted_transactions(start, end, self._fill_transaction_index)

    def _fill_transaction_index(
        self, segment: Segment, earlier: Sequence[Segment], index: TransactionIndex
    ) -> None:
        self._files.fill_transaction_index(segment, earlier, index, self.log_start_offset)

    def require_transaction_indexes(self) -> None:
        """Check that all transaction indexes are complete, before they are used for a change that
        cannot be undone (L-05). Raises IndexesBeingRebuilt, LogCorrupt, PartitionOffline."""
        self.ensure_loaded()
        self._reader.require_transaction_indexes(self._fill_transaction_index)

    def offset_for_timestamp(
        self, timestamp: int, upper_bound: int, known: Known | None = None
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with a timestamp of at least `timestamp`; None if
        there is none below the bound (L-15). Raises LogCorrupt, PartitionOffline; unless `known` is
        None also SearchTakesLong."""
        self.ensure_loaded()
        return self._reader.find_timestamp(timestamp, self.log_start_offset, upper_bound, known)

    def max_timestamp_offset(
        self, upper_bound: int | None = None, known: Known | None = None
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the record with the largest timestamp of those below the bound,
        for ListOffsets -3; None if there is none. Raises LogCorrupt, PartitionOffline; unless
        `known` is None also SearchTakesLong."""
        self.ensure_loaded()
        bound = self.log_end_offset if upper_bound is None else upper_bound
        return self._reader.latest_timestamp(self.log_start_offset, bound, known)
