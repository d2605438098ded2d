"""The check of a segment: its batches, their records, and its indexes (L-01..L-04, R-01..R-05)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek_broker.platform.seams import File, Files
from odradek_broker.storage.transaction_index import AbortedTxn
from odradek_log_tools.dump import ABORTED_ENTRY, OFFSET_ENTRY, TIME_ENTRY, entries
from odradek_log_tools.file_names import FileKind
from odradek_log_tools.segment_file import Damaged, SegmentBatch, SegmentFile
from odradek_log_tools.verify.findings import Findings
from odradek_log_tools.verify.indexes import OffsetIndexCheck, TimeIndexCheck
from odradek_log_tools.verify.partition_files import PartitionFiles
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.records.batch import BatchError
from odradek_protocol.records.record import read_columns

#: A segment of more than this size certainly has an entry in its offset index.
_SURELY_INDEXED_BYTES = 64 * 1024
_ANEW = "the broker creates it again"
_REMOVE_IT = "remove it while the broker is stopped, which then creates it again"


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged position of a segment. `offset`: the first offset whose record is missing."""

    path: str
    position: int
    offset: int
    problem: str
    torn: bool
    """The rest of the file cannot be read."""


class SegmentCheck:
    """The check of the segment `base_offset`. The caller iterates over `batches`, and then calls
    `finish`.

    `derived`: true to check the indexes; `complete`: true if the indexes must be complete. `gaps`:
    true if compaction may have left gaps. `bad` is called with every damaged position.
    """

    def __init__(
        self,
        files: Files,
        partition: PartitionFiles,
        base_offset: int,
        findings: Findings,
        *,
        derived: bool,
        complete: bool,
        gaps: bool,
        bad: Callable[[Damage], None],
        wait: Callable[[], None],
    ) -> None:
        self._files = files
        self._partition = partition
        self._base_offset = base_offset
        self._findings = findings
        self._gaps = gaps
        self._bad = bad
        self._wait = wait
        self.path = partition.path(base_offset, FileKind.SEGMENT)
        self.next_offset = base_offset
        self.size_bytes = 0
        self.sound = True
        self.odd_timestamps = 0
        self._opened: list[File] = []
        self._derived, self._complete = derived, complete
        self._indexes: list[OffsetIndexCheck | TimeIndexCheck] = []

    def batches(self) -> Iterator[SegmentBatch]:
        """The batches whose checksum is right, and whose offsets follow those of the batches
        before. Raises OSError."""
        file = self._open(self.path)
        segment = SegmentFile(file, self._wait)
        self._open_indexes(segment.size_bytes)
        self.size_bytes = segment.size_bytes
        try:
            for batch in segment.batches():
                for index in self._indexes:
                    index.batch(batch.position, batch.header)
                if self._follows(batch):
                    yield batch
        except Damaged as damage:
            self._report(damage.position, self.next_offset, damage.problem, torn=True)
        self.size_bytes = segment.size_bytes

    def _report(self, position: int, offset: int, problem: str, *, torn: bool = False) -> None:
        self.sound = False
        self._bad(Damage(self.path, position, offset, problem, torn))

    def _follows(self, batch: SegmentBatch) -> bool:
        header, expected = batch.header, self.next_offset
        if header.base_offset < expected:
            self._report(
                batch.position,
                expected,
                f"a batch with offsets {header.base_offset} to {header.last_offset}, where"
                f" {expected} is next",
            )
            return False
        if header.base_offset > expected and not self._gaps and self.sound:
            self._findings.damaged(
                self.path,
                f"byte {batch.position}: offsets {expected} to {header.base_offset - 1} are missing",
                "records are lost, unless this topic was compacted once: look into your backup",
            )
        self.next_offset = header.next_offset
        if batch.problem:
            self._report(batch.position, header.base_offset, batch.problem)
            return False
        self._check_records(batch)
        return True

    def _check_records(self, batch: SegmentBatch) -> None:
        header = batch.header
        if batch.data is None:
            self._findings.note(
                self.path,
                f"byte {batch.position}: a batch of {header.size_bytes} bytes",
                "its checksum is right; its records were not opened",
            )
            return
        try:
            columns = read_columns(batch.data, 0, header)
        except BatchError as error:
            self._unreadable(batch, str(error))
            return
        offsets = columns.offsets
        # A producer may send a batch in which offsets repeat or decrease, as in Kafka.
        if len(offsets) and (
            min(offsets) < header.base_offset
            or max(offsets) > header.last_offset
            or not (self._gaps or len(offsets) == header.last_offset_delta + 1)
        ):
            self._unreadable(batch, f"its records have offsets {offsets[0]} to {offsets[-1]}")
        elif len(offsets) and max(columns.timestamps) != header.max_timestamp:
            self.odd_timestamps += 1

    def _unreadable(self, batch: SegmentBatch, problem: str) -> None:
        header = batch.header
        self._findings.damaged(
            self.path,
            f"byte {batch.position}: the batch of offsets {header.base_offset} to"
            f" {header.last_offset} has the right checksum, but {problem}",
            "its producer sent it so; consumers cannot read it, and have to be moved behind it",
        )

    # ---- indexes

    def _open(self, path: str) -> File:
        file = self._files.open(path)
        self._opened.append(file)
        return file

    def _open_indexes(self, log_bytes: int) -> None:
        if not self._derived or not log_bytes:
            return
        file = self._index_file(FileKind.OFFSET_INDEX, OFFSET_ENTRY.size)
        if file is not None:
            if not file.size() and log_bytes > _SURELY_INDEXED_BYTES:
                self._made_anew(FileKind.OFFSET_INDEX, "is empty")
            problem = self._index_problem(FileKind.OFFSET_INDEX)
            self._indexes.append(OffsetIndexCheck(file, self._base_offset, problem))
        file = self._index_file(FileKind.TIME_INDEX, TIME_ENTRY.size)
        if file is not None:
            if not file.size():
                self._made_anew(FileKind.TIME_INDEX, "is empty")
                return
            problem = self._index_problem(FileKind.TIME_INDEX)
            self._indexes.append(
                TimeIndexCheck(file, self._base_offset, problem, complete=self._complete)
            )

    def _index_file(self, kind: FileKind, entry_bytes: int) -> File | None:
        """The index file, if the broker would read it."""
        if not self._partition.has(self._base_offset, kind):
            self._made_anew(kind, "is missing")
            return None
        file = self._open(self._partition.path(self._base_offset, kind))
        if file.size() % entry_bytes:
            self._made_anew(kind, f"has {file.size()} bytes, no multiple of {entry_bytes}")
            return None
        return file

    def _made_anew(self, kind: FileKind, problem: str) -> None:
        path = self._partition.path(self._base_offset, kind)
        self._findings.recoverable(path, problem, _ANEW)

    def _index_problem(self, kind: FileKind) -> Callable[[str], None]:
        path = self._partition.path(self._base_offset, kind)
        return lambda problem: self._findings.damaged(path, problem, _REMOVE_IT)

    def finish(self, aborted: list[AbortedTxn] | None) -> None:
        """End the check. `aborted`: the entries that the transaction index must have; None if they
        are unknown."""
        try:
            if self.sound:
                for index in self._indexes:
                    index.finish(self.next_offset)
                if self._derived:
                    self._check_transaction_index(aborted)
        finally:
            for file in self._opened:
                file.close()

    def _check_transaction_index(self, aborted: list[AbortedTxn] | None) -> None:
        kind = FileKind.TRANSACTION_INDEX
        problem = self._index_problem(kind)
        found: list[AbortedTxn] = []
        if self._partition.has(self._base_offset, kind):
            file = self._open(self._partition.path(self._base_offset, kind))
            try:
                for version, *fields in entries(file, ABORTED_ENTRY):
                    if version:
                        raise Damaged(0, f"an entry of version {version}")
                    found.append(AbortedTxn._make(fields))
            except Damaged as damage:
                problem(str(damage))
                return
        if aborted is not None and found != aborted:
            problem(
                f"it has {len(found)} aborted transactions, the batches give {len(aborted)}; the first"
                f" difference is {_first_difference(found, aborted)}"
            )
        for entry in found if aborted is None else ():
            if not (
                0 <= entry.first_offset <= entry.last_offset
                and self._base_offset <= entry.last_offset < self.next_offset
            ):
                problem(f"{entry} does not end in this segment")


def _first_difference(found: list[AbortedTxn], aborted: list[AbortedTxn]) -> str:
    for stored, computed in zip(found, aborted, strict=False):
        if stored != computed:
            return f"{tuple(stored)} where {tuple(computed)} belongs"
    longer, what = (found, "too many") if len(found) > len(aborted) else (aborted, "missing")
    return f"{tuple(longer[min(len(found), len(aborted))])}, which is {what}"
