"""The segments that a cleaner reads and writes, and the grouping of those that become one."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, le

from odradek_broker.platform.seams import Buffer, Files
from odradek_broker.storage.cleaner.job import CleaningJob
from odradek_broker.storage.cleaner.swap import CLEANED
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.index import RELATIVE_OFFSET_MAX
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.segment_scanner import BatchAt
from odradek_broker.storage.transaction_index import AbortedTxn, TransactionIndex
from odradek_protocol.records.batch import BatchHeader

_WRITE_BYTES = 1024 * 1024


def source_segments(job: CleaningJob, handles: HandleCache) -> list[Segment]:
    """The segments of a job, to be read. Raises OSError."""
    segments = []
    for base, size_bytes in job.segments:
        segment = Segment(handles, job.directory, base, created_ms=job.now_ms)
        segment.size_bytes = size_bytes
        segments.append(segment)
    return segments


def group_by_size(
    job: CleaningJob, files: Files, segments: Sequence[Segment]
) -> list[list[Segment]]:
    """Groups of neighbouring segments, each of which becomes one segment. The total size of a
    group, the total size of its indexes, and its range of offsets are within the limits of one
    segment (L-26). Raises OSError."""
    bases = [segment.base_offset for segment in segments]
    limits = (job.segment_bytes, job.segment_index_bytes, job.segment_index_bytes)
    groups: list[list[Segment]] = []
    totals: list[int] = []
    for segment, end in zip(segments, [*bases[1:], job.upper_bound], strict=False):
        sizes = [
            segment.size_bytes,
            _file_bytes(files, segment.path_of("index")),
            _file_bytes(files, segment.path_of("timeindex")),
        ]
        together = list(map(add, totals, sizes))
        # An empty segment has no offsets that would have to fit.
        if (
            groups
            and all(map(le, together, limits))
            and (
                not segment.size_bytes or end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        ):
            groups[-1].append(segment)
            totals = together
        else:
            groups.append([segment])
            totals = sizes
    return groups


def _file_bytes(files: Files, path: str) -> int:
    if not files.exists(path):
        return 0
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()


class CleanedSegment(Segment):
    """The segment that replaces a group: all its files have names that end in `.cleaned`, until it
    is swapped in.

    Files of these names from an earlier attempt are overwritten.
    """

    __slots__ = ("_aborted", "_index_interval_bytes", "_pending", "_pending_bytes")

    def __init__(self, handles: HandleCache, job: CleaningJob, base_offset: int) -> None:
        super().__init__(handles, job.directory, base_offset, created_ms=job.now_ms)
        self._index_interval_bytes = job.index_interval_bytes
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self.create()
        self.indexes.start_rebuild()
        self._aborted = TransactionIndex.create(handles.files, self.path_of("txnindex"))

    def path_of(self, suffix: str) -> str:
        return super().path_of(suffix) + CLEANED

    def write(self, batch: Buffer, header: BatchHeader) -> None:
        """Add a batch with the offsets and the largest timestamp in `header`. Raises OSError."""
        size_bytes = len(batch)
        extent = BatchAt(
            self.size_bytes,
            size_bytes,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        self.indexes.note_scanned(extent, self._index_interval_bytes)
        self.size_bytes += size_bytes
        # The reader's buffer is used again for the next batch.
        self._pending.append(bytes(batch))
        self._pending_bytes += size_bytes
        if self._pending_bytes >= _WRITE_BYTES:
            self._write_pending()

    def write_aborted(self, transaction: AbortedTxn) -> None:
        """Add an aborted transaction that still has records or a marker. Raises OSError."""
        self._aborted.append(transaction)

    def _write_pending(self) -> None:
        if self._pending:
            self.file.append(self._pending)
            self._pending, self._pending_bytes = [], 0

    def finish(self, files: Files, modified_ms: int) -> None:
        """Sync all files of the segment, and give the log file the modification time of the sources
        (L-21). Raises OSError."""
        self._write_pending()
        self.indexes.seal()
        self.file.sync()
        self._aborted.ensure_file()
        self._aborted.sync()
        for suffix in ("index", "timeindex"):
            _sync(files, self.path_of(suffix))
        files.set_modified_ms(self.path, modified_ms)

    def close(self) -> None:
        super().close()
        self._aborted.close()


def _sync(files: Files, path: str) -> None:
    """Sync a file if it exists. An index that could not be written does not exist, and is rebuilt
    when it is needed (L-33)."""
    if files.exists(path):
        file = files.open(path)
        try:
            file.sync()
        finally:
            file.close()
