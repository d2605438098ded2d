"""Opening a log from its files: trusted after a clean stop, scanned after a crash (L-30..L-34)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise

from odradek_broker.platform.seams import Files
from odradek_broker.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_epochs,
    read_small_file,
)
from odradek_broker.storage.cleaner.foreign_swap import finish_foreign_swaps
from odradek_broker.storage.cleaner.swap import SWAP, finish_swaps
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.leader_epochs import LeaderEpochs
from odradek_broker.storage.producers.producer_files import Producers, has_snapshot, snapshot_name
from odradek_broker.storage.producers.snapshot import read_segment_state
from odradek_broker.storage.segment import (
    RETENTION_DELETED,
    SEGMENT_SUFFIXES,
    Segment,
    find_header,
    segment_name,
)
from odradek_broker.storage.segment_scanner import BatchAt, SegmentCorrupt, read_batches
from odradek_broker.storage.transaction_index import CorruptTransactionIndex, TransactionIndex
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchError, verify_crc

_NAME_DIGITS = 20


@dataclass(slots=True)
class RecoveryReport:
    """The recovery of one partition at start. `problem` is empty if nothing was wrong."""

    topic: str
    partition: int
    log_end_offset: int = 0
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    restored_bytes: int = 0
    """The bytes that were restored from the commit journal."""
    removed_segments: list[str] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets between segments, [first, end), that are taken to have been removed by compaction,
    although no recovery point says that they had been flushed."""
    problem: str = ""


@dataclass(slots=True)
class LoadedLog:
    """The files of one partition, after recovery."""

    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int


class _ScanStart(NamedTuple):
    """The start of a scan, in the first segment that is scanned."""

    offset: int
    position: int = 0


@dataclass(slots=True)
class LogLoader:
    """The loader of one partition's log.

    `expected_end_offset`: the log end at a clean stop. A log that ends exactly there is not
    scanned. `gaps_known`: gaps that compaction left are below the recovery point.
    `restore(base_offset, position, next_offset)` returns the batches of a segment that the commit
    journal has from this position on (L-50). `later` collects the syncs of scanned files, to be
    called before their records are read (D5). The loader does not sync the parent directory.
    """

    files: Files
    handles: HandleCache
    directory: str
    log_start_offset: int
    recovery_point: int
    expected_end_offset: int
    clean: bool
    index_interval_bytes: int
    compacted: bool
    gaps_known: bool
    restore: Callable[[int, int, int], Iterator[bytes]]
    now_ms: int
    new_producers: Callable[[], Producers]
    report: RecoveryReport
    #: The syncs that are called later; None: each sync is called immediately.
    later: list[Callable[[], None]] | None = None
    #: True after a failed fsync: bytes that can be read may not be on disk.
    fsync_failed: bool = False

    def load(self) -> LoadedLog:
        """Open the files, and repair and report what is wrong with them. Raises OSError."""
        segments = self._find_segments()
        loaded = self._trust(segments)
        if loaded is None:
            loaded = self._recover(segments)
        # Epochs that were read from the batches begin at the oldest batch, not at the log start.
        loaded.epochs.truncate_start(loaded.log_start_offset)
        loaded.epochs.reach_back(loaded.log_start_offset)
        self.report.log_end_offset = loaded.log_end_offset
        return loaded

    # ---- finding the segments

    def _find_segments(self) -> list[Segment]:
        """The segments by offset. Committed swaps and deletions are finished, other leftovers are
        removed."""
        names = self.files.list(self.directory)
        if any(name.endswith(SWAP) for name in names):
            finish_swaps(self.files, self.directory)
            finish_foreign_swaps(self.files, self.directory)
            names = self.files.list(self.directory)
        bases = []
        leftovers = []
        last_deleted = -1
        for name in names:
            stem, _, suffix = name.partition(".")
            is_segment = len(stem) == _NAME_DIGITS and stem.isdigit()
            if suffix.endswith(("deleted", "tmp", "cleaned", "swap")):
                leftovers.append(name)
                if is_segment and self._tells_of_retention(suffix):
                    last_deleted = max(last_deleted, int(stem))
            elif suffix == "log" and is_segment:
                bases.append(int(stem))
        if max(bases, default=-1) > last_deleted:
            self._finish_retention([base for base in bases if base <= last_deleted])
            bases = [base for base in bases if base > last_deleted]
        for name in leftovers:
            self.files.remove(f"{self.directory}/{name}")
        known = {segment_name(base) for base in bases}
        for name in names:
            stem, _, suffix = name.partition(".")
            if suffix in ("index", "timeindex", "txnindex") and stem not in known:
                self.files.remove(f"{self.directory}/{name}")
        segments = [
            Segment(self.handles, self.directory, base, created_ms=self.now_ms)
            for base in sorted(bases)
        ]
        for segment in segments:
            segment.attach()
        return segments

    def _fsync(self, sync: Callable[[], None]) -> None:
        self.fsync_failed = True
        sync()
        self.fsync_failed = False

    def _sync(self, sync: Callable[[], None]) -> None:
        """Call a sync immediately, or collect it for the caller in `later`."""
        if self.later is None:
            self._fsync(sync)
        else:
            self.later.append(sync)

    def _tells_of_retention(self, suffix: str) -> bool:
        """True if a suffix shows that everything below the segment was also deleted. Kafka's suffix
        does not show it in a compacted log: Kafka has one suffix for files that retention deleted
        and for files that compaction replaced. Kafka keeps such files for a minute, and leaves
        them when it stops."""
        return suffix == "log" + RETENTION_DELETED or (
            suffix == "log.deleted" and not self.compacted
        )

    def _finish_retention(self, bases: list[int]) -> None:
        """Remove the segments below one that retention has deleted (L-20). The renaming of these
        segments did not reach the disk, and the gap after them would look like the damaged end of a
        log."""
        for base in bases:
            for suffix in SEGMENT_SUFFIXES:
                self.files.remove(f"{self.directory}/{segment_name(base)}.{suffix}")
        if bases:
            # The removal of these segments must be durable before the renamed files are removed:
            # only the names of the renamed files show that the segments below them were deleted.
            self._fsync(lambda: self.files.sync_dir(self.directory))

    # ---- after a clean stop

    def _trust(self, segments: list[Segment]) -> LoadedLog | None:
        """The log as a clean stop left it; None if the files have changed since then."""
        if not segments or not self.clean:
            return None
        active = segments[-1]
        try:
            active.indexes.load()
            # A torn write has no whole batch, and does not change the next offset: only `damage`
            # shows it.
            if active.indexes.damage or active.next_offset != self.expected_end_offset:
                return None
            # Without the snapshot of a clean stop, an old transaction index could not be detected.
            if active.size_bytes and not has_snapshot(
                self.files, self.directory, active.next_offset
            ):
                return None
            _set_next_offsets(segments)
            log_start_offset = max(self.log_start_offset, segments[0].base_offset)
            producers = self.new_producers()
            producers.load(segments, log_start_offset, active.next_offset, self.now_ms)
            producers.aborted_transactions.expect(active)
        except (SegmentCorrupt, BatchError):
            return None
        return LoadedLog(
            segments,
            producers,
            self._read_epochs(segments, active.next_offset),
            log_start_offset,
            active.next_offset,
        )

    # ---- after a crash

    def _recover(self, segments: list[Segment]) -> LoadedLog:
        if not segments:
            return self._start_empty(self.log_start_offset)
        first = 0
        for at, segment in enumerate(segments):
            if segment.base_offset <= self.recovery_point:
                first = at
        _set_next_offsets(segments)
        log_start_offset = max(self.log_start_offset, segments[0].base_offset)
        begin = self._resume_inside(segments[first], log_start_offset)
        producers = self.new_producers()
        try:
            producers.load(segments[: first + 1], log_start_offset, begin.offset, self.now_ms)
        except (SegmentCorrupt, BatchError):
            # Something below the recovery point is damaged: scan everything.
            first, begin = 0, _ScanStart(segments[0].base_offset)
            producers = self.new_producers()
        if begin.position:
            # `_resume_inside` has cut the transaction index of this segment to the entries that the
            # snapshot names.
            producers.aborted_transactions.begin(segments[first])
        epochs = self._read_epochs(segments[: first + 1], begin.offset)
        good = self._scan_all(segments, first, begin, producers, epochs)
        end = good[-1].next_offset
        # Snapshots above the end may not match later appends, so their removal is synced.
        kept = [segment.base_offset for segment in good]
        producers.remove_strays([*kept, begin.offset], end)
        # From here on everything counts as flushed, including the transaction indexes that the scan
        # wrote. So everything is synced even with page-cache: before the crash the durability may
        # have been fsync, and the journal of that time is removed.
        self._sync(producers.sync)
        topic_id = f"{self.directory}/{PARTITION_METADATA}"
        if self.report.scanned_bytes and not self.recovery_point and self.files.exists(topic_id):
            # partition.metadata may never have been flushed.
            self._sync(partial(_sync_file, self.files, topic_id))
        if end < self.recovery_point or (self.report.scanned_bytes or self.report.problem):
            self._sync(lambda: self.files.sync_dir(self.directory))
        if end < log_start_offset:
            self._note(f"the log ends at {end}, before its start {log_start_offset}")
            if self.later:
                # Files that are removed here could not be opened by the collected syncs.
                self.later.clear()
            self._remove(good)
            return self._start_empty(log_start_offset)
        return LoadedLog(good, producers, epochs, log_start_offset, end)

    def _resume_inside(self, segment: Segment, log_start_offset: int) -> _ScanStart:
        """The start of the scan in the segment of the recovery point (L-30): the newest snapshot
        inside the segment, below the recovery point, that agrees with the indexes; else the
        segment's first batch. All batches before the start of the scan were flushed."""
        lowest = max(segment.base_offset, log_start_offset)
        if self.recovery_point <= lowest:
            return _ScanStart(segment.base_offset)
        producers = self.new_producers()
        for offset in sorted(producers.snapshot_offsets(), reverse=True):
            if not lowest < offset <= self.recovery_point:
                continue
            state = producers.segment_state(offset)
            if state is None or state.base_offset != segment.base_offset:
                continue
            try:
                segment.indexes.go_on_behind(state, offset)
                producers.aborted_transactions.cut_behind(
                    segment, state.aborted_entries, state.aborted_crc
                )
            except (SegmentCorrupt, BatchError, CorruptTransactionIndex):
                continue
            return _ScanStart(offset, state.size_bytes)
        return _ScanStart(segment.base_offset)

    def _scan_all(
        self,
        segments: list[Segment],
        first: int,
        begin: _ScanStart,
        producers: Producers,
        epochs: LeaderEpochs,
    ) -> list[Segment]:
        """The segments that stay; the last of them may have been cut (L-31, L-32)."""
        restorable = self._first_restorable(segments)
        for at in range(first, len(segments)):
            segment = segments[at]
            if at > first:
                problem = self._gap_before(segment, segments[at - 1])
                if problem:
                    self._note(problem)
                    self._remove(segments[at:])
                    return segments[:at]
                if self.compacted:
                    producers.go_on_from_snapshot(segment.base_offset, self.now_ms)
                producers.take_snapshot(segment.base_offset, segments[at - 1])
            size_before = segment.size_bytes
            position = begin.position if at == first else 0
            problem = scan_segment(segment, producers, epochs, self.index_interval_bytes, position)
            self.report.scanned_bytes += segment.size_bytes - position
            if problem:
                self.report.truncated_bytes += size_before - segment.size_bytes
                self._note(problem)
            restored = self._restore_end(segment) if problem or restorable <= at else 0
            if restored:
                problem = scan_segment(
                    segment,
                    producers,
                    epochs,
                    self.index_interval_bytes,
                    segment.size_bytes - restored,
                )
            if restored or size_before > position:
                self._sync(partial(_sync_file, self.files, segment.path))
            segment.synced_bytes = segment.size_bytes
            if problem:
                self._remove(segments[at + 1 :])
                return segments[: at + 1]
        return segments

    def _first_restorable(self, segments: list[Segment]) -> int:
        """The first segment to whose intact end the journal may append records. A compacted segment
        below the recovery point is excluded: the journal may still have the records that compaction
        removed from its end."""
        if not self.compacted:
            return 0
        bases = [segment.base_offset for segment in segments]
        return max(bisect_right(bases, self.recovery_point) - 1, 0)

    def _restore_end(self, segment: Segment) -> int:
        """Append the batches of the commit journal that follow the end of a segment (L-50); returns
        the number of bytes."""
        begin = segment.size_bytes
        for batches in self.restore(segment.base_offset, begin, segment.next_offset):
            segment.file.append([batches])
            segment.size_bytes += len(batches)
        restored_bytes = segment.size_bytes - begin
        self.report.restored_bytes += restored_bytes
        return restored_bytes

    def _gap_before(self, segment: Segment, previous: Segment) -> str:
        """The reason why a segment cannot follow the one before it; empty if it can.

        A rolled segment can lose its unsynced end at a batch boundary while the next file survives.
        Only compaction leaves such gaps on purpose, and only below the recovery point on disk,
        where everything was flushed before. The checkpoints may be old copies, so a compacted log
        is not cut if there is a snapshot behind the gap, and none at it that shows a lost end.
        """
        if segment.base_offset == previous.next_offset:
            return ""
        on_purpose = (
            not self.gaps_known
            or segment.base_offset <= self.recovery_point
            or (
                has_snapshot_behind(self.files, self.directory, segment.base_offset)
                and not has_lost_its_end(
                    self.files,
                    self.directory,
                    previous.base_offset,
                    previous.size_bytes,
                    segment.base_offset,
                )
            )
        )
        if segment.base_offset > previous.next_offset and self.compacted and on_purpose:
            if segment.base_offset > self.recovery_point:
                self.report.gaps.append((previous.next_offset, segment.base_offset))
            return ""
        return (
            f"{segment.path} starts at offset {segment.base_offset}, but the segment before it"
            f" ends at {previous.next_offset}"
        )

    def _start_empty(self, offset: int) -> LoadedLog:
        segment = Segment(self.handles, self.directory, offset, created_ms=self.now_ms)
        segment.create()
        producers = self.new_producers()
        producers.start_empty(offset)
        producers.aborted_transactions.begin(segment)
        return LoadedLog([segment], producers, LeaderEpochs(), offset, offset)

    def _remove(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.close()
            self.report.removed_segments.append(segment_name(segment.base_offset))
            self.report.truncated_bytes += segment.size_bytes
            for suffix in SEGMENT_SUFFIXES:
                self.files.remove(segment.path_of(suffix))

    def _note(self, problem: str) -> None:
        self.report.problem = (
            f"{self.report.problem}; {problem}" if self.report.problem else problem
        )

    def _read_epochs(self, segments: list[Segment], end_offset: int) -> LeaderEpochs:
        """The leader epochs below an offset from the checkpoint, or from the batches if the
        checkpoint is damaged or missing (L-35)."""
        epochs = None
        try:
            text = read_small_file(self.files, f"{self.directory}/{LEADER_EPOCHS}")
            if text is not None:
                epochs = LeaderEpochs(decode_epochs(text))
        except CorruptCheckpoint as problem:
            self._note(str(problem))
        if epochs is None:
            epochs = self._epochs_from_batches(segments)
        epochs.truncate_end(end_offset)
        self._compare_epochs(epochs, segments, end_offset)
        return epochs

    def _compare_epochs(
        self, epochs: LeaderEpochs, segments: list[Segment], end_offset: int
    ) -> None:
        """Compare the leader epochs with the batches at the start of the latest epoch and at the
        end. Epochs of another log are dropped; those that an old copy of the checkpoint does not
        have count as part of the epoch before, so that no client is told of a truncation."""
        if epochs.entries and segments:
            start_offset = max(epochs.entries[-1][1], segments[0].base_offset)
            begins = find_header(segments, start_offset)
            if begins is not None and begins.leader_epoch < epochs.latest:
                epochs.truncate_end(0)
        last = find_header(segments, end_offset - 1)
        if last is not None and last.base_offset < end_offset:
            epochs.assign(last.leader_epoch, last.base_offset)

    def _epochs_from_batches(self, segments: list[Segment]) -> LeaderEpochs:
        epochs = LeaderEpochs()
        for segment in segments:
            try:
                for _, header, _ in read_batches(segment, 0):
                    epochs.assign(header.leader_epoch, header.base_offset)
            except (SegmentCorrupt, BatchError):
                break  # The scan of this segment reports the damage.
        epochs.changed = bool(epochs.entries)
        return epochs


def has_snapshot_behind(files: Files, directory: str, offset: int) -> bool:
    """True if there is a sound snapshot above an offset, as behind every part that was cleaned
    (L-55). Raises OSError."""
    names = [name.partition(".") for name in files.list(directory)]
    offsets = [int(stem) for stem, _, suffix in names if suffix == "snapshot" and stem.isdigit()]
    return any(has_snapshot(files, directory, each) for each in offsets if each > offset)


def has_lost_its_end(
    files: Files, directory: str, base_offset: int, size_bytes: int, end_offset: int
) -> bool:
    """True if the snapshot at `end_offset` says that a segment, which has `size_bytes` now, was
    longer when it was closed there. It tells nothing of compacted segments: the cleaner removes the
    snapshots below the part that it cleans before it changes a segment, and leaves no gap at the
    end of that part (L-24). Raises OSError."""
    state = read_segment_state(files, f"{directory}/{snapshot_name(end_offset)}")
    return state is not None and state.base_offset == base_offset and state.size_bytes > size_bytes


def _sync_file(files: Files, path: str) -> None:
    file = files.open(path)
    try:
        file.sync()
    finally:
        file.close()


def missing_at_first_use(files: Files, directory: str, log_end_offset: int) -> str:
    """The name of a missing or damaged file without which a log can only be opened by reading
    batches, even after a clean stop at `log_end_offset`; empty if there is no such file. Only a few
    small files are read. Raises OSError."""
    names = set(files.list(directory))
    bases = [name.removesuffix(".log") for name in names if name.endswith(".log")]
    if not bases:
        return ""
    active = max(bases)
    for name in (f"{active}.index", f"{active}.timeindex"):
        if name not in names:
            return name
    if not has_snapshot(files, directory, log_end_offset):
        return snapshot_name(log_end_offset)
    try:
        text = read_small_file(files, f"{directory}/{LEADER_EPOCHS}")
        if text is not None:
            decode_epochs(text)
    except CorruptCheckpoint:
        return LEADER_EPOCHS
    return LEADER_EPOCHS if text is None and int(min(bases)) < log_end_offset else ""


def _set_next_offsets(segments: list[Segment]) -> None:
    for segment, following in pairwise(segments):
        segment.next_offset = following.base_offset


def scan_segment(
    segment: Segment,
    producers: Producers,
    epochs: LeaderEpochs,
    index_interval_bytes: int,
    begin: int = 0,
) -> str:
    """Check every batch of a segment, rebuild its derived files, and cut it at the first bad batch
    (L-31). Returns the problem, empty if there is none. Raises OSError.

    `begin`: the position to begin at; the segment's indexes must reach up to it.
    """
    if begin == 0:
        segment.indexes.start_rebuild()
        producers.aborted_transactions.remove(segment)
    problem, position = "", begin
    try:
        for position, header, batch in read_batches(segment, begin, segment.next_offset):
            verify_crc(batch, 0, header)
            producers.replay(header, batch, segment)
            segment.indexes.note_scanned(
                BatchAt(
                    position,
                    header.size_bytes,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                ),
                index_interval_bytes,
            )
            epochs.assign(header.leader_epoch, header.base_offset)
            position += header.size_bytes
    except (BatchError, SegmentCorrupt) as trouble:
        problem = f"{segment.path} is damaged at byte {position}: {trouble}"
        segment.truncate(position, segment.next_offset)
    segment.indexes.seal()
    return problem


def fill_transaction_index(
    segment: Segment,
    earlier: Sequence[Segment],
    index: TransactionIndex,
    scratch: Producers,
    log_start_offset: int,
) -> None:
    """Write a segment's transaction index (L-05), in any thread: load the producer state at the
    segment's start into `scratch`, then apply its batches. Raises BatchError, SegmentCorrupt,
    OSError."""
    loaded = False
    for _, header, batch in read_batches(segment, 0):
        if not (loaded or header.is_transactional or header.is_control):
            continue  # Most segments have no transactional batch.
        if not loaded:
            loaded = True
            scratch.load(earlier, log_start_offset, segment.base_offset, 0, alone=True)
        if header.is_control:
            verify_crc(batch, 0, header)
        aborted = scratch.follow(header, batch)
        if aborted is not None:
            index.append(aborted)
