"""One partition's log: append, read, roll, flush, the offsets that bound them (rules L, R, F, P).

Which offset bounds what is in `watermarks`, what of the directory is not durable yet in
`partition_directory`.

Not thread-safe: everything but `FlushTicket.sync` runs on the loop's thread, and no method waits,
so check and append are one critical section (P-19).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from odradek_broker.storage.aborted_index import AbortedIndex
from odradek_broker.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    encode_epochs,
    encode_partition_metadata,
)
from odradek_broker.storage.cleaner.job import GroupCleaned
from odradek_broker.storage.cleaner.swap import SegmentSwap, finish_swaps, remove_cleaned
from odradek_broker.storage.epochs import LeaderEpochs
from odradek_broker.storage.errors import (
    AppendRejected,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
    out_of_files,
)
from odradek_broker.storage.flush_ticket import FlushTicket
from odradek_broker.storage.journal import CommitJournal, JournalTicket
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_broker.storage.partition_directory import PartitionDirectory
from odradek_broker.storage.producers.manager import EndMarker, Producers
from odradek_broker.storage.producers.state import (
    Duplicate,
    ProducerStateError,
    ProducerStateManager,
    ProducerTally,
)
from odradek_broker.storage.producers.watch import NOBODY, ProducerWatch
from odradek_broker.storage.reading import LogReader
from odradek_broker.storage.recovery import (
    LogLoader,
    RecoveryReport,
    fill_aborted_index,
    missing_at_first_use,
)
from odradek_broker.storage.retention import (
    delete_records_target,
    segment_facts,
    segments_to_delete,
)
from odradek_broker.storage.segment import Segment, SegmentCorrupt, TruncateFailed
from odradek_broker.storage.segments import SegmentList
from odradek_broker.storage.validation import (
    DecompressionBudget,
    PlainRules,
    check_plain,
    prepare,
)
from odradek_broker.storage.watermarks import last_stable_offset
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.records.batch import BatchError, BatchHeader, stamp

PLENTY_BYTES = 2**31 - 1


@dataclass(slots=True)
class AppendResult:
    """Where a batch lies. `log_append_time_ms` is -1 with CreateTime (R-03). A `duplicate` was
    there before, possibly not yet durable: wait for its offset as for a new one (P-10)."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


#: A start after a crash reads no more than this of what was flushed of a log that is written to.
_SNAPSHOT_EVERY_BYTES = 4 * 1024 * 1024
#: And no more than this of one that is not.
_SNAPSHOT_IDLE_BYTES = 64 * 1024
#: Snapshots take time where there are many producers.
_SNAPSHOT_PRODUCER_BYTES = 1024
#: Of so many expired producers at once somebody is told: nobody reads of more.
_EXPIRED_TOLD_MAX = 1_000


def _ignore(_: PartitionLog) -> None:
    pass


class PartitionLog:
    """`<topic>-<partition>`. Files are opened at the first use that needs them.

    Hooks, each called with the log, on the loop's thread: `on_moved` when HW, LSO or the log start
    moved, `on_offline` once when the disk failed, `on_flush_wanted` when a flush is due although
    nobody waits for it (a segment was rolled). `watch` is told of producers.
    """

    __slots__ = (
        "_directory",
        "_durable_offset",
        "_end_seen",
        "_epochs",
        "_files",
        "_files_flushing",
        "_gaps_known",
        "_last_stable_offset",
        "_left_unsynced",
        "_loaded",
        "_options",
        "_plain_rules",
        "_producers",
        "_reader",
        "_segments",
        "_snapshot_at",
        "_start",
        "_swap",
        "_synced_offset",
        "_truncations",
        "_unreadable",
        "_where",
        "config",
        "directory",
        "high_watermark",
        "journaled",
        "log_end_offset",
        "log_start_offset",
        "name",
        "offline",
        "offline_reason",
        "on_flush_wanted",
        "on_moved",
        "on_offline",
        "partition",
        "report",
        "topic",
        "topic_id",
        "watch",
    )

    # Set when the files are opened.
    _segments: SegmentList
    _producers: Producers
    _reader: LogReader
    _epochs: LeaderEpochs

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
        self._plain_rules = PlainRules.of(config)
        self.offline = False
        self.offline_reason = ""
        self.log_start_offset = start.log_start_offset
        self.log_end_offset = start.log_end_offset
        self.high_watermark = start.log_end_offset
        self.on_moved: Callable[[PartitionLog], None] = _ignore
        self.on_offline: Callable[[PartitionLog], None] = _ignore
        self.on_flush_wanted: Callable[[PartitionLog], None] = _ignore
        self.watch: ProducerWatch = NOBODY
        self._where = (topic, partition)
        self.report = RecoveryReport(topic, partition)
        self._options = options
        self._files = options.files
        self._start = start
        self._loaded = False
        self._durable_offset = start.log_end_offset
        self._synced_offset = start.log_end_offset
        self._files_flushing = 0
        self._left_unsynced: list[str] = []
        self._gaps_known = start.gaps_known
        #: May a journal have something of it?
        self.journaled = False
        self._last_stable_offset = start.log_end_offset
        self._directory = PartitionDirectory(options.files, directory)
        self._truncations = 0
        self._end_seen = -1
        self._snapshot_at = (
            -1,
            0,
        )  # Base offset and size of the segment that the last one was taken in.
        self._unreadable = False
        self._swap: SegmentSwap | None = None

    # ---- opening and closing

    @property
    def loaded(self) -> bool:
        """Are its files open?"""
        return self._loaded

    def load(self, now_ms: int, later: list[Callable[[], None]] | None = None) -> RecoveryReport:
        """Open the files, and recover them if they were not left by a clean stop. Called by itself
        at first use; a broker that starts after a crash calls it for all. Raises PartitionOffline;
        StorageError where it may be tried again.

        `later` takes what remains to be called, each in whatever thread, before anybody may read
        what was found; where one raises OSError, call `recovery_failed`. None: it is done here.
        """
        if self._loaded:
            return self.report
        if self.offline:
            raise self._offline_error()
        start = self._start
        loader = LogLoader(
            files=self._files,
            handles=self._options.handles,
            directory=self.directory,
            log_start_offset=start.log_start_offset,
            recovery_point=start.recovery_point,
            expected_end_offset=start.log_end_offset,
            clean=start.clean,
            index_interval_bytes=self.config.index_interval_bytes,
            compacted=self.config.compacted or start.cleaned,
            gaps_known=start.gaps_known,
            restore=self._restore,
            now_ms=now_ms,
            new_producers=self._new_producers,
            report=self.report,
            later=later,
        )
        try:
            loaded = loader.load()
        except OSError as problem:
            if not loader.fsync_failed and not out_of_files(problem):
                self._options.unopened[self.name] = self
            raise self._failed("opening it", problem) from problem
        self._segments = SegmentList(self.directory, self._options.handles, loaded.segments)
        for segment in self._segments:
            segment.pin_dirty = self.config.durability == "fsync"
        self._producers = loaded.producers
        self._reader = LogReader(
            self._segments,
            loaded.producers.aborted_indexes,
            self._options.handles,
            self._read_failed,
        )
        self._epochs = loaded.epochs
        self._loaded = self._gaps_known = True
        if not start.clean and not start.recovery_point:
            # The process that wrote the file may have died before a flush, and the journal goes by
            # topic ids (L-50).
            self._directory.written([f"{self.directory}/{PARTITION_METADATA}"])
        if not self.report.scanned_bytes:
            active = self._segments.active
            self._snapshot_at = active.base_offset, active.size_bytes
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self._durable_offset = self._synced_offset = loaded.log_end_offset
        self._move_high_watermark(loaded.log_end_offset)
        return self.report

    def _restore(self, segment: int, position: int, offset: int) -> Iterator[bytes]:
        """What a journal has behind the end of a segment. OSError."""
        journal = self._options.journal
        if journal is None or journal.replay is None or self.topic_id == ZERO_UUID:
            return iter(())
        return journal.replay.behind(self.topic_id, self.partition, segment, position, offset)

    def recovery_failed(self, problem: OSError) -> PartitionOffline:
        """What it recovered could not be made durable: it is offline until a restart (D5), which
        scans the same files again, as far as they are there then (L-30)."""
        self._synced_offset = min(self._synced_offset, self._start.recovery_point)
        self._gaps_known = self._start.gaps_known
        self._go_offline(f"opening it failed: {problem}")
        return self._offline_error()

    def missing_at_first_use(self) -> str:
        """Which file is missing or damaged without which `load` reads batches, maybe many, although
        it was left by a clean stop; empty if none. PartitionOffline."""
        try:
            return missing_at_first_use(
                self._files, self.directory, self.log_end_offset, self._new_producers()
            )
        except OSError as problem:
            raise self._failed("opening it", problem) from problem

    def _new_producers(self, tally: ProducerTally | None = None) -> Producers:
        return Producers(
            self._files,
            self.directory,
            max_producer_ids=self._options.max_producer_ids,
            expiration_ms=self._options.producer_expiration_ms(),
            tally=tally or self._options.producer_tally,
        )

    def create_files(self, now_ms: int) -> None:
        """Make the directory of a new partition, empty. OSError, PartitionOffline.

        Nothing waits for the disk: the first flush makes all of it durable, and a partition without
        any acknowledged record can be made again from the cluster's metadata.
        """
        self._directory.make()
        self.write_topic_id(self.topic_id)
        self.load(now_ms)

    def write_topic_id(self, topic_id: bytes) -> None:
        """Write the topic's id into partition.metadata, unsynced. OSError."""
        self.topic_id = topic_id
        self._directory.write(PARTITION_METADATA, encode_partition_metadata(topic_id))

    def _ensure_loaded(self, now_ms: int = 0) -> None:
        if not self._loaded:
            self.load(now_ms)
        if self.offline:
            raise self._offline_error()

    def close(self, *, clean: bool) -> None:
        """Give the files back. `clean`: flush, complete the indexes, take a snapshot and finish a
        swap that was begun, so that the next start can trust what it finds. Raises
        PartitionOffline, OSError."""
        if not self._loaded:
            return
        try:
            # Where it was committed and this is no clean stop, the next opening finishes it.
            swap, self._swap = self._swap, None
            if clean and not self.offline:
                self.flush()
                self._segments.active.seal()
                self._take_snapshot()
                self._producers.remove_strays(self._segments.bases, self.log_end_offset)
        finally:
            self._producers.aborted_indexes.close()
            if self._synced_offset < self._durable_offset:
                self._left_unsynced = [segment.path for segment in self._segments.unsynced()]
            self._segments.close()
            self._loaded = False
            self._start = LogStart(
                self.log_start_offset,
                self.log_end_offset,
                self._synced_offset,
                clean,
                self._start.cleaned,
            )
        if swap is not None and clean and not self.offline:
            finish_swaps(self._files, self.directory)

    def abandon(self) -> None:
        """Its directory is gone: nothing of it may be used or written any more (L-38)."""
        self.close(clean=False)
        if self._options.unopened.get(self.name) is self:
            del self._options.unopened[self.name]
        self._readable_again()
        self.offline = True
        self.offline_reason = "it was deleted"

    def _go_offline(self, reason: str) -> None:
        if not self.offline:
            self.offline = True
            self.offline_reason = reason
            self._options.disk.took_offline(self.name, reason)
            self.on_offline(self)

    def take_offline(self, reason: str) -> None:
        """Its directory is given up; whoever watches the disk knows."""
        self._options.unopened.pop(self.name, None)
        self._readable_again()
        if not self.offline:
            self.offline = True
            self.offline_reason = reason
            self.on_offline(self)

    def _failed(self, doing: str, problem: OSError) -> StorageError:
        """The meaning of a failed operation: the disk cannot be trusted, or only too much is
        open."""
        if out_of_files(problem):
            return StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} failed for {self.name}: {problem}"
            )
        self._go_offline(f"{doing} failed: {problem}")
        return self._offline_error()

    def _read_failed(self, doing: str, problem: OSError) -> StorageError:
        """The meaning of a failed read: others may work, and so may this one later."""
        reason = f"{doing} failed for {self.name}: {problem}"
        if not out_of_files(problem):
            self._unreadable = True
            self._options.disk.read_failed(self.name, reason)
        return StorageError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def _readable_again(self) -> None:
        self._unreadable = False
        self._options.disk.unreadable.pop(self.name, None)

    def open_again(self, now_ms: int) -> bool:
        """Try to open a log again that could not be opened (`LogOptions.unopened`); whether it is
        served. A failed fsync is never forgiven so."""
        if self._options.unopened.pop(self.name, None) is not self:
            return not self.offline
        told = self._options.disk.on_offline
        self._options.disk.on_offline = lambda _, __: None  # People know.
        self.offline = False
        try:
            self.load(now_ms)
        except StorageError:
            return False
        finally:
            self._options.disk.on_offline = told
        self.offline_reason = ""
        self._options.disk.on_online(self.name)
        return True

    def _offline_error(self) -> PartitionOffline:
        return PartitionOffline(self.name, self.offline_reason)

    # ---- offsets

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed stops: HW, or the first transaction not yet decided (T-45, L-12).
        Never raises: of a partition that is offline it is what it was."""
        if not self._loaded and not self.offline:
            with suppress(StorageError):
                self.load(0)
        return self._last_stable_offset

    @property
    def durable_offset(self) -> int:
        """Everything below is on disk, in the segment files or in the journal."""
        return self._durable_offset

    @property
    def synced_offset(self) -> int:
        """Everything below is on disk in the segment files."""
        return self._synced_offset

    @property
    def recovery_point(self) -> int:
        """From where a crash would have to scan (L-30)."""
        if self._loaded or self._start.clean:
            return self._synced_offset
        return self._start.recovery_point

    @property
    def gaps_known(self) -> bool:
        """Is a gap above the recovery point the loss of records, and not the work of compaction
        (L-32)?"""
        return self._gaps_known or self._start.clean

    @property
    def producers(self) -> ProducerStateManager:
        """For verification of transactions and DescribeProducers; changes go through `append`."""
        self._ensure_loaded()
        return self._producers.state

    @property
    def producers_restored_to(self) -> int:
        """Producer state below this offset is not of this start: it was rebuilt from a snapshot and
        from the log (P-28)."""
        self._ensure_loaded()
        return self._producers.restored_to

    def remove_expired_producers(self, now_ms: int) -> int:
        """P-24: how many were forgotten."""
        self._producers.state.expiration_ms = self._options.producer_expiration_ms()
        expired = self._producers.state.remove_expired(now_ms)
        for producer_id in expired[:_EXPIRED_TOLD_MAX]:
            self.watch.expired(self._where, producer_id)
        return len(expired)

    @property
    def leader_epochs(self) -> LeaderEpochs:
        self._ensure_loaded()
        return self._epochs

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, its end offset); (-1, -1) if unknown (F-13)."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    @property
    def segments(self) -> list[Segment]:
        """Oldest first; for inspection."""
        self._ensure_loaded()
        return list(self._segments)

    @property
    def size_bytes(self) -> int:
        self._ensure_loaded()
        return self._segments.total_bytes

    def _move_high_watermark(self, high_watermark: int, *, others_moved: bool = False) -> None:
        """Also after anything else that the last stable offset depends on has changed.
        `others_moved`: so has the log start, or the log end fell."""
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
    ) -> AppendResult:
        """Validate, stamp in place and write exactly one batch (L-07).

        `batch` must be writable and is changed. With origin REPLAY it keeps its offsets, which must
        not be below the log end. `transaction_version` matters for markers only (T-41), `budget`
        for compressed batches. Raises AppendRejected, with nothing written and no state changed
        (P-18, L-08).
        """
        if self.offline or not self._loaded:
            self._ensure_appendable(now_ms)
        rules = self._plain_rules
        if rules.config is not self.config:
            rules = self._plain_rules = PlainRules.of(self.config)
        log_append_time_ms = -1
        plain = check_plain(batch, rules, now_ms) if origin is AppendOrigin.CLIENT else None
        if plain is not None:
            header = plain
        else:
            batch, header, log_append_time_ms = prepare(batch, self.config, origin, now_ms, budget)
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
                        self.watch.duplicate(self._where, header, verdict)
                        return self._answer_duplicate(verdict)
            except ProducerStateError as rejected:
                self.watch.refused(self._where, header, rejected)
                raise
        if origin is AppendOrigin.REPLAY:
            self._check_replayed(header)
        else:
            header.base_offset = self.log_end_offset
            header.leader_epoch = leader_epoch
            stamp(batch, 0, header.base_offset, leader_epoch)
        base_offset = header.base_offset
        last_offset = base_offset + header.last_offset_delta
        self._write(batch, header, last_offset, now_ms)
        self.log_end_offset = last_offset + 1
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, base_offset)
            self._write_epochs()
        if has_producer:
            self._apply_producer(header, marker, base_offset, last_offset, now_ms)
        else:
            self._producers.state.map_end_offset = last_offset + 1
        if self.config.durability == "page-cache":
            self._move_high_watermark(last_offset + 1)
        return AppendResult(
            base_offset, last_offset, log_append_time_ms, self.log_start_offset, False
        )

    def _ensure_appendable(self, now_ms: int) -> None:
        try:
            self._ensure_loaded(now_ms)
        except StorageError as problem:
            raise AppendRejected(problem.error, problem.message) from problem

    def _answer_duplicate(self, original: Duplicate) -> AppendResult:
        """The answer to a batch that is in the log already (P-10)."""
        return AppendResult(
            original.base_offset,
            original.last_offset,
            original.timestamp,
            self.log_start_offset,
            True,
        )

    def _check_replayed(self, header: BatchHeader) -> None:
        if header.base_offset < self.log_end_offset:
            raise AppendRejected(
                ErrorCode.INVALID_RECORD,
                f"a replayed batch has base offset {header.base_offset}, below the log end"
                f" {self.log_end_offset}",
            )

    def _write(self, batch: memoryview, header: BatchHeader, last_offset: int, now_ms: int) -> None:
        config = self.config
        segments = self._segments
        try:
            if segments.must_roll(header, last_offset, config, now_ms):
                self._roll(header.base_offset, now_ms)
            segments.active.append(
                batch,
                header.size_bytes,
                last_offset,
                header.max_timestamp,
                config.index_interval_bytes,
            )
        except TruncateFailed as problem:
            self._go_offline(str(problem))
            raise AppendRejected(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
        except OSError as problem:
            self._options.disk.failed(problem, header.size_bytes)
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
        known = self._producers.state.entry(header.producer_id)
        epoch_before = None if known is None else known.epoch
        if epoch_before != header.producer_epoch:
            self.watch.new_epoch(self._where, header, epoch_before)
        try:
            self._producers.apply(
                header, marker, self._segments.active, base_offset, last_offset, now_ms
            )
        except OSError as problem:
            # The marker is in the log but its transaction index is not: readers would take aborted
            # records for committed ones. A restart rebuilds it.
            reason = f"writing the transaction index of {self.name} failed: {problem}"
            self._go_offline(reason)
            raise AppendRejected(ErrorCode.KAFKA_STORAGE_ERROR, reason) from problem

    def _write_epochs(self) -> None:
        """A cache: every batch names its epoch (L-31). So a failure is not the append's."""
        try:
            self._directory.write(LEADER_EPOCHS, encode_epochs(self._epochs.entries))
        except OSError:
            return  # `changed` stays set: it is written again with the next change or at close.
        self._epochs.changed = False

    def wants_snapshot(self) -> bool:
        """Would a start after a crash read much less if `take_snapshot` were called now (L-30)? Ask
        now and then: a log that nobody writes to any more is known by its end."""
        if not self._loaded or self.offline or self._swap is not None:
            return False
        end_before, self._end_seen = self._end_seen, self.log_end_offset
        active = self._segments.active
        base_offset, covered_bytes = self._snapshot_at
        grown_bytes = active.size_bytes
        if base_offset == active.base_offset:
            grown_bytes -= covered_bytes
        idle = end_before == self.log_end_offset == self._synced_offset
        enough_bytes = _SNAPSHOT_IDLE_BYTES if idle else _SNAPSHOT_EVERY_BYTES
        enough_bytes += _SNAPSHOT_PRODUCER_BYTES * len(self._producers.state)
        return grown_bytes >= enough_bytes and self.config.durability == "fsync"

    def take_snapshot(self, recovery_point: int) -> None:
        """Keep what a scan may begin with, once the recovery point on disk, now `recovery_point`,
        has come this far (L-30). A failure is not told: the scan is longer then."""
        if not self._loaded or self.offline or recovery_point > self._synced_offset:
            # A recovery point of what was cut off would have unsynced bytes pass for flushed ones.
            return
        try:
            self._segments.active.write_indexes()
            self._take_snapshot()
            self._producers.remove_outdated(self._segments.bases, recovery_point)
        except OSError:
            return

    def _take_snapshot(self) -> None:
        """A snapshot of the log's end; of what the segment's indexes say, unless something that a
        scan would repair is known to be wrong. OSError."""
        if self._epochs.changed:
            self._write_epochs()
        active = self._segments.active
        inside = active.size_bytes and not active.damage and not self._epochs.changed
        self._producers.take_snapshot(self.log_end_offset, active if inside else None)
        self._directory.written(active.path_of(suffix) for suffix in ("index", "timeindex"))
        self._snapshot_at = active.base_offset, active.size_bytes

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end; nothing happens if the active one is empty.
        Raises PartitionOffline, OSError (the old segment stays the active one)."""
        self._ensure_loaded(now_ms)
        if self._segments.active.size_bytes:
            self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        sealed = self._segments.roll(base_offset, self.config, self._options.randomness, now_ms)
        self._producers.aborted_indexes.begin(self._segments.active)
        self._directory.written((sealed.path_of("index"), sealed.path_of("timeindex")))
        # Without a snapshot replay takes longer, that is all (P-28).
        with suppress(OSError):
            whole = sealed.size_bytes and not sealed.damage and not self._epochs.changed
            self._producers.take_snapshot(base_offset, sealed if whole else None)
        self._producers.aborted_indexes.close_index(sealed)
        # With fsync as well: a roll without an append would leave the snapshot volatile (P-27).
        self.on_flush_wanted(self)

    # ---- reading

    def read(self, offset: int, max_bytes: int, *, upper_bound: int, minimum_one: bool) -> bytes:
        """Whole batches from the one that holds `offset`, all below `upper_bound` (R-16, F-03).

        At most `max_bytes`, except that with `minimum_one` the first is returned whole (F-06).
        Empty at or above the bound. Raises OffsetOutOfRange (F-07), LogCorrupt, PartitionOffline.
        """
        if self.offline or not self._loaded:
            self._ensure_loaded()
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
        """As `read`, up to the end of the log. Indexes that do not fit are made anew before it
        returns: a coordinator that loads, and a broker that starts, cannot ask again (L-33)."""
        with self._options.handles.without_background():
            return self.read(offset, max_bytes, upper_bound=self.log_end_offset, minimum_one=True)

    def readable_bytes(self, offset: int, upper_bound: int) -> int:
        """How many bytes lie between the batch that holds `offset` and the bound (F-04).

        0 for an offset outside the log. Never raises: where the bytes cannot be read it promises
        plenty, so that the read is tried and says why.
        """
        upper_bound = min(upper_bound, self.log_end_offset)
        if not self.log_start_offset <= offset < upper_bound:
            return 0
        try:
            self._ensure_loaded()
            return self._reader.count_bytes(offset, upper_bound)
        except StorageError:
            return PLENTY_BYTES

    def first_batch_bytes(self, offset: int, upper_bound: int) -> int:
        """Bytes of the first batch that a read from `offset` returns, which may be more than it
        asks for (F-04, F-06). As `readable_bytes` otherwise."""
        upper_bound = min(upper_bound, self.log_end_offset)
        if not self.log_start_offset <= offset < upper_bound:
            return 0
        try:
            self._ensure_loaded()
            return self._reader.first_batch_bytes(offset, upper_bound)
        except StorageError:
            return PLENTY_BYTES

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of every transaction that was aborted with a marker at or
        above `start` and began below `end` (F-09). Raises LogCorrupt, IndexesBeingRebuilt,
        PartitionOffline."""
        self._ensure_loaded()
        return self._reader.aborted_transactions(start, end, self._fill_aborted_index)

    def _fill_aborted_index(
        self, segment: Segment, earlier: Sequence[Segment], index: AbortedIndex
    ) -> None:
        scratch = self._new_producers(ProducerTally())
        fill_aborted_index(segment, earlier, index, scratch, self.log_start_offset)

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is not older than `timestamp`; None if
        there is none below the bound (L-15). Raises LogCorrupt, PartitionOffline."""
        self._ensure_loaded()
        return self._reader.find_timestamp(timestamp, self.log_start_offset, upper_bound)

    def max_timestamp_offset(self, upper_bound: int | None = None) -> tuple[int, int] | None:
        """(offset, timestamp) of the record with the largest timestamp of those below the bound,
        for ListOffsets -3; None if there is none. Raises LogCorrupt, PartitionOffline."""
        self._ensure_loaded()
        bound = self.log_end_offset if upper_bound is None else upper_bound
        return self._reader.latest_timestamp(self.log_start_offset, bound)

    def max_timestamp_offset_at_once(self) -> tuple[int, int] | None:
        """The same as `max_timestamp_offset`, but indexes that do not fit are made anew before it
        returns: a broker that starts cannot ask again (L-33)."""
        with self._options.handles.without_background():
            return self.max_timestamp_offset()

    # ---- flushing

    def begin_flush(self) -> FlushTicket | None:
        """Capture what is not on disk yet; None if that is nothing, or nothing may be flushed.

        Call `ticket.sync()` in a worker thread, then `finish_flush` on the loop's.
        """
        if self.offline or not self._loaded:
            return None
        if self._synced_offset >= self.log_end_offset and not self._directory.dirty:
            return None
        return self._files_ticket()

    def next_journal(self) -> CommitJournal | None:
        """Which journal the next flush would go to, if there is room: for the plain end of one
        segment, if that is not long."""
        journal = self._options.journal
        if (
            journal is None
            or not self._loaded
            or self.offline
            or self._directory.dirty
            or self._producers.unsynced
            or self.config.durability != "fsync"
            or self.topic_id == ZERO_UUID
        ):
            return None
        active = self._segments.active
        if not 0 < active.size_bytes - active.durable_bytes <= journal.entry_bytes_max:
            return None
        if not (journal.usable or journal.prepare()):
            return None
        sealed = self._segments.all[-2] if len(self._segments) > 1 else active
        if sealed is not active and sealed.size_bytes > sealed.synced_bytes:
            return None
        return journal

    def begin_journaled(self, journal: CommitJournal) -> JournalTicket | None:
        """Have what is not durable yet in the journal's next write; None if it has no room.
        `next_journal` has named it, and `finish_journaled` follows."""
        active = self._segments.active
        position = active.durable_bytes
        try:
            file = active.file
        except OSError as problem:
            self._failed("opening it for a flush", problem)
            return None
        ticket = JournalTicket(
            journal,
            self,
            self.log_end_offset,
            self._truncations,
            active,
            position,
            active.size_bytes - position,
            file,
        )
        if not journal.take(ticket):
            return None
        self.journaled = True
        active.sync_pins += 1
        active.hint(self.log_end_offset, active.size_bytes)
        return ticket

    def finish_journaled(self, ticket: JournalTicket, error: OSError | None) -> None:
        """The outcome of the journal's write, as of `finish_flush`."""
        segment = ticket.segment
        segment.unpin()
        if error is not None:
            self._go_offline(f"writing to the commit journal failed: {error}")
            ticket.journal.failed(error)
        if self.offline or not self._loaded or ticket.truncations != self._truncations:
            return
        segment.durable_bytes = max(segment.durable_bytes, ticket.position + ticket.size_bytes)
        self._durable_offset = max(self._durable_offset, ticket.end_offset)
        if self._durable_offset > self.high_watermark:
            self._move_high_watermark(self._durable_offset)

    def begin_checkpoint(self) -> FlushTicket | None:
        """As `begin_flush`, of the segment files, beside what else is flushed; None if that is not
        to be done now."""
        if not self._loaded:
            # What was in service without a clean end: its deletion may still be taken back.
            return FlushTicket(
                self._durable_offset, self._truncations, [], [], self._files, self._left_unsynced
            )
        if self.offline or self._files_flushing:
            return None
        if self._directory.dirty or self._producers.unsynced:
            self.on_flush_wanted(self)
            return None
        return self._files_ticket()

    def _files_ticket(self) -> FlushTicket | None:
        active = self._segments.active
        unsynced = [(segment, segment.size_bytes) for segment in self._segments.unsynced()]
        try:
            handles = [segment.file for segment, _ in unsynced]
        except OSError as problem:
            # With unsynced bytes that somebody waits for, the handles are open already.
            self._failed("opening it for a flush", problem)
            return None
        for segment, _ in unsynced:
            segment.sync_pins += 1
        active.hint(self.log_end_offset, active.size_bytes)
        self._files_flushing += 1
        ticket = FlushTicket(self.log_end_offset, self._truncations, unsynced, handles, self._files)
        if self._directory.dirty or self._producers.unsynced:
            ticket.paths = sorted(self._directory.take_unsynced_paths() | self._producers.unsynced)
            ticket.directories = self._directory.take_dirty()
            self._producers.unsynced.clear()
        return ticket

    def finish_flush(self, ticket: FlushTicket, error: OSError | None) -> None:
        """The outcome of `ticket.sync()`. Success moves the durable offset, and with `fsync` the
        high watermark. A failure takes the partition offline: what the kernel dropped cannot be
        asked for again (D5)."""
        journal = self._options.journal
        if not self._loaded and error is None and journal is not None:
            journal.synced(self, ticket.end_offset)
        self._files_flushing = max(self._files_flushing - 1, 0)
        for segment, _ in ticket.segments:
            segment.unpin()
        if error is not None:
            self._go_offline(f"fsync failed: {error}")
        if self.offline or not self._loaded or ticket.truncations != self._truncations:
            return
        for segment, size_bytes in ticket.segments:
            segment.synced_bytes = max(segment.synced_bytes, size_bytes)
            segment.durable_bytes = max(segment.durable_bytes, size_bytes)
        if ticket.paths:
            self._producers.volatile.difference_update(ticket.paths)
        self._synced_offset = max(self._synced_offset, ticket.end_offset)
        self._durable_offset = max(self._durable_offset, ticket.end_offset)
        if journal is not None:
            journal.synced(self, self._synced_offset)
        if self.config.durability == "fsync" and self._durable_offset > self.high_watermark:
            self._move_high_watermark(self._durable_offset)

    def flush(self) -> None:
        """Begin, sync and finish at once: for shutdown, and where nobody waits for the loop.
        Raises PartitionOffline if it fails."""
        ticket = self.begin_flush()
        if ticket is not None:
            try:
                ticket.sync()
            except OSError as problem:
                self.finish_flush(ticket, problem)
            else:
                self.finish_flush(ticket, None)
        if self.offline:
            raise self._offline_error()

    # ---- removing records

    def delete_records_target(self, offset: int) -> int:
        """The log start after `delete_records(offset)` (L-11). Raises DeleteRecordsRejected,
        PartitionOffline."""
        self._ensure_loaded()
        target = delete_records_target(self.name, self.config, offset, self.high_watermark)
        return max(self.log_start_offset, target)

    def delete_records(self, offset: int) -> int:
        """Move the log start to `offset`, -1 for the high watermark; the new log start (L-11).

        Records below become unreadable at once; whole segments go with the next retention. A crash
        takes that back: `LogManager.delete_records` writes it down first.
        Raises DeleteRecordsRejected, PartitionOffline.
        """
        target = self.delete_records_target(offset)
        if target > self.log_start_offset:
            self._move_log_start(target)
        return self.log_start_offset

    def _move_log_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self._epochs.truncate_start(offset)
        if self._epochs.changed:
            self._write_epochs()
        self._move_high_watermark(self.high_watermark, others_moved=True)

    def advance_log_start(self, offset: int) -> None:
        """Let the log start at `offset`, up to the high watermark, for who has its records
        elsewhere: a crash may take that back. Segments below go with the next retention.
        PartitionOffline."""
        self._ensure_loaded()
        if self.log_start_offset < offset <= self.high_watermark:
            self._move_log_start(offset)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drop everything, and begin empty at `offset`, beyond the log end: who asks has what comes
        before elsewhere. Waits for the disk. PartitionOffline; ValueError for an offset inside."""
        self._ensure_loaded(now_ms)
        if offset <= self.log_end_offset:
            raise ValueError(f"{self.name} ends at {self.log_end_offset}, not before {offset}")
        self._truncations += 1
        try:
            self._roll(offset, now_ms)
            self._directory.sync()
            oldest = self._segments.all[:-1]
            self._segments.discard_oldest(len(oldest), now_ms, self._options.deleted)
            for segment in oldest:
                self._producers.aborted_indexes.forget(segment)
        except OSError as problem:
            self._go_offline(f"beginning it anew at {offset} failed: {problem}")
            raise self._offline_error() from problem
        self.log_end_offset = self._durable_offset = self._synced_offset = offset
        self._move_log_start(offset)
        self._move_high_watermark(offset)

    def apply_retention(self, now_ms: int) -> int:
        """Take the segments that L-20 names out of the log; how many. Their files are renamed now
        and removed by `LogOptions.deleted`. Raises LogCorrupt, PartitionOffline; OSError."""
        self._ensure_loaded(now_ms)
        if self._swap is not None:
            return 0  # The next look comes soon enough.
        count = segments_to_delete(
            segment_facts(self._segments, self.log_end_offset, self._files),
            total_bytes=self._segments.total_bytes,
            config=self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        if count == 0:
            return 0
        if count == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
            self._producers.sync()
            # Its name tells the log end when the others are gone.
            self._directory.sync()
        elif self.config.durability == "fsync" and self._producers.is_volatile(
            self._segments.bases[count]
        ):
            # Nothing else knows the producers of what would go (P-27). The flush is under way.
            return 0
        oldest = self._segments.all[:count]
        try:
            self._segments.discard_oldest(
                count, now_ms + self.config.file_delete_delay_ms, self._options.deleted
            )
        finally:
            # Where a rename fails, those before it are gone.
            for segment in oldest:
                if segment.base_offset < self._segments.bases[0]:
                    self._producers.aborted_indexes.forget(segment)
            if self._segments.bases[0] > self.log_start_offset:
                self._move_log_start(self._segments.bases[0])
        return count

    # ---- compaction

    @property
    def truncations(self) -> int:
        """How often it was cut: what was read of it before may not be there any more."""
        return self._truncations

    @property
    def swapping(self) -> bool:
        """Is a cleaned segment on its way in?"""
        return self._swap is not None

    def require_aborted_indexes(self) -> None:
        """Have all transaction indexes say what was aborted, before anything goes by them that
        cannot be taken back (L-05). Raises IndexesBeingRebuilt, LogCorrupt, PartitionOffline."""
        self._ensure_loaded()
        self._reader.require_aborted_indexes(self._fill_aborted_index)

    def begin_swap(self, group: GroupCleaned) -> bool:
        """Commit to a cleaned segment, if what it was made from is still there (L-27). When
        `sync_directory` has been called, `swap_in` follows. Raises PartitionOffline, StorageError.
        """
        self._ensure_loaded()
        bases, sources = self._segments.bases, list(group.sources)
        at = bisect_left(bases, sources[0])
        if self._swap is not None or bases[at : at + len(sources) + 1][:-1] != sources:
            # Retention was faster; and the active segment is never among them.
            remove_cleaned(self._files, self.directory, sources[0])
            return False
        self._swap = SegmentSwap(self._files, self.directory, sources)
        try:
            self._swap.commit()
        except OSError as problem:
            raise self._failed("swapping a cleaned segment in", problem) from problem
        return True

    def sync_directory(self) -> None:
        """Make the steps of a swap durable. In whatever thread; OSError."""
        self._directory.sync()

    def directory_sync_failed(self, problem: Exception) -> StorageError:
        """The partition is offline: nobody knows what a start would find."""
        self._go_offline(f"making a compaction durable failed: {problem}")
        return self._offline_error()

    def swap_in(self, size_bytes: int, now_ms: int) -> None:
        """Read the cleaned segment, of `size_bytes`, instead of its sources. Raises
        PartitionOffline, StorageError."""
        swap = self._swap
        assert swap is not None
        first = self._segments.bases.index(swap.sources[0])
        sources = self._segments.all[first : first + len(swap.sources)]
        cleaned = Segment(self._options.handles, self.directory, swap.sources[0], created_ms=now_ms)
        cleaned.size_bytes = cleaned.synced_bytes = size_bytes
        self._directory.dirty = True
        try:
            swap.swap_in()
        except OSError as problem:
            raise self._failed("swapping a cleaned segment in", problem) from problem
        self._segments.replace(sources, cleaned)
        for source in sources:
            self._producers.aborted_indexes.forget(source)

    def retire_sources(self, at_most: int) -> bool:
        """Rename the files of some of the sources; whether that was all. Then `sync_directory`, and
        `end_swap`. Raises PartitionOffline, StorageError."""
        assert self._swap is not None
        try:
            return self._swap.retire(at_most)
        except OSError as problem:
            raise self._failed("retiring what was compacted", problem) from problem

    def end_swap(self, now_ms: int) -> None:
        """The swap is durable. `sync_directory` before anything is cleaned here again."""
        swap, self._swap = self._swap, None
        assert swap is not None
        due_ms = now_ms + self.config.file_delete_delay_ms
        self._segments.remove_later(swap.retired_paths, due_ms, self._options.deleted)
        self._directory.dirty = True
        try:
            swap.end()
        except OSError as problem:
            raise self._failed("swapping a cleaned segment in", problem) from problem

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop the batch that holds `offset` and everything behind it; the new log end (L-36).
        Waits for the disk. Raises PartitionOffline; StorageError while a cleaned segment is swapped
        in, or the journal is written.
        """
        self._ensure_loaded(now_ms)
        offset = max(offset, self.log_start_offset)
        if offset >= self.log_end_offset:
            return self.log_end_offset
        if self._swap is not None:
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is being compacted; try again"
            )
        journal = self._options.journal
        if journal is not None and journal.unwritten:
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is being flushed; try again"
            )
        if self.journaled:
            # What stays must not be in the journal alone, all of which will be void.
            self.flush()
        self._truncations += 1
        self._directory.dirty = True
        try:
            if journal is not None:
                # Before anything is gone: it must not come back from there.
                journal.forget(self)
            end, gone = self._segments.truncate_to(offset)
            self._producers.remove_snapshots(lambda at: at > end)
            self._snapshot_at = -1, 0
            # At once: what was cut off must not come back under offsets that are given anew.
            self._segments.active.file.sync()
            self._directory.sync()
            start = min(self.log_start_offset, end)
            self._producers.truncate_to(end, self._segments.all, gone, start, now_ms)
        except (OSError, SegmentCorrupt, BatchError) as problem:
            self._go_offline(f"truncating it to {offset} failed: {problem}")
            raise self._offline_error() from problem
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self._epochs.truncate_end(end)
        self._write_epochs()
        self._durable_offset = min(self._durable_offset, end)
        self._synced_offset = end
        self._move_high_watermark(min(self.high_watermark, end), others_moved=True)
        return end
