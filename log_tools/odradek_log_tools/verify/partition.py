"""The check of a partition: its segments in order, and the files that must agree with them."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator

from odradek_broker.platform.seams import Files
from odradek_broker.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_epochs,
    decode_partition_metadata,
    read_small_file,
)
from odradek_broker.storage.producers.producer_files import read_end_marker
from odradek_broker.storage.producers.snapshot import CorruptProducerSnapshot, decode_snapshot
from odradek_broker.storage.producers.state import ProducerEntry, ProducerStateManager
from odradek_broker.storage.recovery import has_lost_its_end, has_snapshot_behind
from odradek_broker.storage.transaction_index import AbortedTxn
from odradek_log_tools.file_names import FileKind
from odradek_log_tools.record_decoders import is_loaded, load_problem
from odradek_log_tools.segment_file import SegmentBatch, no_wait
from odradek_log_tools.verify.findings import Findings
from odradek_log_tools.verify.partition_files import (
    PartitionFiles,
    skip_unfinished_swaps,
    sort_files,
)
from odradek_log_tools.verify.segment import Damage, SegmentCheck
from odradek_protocol.constants import NO_COORDINATOR_EPOCH, NO_OFFSET
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.records.batch import BatchError, BatchHeader
from odradek_protocol.records.record import read_records

#: A number of producer ids that no partition reaches.
_PRODUCERS_MAX = 1_000_000
_NEVER_MS = 2**62
_DIFFERENCES_MAX = 3


class ProducerReplay:
    """The state of a partition's producers, replayed from the batches. `exact`: true if the replay
    began at the first batch or a snapshot, so that the state is complete."""

    def __init__(self) -> None:
        self.exact = False
        self._state = self._empty()

    @staticmethod
    def _empty() -> ProducerStateManager:
        return ProducerStateManager(max_producer_ids=_PRODUCERS_MAX, expiration_ms=_NEVER_MS)

    def begin_empty(self) -> None:
        """Begin with an empty state; to be called before the very first batch of the partition."""
        self._state, self.exact = self._empty(), True

    def begin_at(self, content: bytes, offset: int) -> None:
        """Continue from a snapshot. Raises CorruptSnapshot."""
        entries = decode_snapshot(content, map_end_offset=offset)
        self._state = self._empty()
        self._state.restore(entries, offset)
        self.exact = True

    def follow(self, batch: SegmentBatch) -> AbortedTxn | None:
        """Apply a batch. Returns the entry that the transaction index must have for it, if any.
        Raises BatchError and ValueError."""
        header = batch.header
        marker = None
        if header.is_control and batch.data is not None:
            marker = read_end_marker(header, batch.data)
        self._state.update(header, header.base_offset, header.last_offset, 0)
        if marker is None:
            return None
        kind, coordinator_epoch = marker
        return self._state.apply_marker(
            header.producer_id,
            header.producer_epoch,
            coordinator_epoch,
            kind,
            header.last_offset,
            header.max_timestamp,
        )

    def differences(self, content: bytes, offset: int) -> str:
        """The differences between a snapshot at the present offset and the replayed state, as text;
        empty if there are none. Raises CorruptSnapshot."""
        stored = {
            entry.producer_id: entry for entry in decode_snapshot(content, map_end_offset=offset)
        }
        found = []
        for text in self._differences(stored):
            found.append(text)
            if len(found) > _DIFFERENCES_MAX:
                found[-1] = "..."
                break
        return "; ".join(found)

    def _differences(self, stored: dict[int, ProducerEntry]) -> Iterator[str]:
        for replayed in self._state.entries():
            entry = stored.pop(replayed.producer_id, None)
            if entry is not None:
                yield from _entry_differences(entry, replayed)
            elif replayed.transaction_first_offset is not None:
                # A producer without an open transaction may have expired.
                yield (
                    f"producer id {replayed.producer_id}, whose transaction is open since offset"
                    f" {replayed.transaction_first_offset}, is not in it"
                )
        for producer_id in stored:
            yield f"producer id {producer_id} has written nothing"


def _entry_differences(entry: ProducerEntry, replayed: ProducerEntry) -> Iterator[str]:
    """The differences between an entry in a snapshot and the replayed entry. Values that the
    snapshot does not have are not compared, because a producer may have expired and then written
    again."""
    pairs = [
        ("epoch", entry.epoch, replayed.epoch),
        ("open transaction", entry.transaction_first_offset, replayed.transaction_first_offset),
    ]
    if entry.coordinator_epoch != NO_COORDINATOR_EPOCH:
        pairs.append(("coordinator epoch", entry.coordinator_epoch, replayed.coordinator_epoch))
    if entry.last_offset != NO_OFFSET:
        pairs.append(("last offset", entry.last_offset, replayed.last_offset))
        pairs.append(("last sequence", entry.last_sequence, replayed.last_sequence))
    for name, stored, computed in pairs:
        if stored != computed:
            yield f"producer id {entry.producer_id} has {name} {stored}, its batches give {computed}"


_REMOVE_SNAPSHOT = "remove it while the broker is stopped: batches are read instead"
_COMPUTED_AGAIN = "it is computed again at the next start"
_UNREADABLE = (
    "consumers get CORRUPT_MESSAGE for it, and what is around it is served; restore the file from a"
    " backup, or move the consumers past it"
)


@dataclass(frozen=True, slots=True)
class Expected:
    """The state of a partition according to the checkpoints of the directory; None for an unknown
    number.

    `clean`: true if the next start trusts the files. `live`: true if a broker is writing to them.
    `gaps_known`: true if all gaps that compaction left are below the recovery point.
    """

    clean: bool
    live: bool
    compacted: bool = False
    log_start_offset: int | None = None
    recovery_point: int | None = None
    gaps_known: bool = False
    log_end_offset: int | None = None


@dataclass(slots=True)
class PartitionSummary:
    """The result of the check. `scanned_bytes`: the number of bytes that the next start will
    scan."""

    topic_id: bytes | None = None
    log_end_offset: int = 0
    segments: int = 0
    size_bytes: int = 0
    scanned_bytes: int = 0


class PartitionCheck:
    """The check of a partition's directory, made once. `progress` is called with the number of
    bytes that were read. `wait` is called before a file that is being written is read again."""

    def __init__(
        self,
        files: Files,
        directory: str,
        expected: Expected,
        findings: Findings,
        progress: Callable[[int], None],
        wait: Callable[[], None] = no_wait,
    ) -> None:
        self._files = files
        self._directory = directory
        self._expected = expected
        self._findings = findings
        self._progress = progress
        self._wait = wait
        self._replay = ProducerReplay()
        self._there = PartitionFiles(directory, set())
        self._epochs: tuple[tuple[int, int], ...] = ()
        self._epochs_wrong = False
        #: The position at which the next start cuts the log.
        self._cut: Damage | None = None
        #: The number of whole batches that the cut removes.
        self._behind_cut = 0
        self._sound = True
        self._odd_timestamps = 0
        self._topic = directory.rpartition("/")[2].rpartition("-")[0]
        self._unloadable = False
        #: The index of the first segment that the next start scans.
        self._first_scanned = 0
        self._next_offset = 0
        self._segment_bytes = 0
        self.summary = PartitionSummary()

    def run(self) -> PartitionSummary:
        """Check the directory. Raises OSError."""
        self._there = sort_files(self._directory, self._files.list(self._directory), self._findings)
        skip_unfinished_swaps(self._files, self._there, self._findings, live=self._expected.live)
        self.summary.topic_id = self._read_topic_id()
        self._epochs = self._read_epochs()
        bases = self._there.bases
        self._first_scanned = self._find_first_scanned(bases)
        self.summary.segments = len(bases)
        if bases:
            self._next_offset = bases[0]
            for at, base_offset in enumerate(bases):
                self._check_segment(at, base_offset)
        self._report_cut()
        self.summary.log_end_offset = self._next_offset
        self._check_bounds(bases)
        self._check_end_snapshot(bases)
        self._note_odd_timestamps()
        return self.summary

    def _find_first_scanned(self, bases: list[int]) -> int:
        """The index of the first segment that the next start scans. After a clean stop no segment
        is scanned, so the index is that after the last segment. If a broker is writing to the
        partition, the index is that of the last segment.
        """
        if self._expected.live:
            return len(bases) - 1
        if self._expected.clean:
            return len(bases)
        return max(bisect_right(bases, self._expected.recovery_point or 0) - 1, 0)

    # ---- small files

    def _read_topic_id(self) -> bytes | None:
        path = f"{self._directory}/{PARTITION_METADATA}"
        try:
            text = read_small_file(self._files, path)
            if text is not None:
                return decode_partition_metadata(text)
        except CorruptCheckpoint as problem:
            self._findings.recoverable(path, str(problem), _COMPUTED_AGAIN)
            return None
        self._findings.recoverable(path, "is missing", "the next start writes it")
        return None

    def _read_epochs(self) -> tuple[tuple[int, int], ...]:
        path = f"{self._directory}/{LEADER_EPOCHS}"
        try:
            text = read_small_file(self._files, path)
            if text is None:
                # A log without batches has no epochs.
                self._epochs_wrong = True
                if any(self._size(base_offset) for base_offset in self._there.bases):
                    self._findings.recoverable(path, "is missing", _COMPUTED_AGAIN)
                return ()
            entries = decode_epochs(text)
        except CorruptCheckpoint as problem:
            self._findings.recoverable(path, str(problem), _COMPUTED_AGAIN)
            self._epochs_wrong = True
            return ()
        for before, entry in itertools.pairwise(entries):
            if entry[0] <= before[0] or entry[1] < before[1]:
                self._wrong_epochs(f"{entry} does not follow {before}")
                return ()
        return entries

    def _size(self, base_offset: int) -> int:
        file = self._files.open(self._there.path(base_offset, FileKind.SEGMENT))
        try:
            return file.size()
        finally:
            file.close()

    def _check_epoch(self, header: BatchHeader) -> None:
        """Compare the leader epoch of a batch with the checkpoint of epochs. The checkpoint has no
        epochs below the log start.
        """
        if self._epochs_wrong or header.leader_epoch < 0:
            return
        at = bisect_right(self._epochs, header.base_offset, key=lambda entry: entry[1]) - 1
        if at < 0 and self._epochs:
            return
        found = self._epochs[at][0] if at >= 0 else -1
        if found != header.leader_epoch:
            self._wrong_epochs(
                f"offset {header.base_offset} is of leader epoch {found} by it, its batch says"
                f" {header.leader_epoch}"
            )

    def _wrong_epochs(self, problem: str) -> None:
        self._epochs_wrong = True
        self._findings.damaged(
            f"{self._directory}/{LEADER_EPOCHS}",
            problem,
            f"remove it while the broker is stopped: {_COMPUTED_AGAIN}",
        )

    # ---- segments

    def _scanned(self, at: int) -> bool:
        return at >= self._first_scanned

    def _check_segment(self, at: int, base_offset: int) -> None:
        self._check_seam(at, base_offset)
        self._use_snapshot(at, base_offset)
        scanned = self._scanned(at)
        check = SegmentCheck(
            self._files,
            self._there,
            base_offset,
            self._findings,
            derived=not scanned,
            complete=not self._expected.live or at < len(self._there.bases) - 1,
            gaps=self._expected.compacted,
            bad=lambda damage: self._bad(at, damage),
            wait=self._wait,
        )
        aborted: list[AbortedTxn] = []
        try:
            for batch in check.batches():
                if self._cut is not None:
                    self._behind_cut += 1
                if not scanned:
                    self._check_epoch(batch.header)
                self._follow(batch, aborted)
                self._check_records(batch)
                self._progress(batch.header.size_bytes)
        finally:
            exact = self._replay.exact and not self._expected.compacted
            check.finish(aborted if exact else None)
        self._next_offset = check.next_offset
        self._odd_timestamps += check.odd_timestamps
        self._segment_bytes = check.size_bytes
        self.summary.size_bytes += check.size_bytes
        if scanned:
            self.summary.scanned_bytes += check.size_bytes

    def _follow(self, batch: SegmentBatch, aborted: list[AbortedTxn]) -> None:
        try:
            entry = self._replay.follow(batch)
        except (BatchError, ValueError) as problem:
            if self._replay.exact:
                self._findings.damaged(
                    self._directory,
                    f"the batch of offset {batch.header.base_offset} contradicts those before it:"
                    f" {problem}",
                    "restore a backup: the log cannot be opened",
                )
            self._replay.exact = False
            return
        if entry is not None:
            aborted.append(entry)

    def _check_records(self, batch: SegmentBatch) -> None:
        """In a batch, report the first record that the topic's coordinator could not load."""
        if self._unloadable or batch.header.is_control or batch.problem or batch.data is None:
            return
        if not is_loaded(self._topic):
            return
        for record in read_records(batch.data, 0, batch.header):
            problem = load_problem(self._topic, record.key, record.value)
            if problem:
                self._unloadable = True
                self._findings.damaged(
                    self._directory,
                    f"the record at offset {record.offset} cannot be read: {problem}",
                    "its coordinator does not load; it may be of a later version, or of Apache"
                    " Kafka",
                )
                return

    def _by_compaction(self, at: int, base_offset: int) -> bool:
        """True if the next start accepts a gap before a segment because compaction may have left it
        (L-32)."""
        expected = self._expected
        unknown = expected.recovery_point is None or not expected.gaps_known
        if unknown or expected.clean or expected.live:
            return expected.compacted
        return expected.compacted and (
            base_offset <= (expected.recovery_point or 0)
            or (
                has_snapshot_behind(self._files, self._directory, base_offset)
                and not has_lost_its_end(
                    self._files,
                    self._directory,
                    self._there.bases[at - 1],
                    self._segment_bytes,
                    base_offset,
                )
            )
        )

    def _check_seam(self, at: int, base_offset: int) -> None:
        """Report a segment that does not begin at the offset at which the segment before it
        ends."""
        if not at or base_offset == self._next_offset:
            return
        missing = base_offset > self._next_offset
        if (missing and self._by_compaction(at, base_offset)) or not self._sound:
            self._sound = True
            return
        problem = f"it begins at offset {base_offset}, those before it end at {self._next_offset}"
        path = self._there.path(base_offset, FileKind.SEGMENT)
        if self._scanned(at) and at > self._first_scanned:
            self._bad(at, Damage(path, 0, self._next_offset, problem, False))
            return
        self._findings.damaged(
            path,
            problem,
            "records are lost, unless this topic was compacted once: look into your backup"
            if missing
            else "it does not belong here: restore the directory from a backup",
        )

    def _bad(self, at: int, damage: Damage) -> None:
        self._replay.exact = self._sound = False
        where = f"byte {damage.position}: {damage.problem}"
        last = at == len(self._there.bases) - 1
        if self._scanned(at):
            if self._cut is None:
                self._cut = damage
        elif last and damage.torn:
            self._findings.damaged(
                damage.path,
                where,
                f"the next start cuts the log here; what was acknowledged from offset {damage.offset}"
                " on is lost: restore a backup if you want it back",
            )
        else:
            self._findings.damaged(damage.path, where, _UNREADABLE)

    def _report_cut(self) -> None:
        cut = self._cut
        if cut is None:
            return
        flushed = cut.offset < (self._expected.recovery_point or 0)
        where = f"byte {cut.position}: {cut.problem}"
        if self._expected.live and not self._behind_cut:
            self._findings.note(cut.path, where, "the broker may be writing it just now")
        elif self._behind_cut or flushed:
            self._findings.damaged(
                cut.path,
                where,
                f"the next start cuts the log here, at offset {cut.offset}, with {self._behind_cut}"
                " sound batches after it: copy the directory first if you want to save them",
            )
        else:
            self._findings.recoverable(
                cut.path,
                where,
                f"the next start cuts the log here, at offset {cut.offset}; nothing that was flushed"
                " is after it",
            )
        self._next_offset = cut.offset

    def _note_odd_timestamps(self) -> None:
        if self._odd_timestamps:
            self._findings.note(
                self._directory,
                f"{self._odd_timestamps} batches claim another largest timestamp than their records"
                " have",
                "their producers sent them so; a search by time may miss them",
            )

    # ---- producers

    def _use_snapshot(self, at: int, base_offset: int) -> None:
        """Compare the producer snapshot at the start of a segment with the replayed state, and
        continue from the snapshot if the state is not exact."""
        if self._scanned(at) and at > self._first_scanned and not self._expected.live:
            return  # The next start writes another snapshot.
        if base_offset not in self._there.snapshots:
            if not at and not base_offset:
                self._replay.begin_empty()
            return
        content = self._compare_snapshot(base_offset)
        if content is not None and not self._replay.exact:
            self._replay.begin_at(content, base_offset)

    def _compare_snapshot(self, offset: int) -> bytes | None:
        """Compare a snapshot with the replayed state; returns its content if it is undamaged."""
        path = self._there.path(offset, FileKind.PRODUCER_SNAPSHOT)
        file = self._files.open(path)
        try:
            content = file.read_at(0, file.size())
        finally:
            file.close()
        try:
            difference = self._replay.differences(content, offset)
        except CorruptProducerSnapshot as problem:
            self._findings.recoverable(
                path,
                str(problem),
                "the broker does without it: it takes an older one, and reads the batches after it",
            )
            return None
        if difference and self._replay.exact and not self._expected.compacted:
            self._findings.damaged(path, difference, _REMOVE_SNAPSHOT)
            self._replay.exact = False
        return content

    def _check_end_snapshot(self, bases: list[int]) -> None:
        """Check the producer snapshot that a clean stop writes at the end of the log."""
        if not bases or not self._sound:
            return
        end = self._next_offset
        if end in self._there.snapshots and end not in bases[:-1]:
            self._compare_snapshot(end)
        elif self._expected.clean and not self._expected.live and end not in self._there.snapshots:
            path = self._there.path(end, FileKind.PRODUCER_SNAPSHOT)
            self._findings.recoverable(path, "is missing", _COMPUTED_AGAIN)

    # ---- bounds

    def _check_bounds(self, bases: list[int]) -> None:
        expected, end = self._expected, self._next_offset
        if not bases:
            self._no_segments()
        elif expected.live or not self._sound or self._cut is not None:
            return
        elif expected.clean:
            self._check_clean_end(end)
            if expected.log_start_offset is not None and expected.log_start_offset < bases[0]:
                self._findings.damaged(
                    self._directory,
                    f"it begins at offset {bases[0]}, and began at {expected.log_start_offset} when"
                    " the broker was stopped",
                    "segments are missing: restore them from a backup",
                )
        elif expected.recovery_point is not None and expected.recovery_point > end:
            self._findings.damaged(
                self._directory,
                f"it ends at offset {end}, but was flushed up to {expected.recovery_point}",
                "records are lost: restore a backup if you want them back",
            )
        if bases and expected.log_start_offset is not None and expected.log_start_offset > end:
            self._findings.recoverable(
                self._directory,
                f"it ends at offset {end}, before its start {expected.log_start_offset}",
                f"the next start removes it, and begins at {expected.log_start_offset}",
            )

    def _check_clean_end(self, end: int) -> None:
        left = self._expected.log_end_offset
        if left is None or left == end:
            return
        if end < left:
            self._findings.damaged(
                self._directory,
                f"it ends at offset {end}, and ended at {left} when the broker was stopped",
                "records are lost: restore a backup if you want them back",
            )
        else:
            self._findings.recoverable(
                self._directory,
                f"it goes on to offset {end}, and ended at {left} when the broker was stopped",
                "the next start reads its last segment again",
            )

    def _no_segments(self) -> None:
        expected = self._expected
        known_end = max(expected.log_end_offset or 0, expected.recovery_point or 0)
        if known_end > (expected.log_start_offset or 0):
            self._findings.damaged(
                self._directory,
                f"it has no segment, but offsets up to {known_end}",
                "records are lost: restore a backup if you want them back",
            )
        else:
            self._findings.recoverable(
                self._directory, "it has no segment", "the next start makes one"
            )
