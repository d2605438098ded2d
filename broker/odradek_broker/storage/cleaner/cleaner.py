"""The cleaner: reads the closed segments of a log and writes shorter ones into the same directory
(L-23 to L-28).

The cleaner corresponds to Kafka's Cleaner. It is synchronous and changes none of the files that it
reads, so it may run in any process, and may die at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import cast

from odradek_broker.platform.seams import Files
from odradek_broker.storage.cleaner.batches import BatchFilter
from odradek_broker.storage.cleaner.job import (
    Cleaning,
    CleaningFinished,
    CleaningJob,
    GroupCleaned,
    Throttle,
    unthrottled,
)
from odradek_broker.storage.cleaner.offset_map import OffsetMap
from odradek_broker.storage.cleaner.producers import remove_old_snapshots
from odradek_broker.storage.cleaner.segments import (
    CleanedSegment,
    group_by_size,
    source_segments,
)
from odradek_broker.storage.cleaner.swap import remove_cleaned, write_sources
from odradek_broker.storage.cleaner.transactions import CleanedTransactions
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.segment import Segment, segment_name
from odradek_broker.storage.segment_scanner import read_batches
from odradek_broker.storage.transaction_index import AbortedTxn, TransactionIndex
from odradek_protocol.records.batch import BatchHeader, read_header_alone, verify_crc
from odradek_protocol.records.record import RecordColumns, column_parts

_OPEN_FILES = 4


def clean(job: CleaningJob, files: Files, throttle: Throttle = unthrottled) -> Cleaning:
    """Clean one log; yields the steps. See `Cleaning`.

    A cleaning that is given up leaves files that end in `.cleaned`. The next cleaning of the
    segment or the next start removes them. Raises SegmentCorrupt and BatchError for bytes that
    cannot be read, CorruptTransactionIndex, OSError.
    """
    return _LogCleaning(job, files, throttle).run()


class _LogCleaning:
    """The cleaning of a log."""

    def __init__(self, job: CleaningJob, files: Files, throttle: Throttle) -> None:
        self._job = job
        self._files = files
        self._throttle = throttle
        self._handles = HandleCache(files, limit=_OPEN_FILES)
        self._map = OffsetMap(job.dedupe_buffer_bytes, job.dedupe_load_factor)
        self._bytes_read = self._bytes_kept = 0
        self._records_read = self._records_kept = self._keyless = 0

    def run(self) -> Cleaning:
        segments = source_segments(self._job, self._handles)
        aborted = self._aborted_transactions()
        remove_old_snapshots(
            self._files, self._job.directory, self._job.upper_bound, self._job.producers_known_from
        )
        try:
            self._fill_map(segments, CleanedTransactions(aborted))
            end_offset = max(self._map.latest_offset + 1, self._job.first_dirty_offset)
            wanted = [segment for segment in segments if segment.base_offset < end_offset]
            transactions = CleanedTransactions(aborted)
            batches = BatchFilter(self._job, self._map, transactions)
            for group in group_by_size(self._job, self._files, wanted):
                yield self._clean_group(group, batches)
        finally:
            for segment in segments:
                segment.close()
        yield CleaningFinished(
            end_offset,
            self._bytes_read,
            self._bytes_kept,
            self._records_read,
            self._records_kept,
            self._keyless,
            self._map.used,
        )

    def _aborted_transactions(self) -> list[AbortedTxn]:
        """The aborted transactions that the indexes of all segments name, because the marker of a
        transaction may be in a segment after the cleaned segments. Raises CorruptTransactionIndex,
        OSError."""
        found = []
        bases = [base for base, _ in self._job.segments]
        for base in (*bases, *self._job.later_bases):
            path = f"{self._job.directory}/{segment_name(base)}.txnindex"
            if self._files.exists(path):
                with closing(TransactionIndex(self._files, path)) as index:
                    entries: Iterable[AbortedTxn] = index.entries()
                    found += [
                        entry for entry in entries if entry.first_offset < self._job.upper_bound
                    ]
        return found

    # ---- the first reading: which record of a key is the last

    def _fill_map(self, segments: Sequence[Segment], transactions: CleanedTransactions) -> None:
        """Fill the offset map from the segments until the map is full. The next cleaning continues
        at the offset at which the map was full (L-28)."""
        start = self._job.first_dirty_offset
        ends = [*(segment.base_offset for segment in segments[1:]), self._job.upper_bound]
        for segment, end in zip(segments, ends, strict=True):
            if end <= start:
                continue
            if not self._fill_map_from(segment, start, transactions):
                return
            # An earlier compaction may have removed the last records of the segment, so the last
            # batch may end before the segment does.
            self._map.latest_offset = max(self._map.latest_offset, end - 1)

    def _fill_map_from(
        self, segment: Segment, start: int, transactions: CleanedTransactions
    ) -> bool:
        """Add a segment to the offset map; False if the map is full."""
        offsets = self._map
        for _, header, batch in read_batches(segment, 0):
            self._throttle(header.size_bytes)
            if header.is_control:
                transactions.saw_control(header, batch)
            elif (
                not transactions.saw_data(header)
                and header.last_offset >= start
                and not self._put_batch(header, batch, start)
            ):
                return False
            if header.last_offset >= start:
                offsets.latest_offset = header.last_offset
        return True

    def _put_batch(self, header: BatchHeader, batch: memoryview, start: int) -> bool:
        """Add the records of a batch until the map is full; False if it is full before the end of
        the batch."""
        if self._map.full:
            return False
        verify_crc(batch, 0, header)
        for columns in column_parts(batch, header):
            if self._map.full:
                return False
            self._put(columns, start)
        return True

    def _put(self, columns: RecordColumns, start: int) -> None:
        keys, offsets = columns.keys, columns.offsets
        if not keys:
            return
        if None in keys or offsets[0] < start:
            rows = zip(keys, offsets, strict=True)
            pairs = [(key, offset) for key, offset in rows if key is not None and offset >= start]
            self._map.put_all((key for key, _ in pairs), (offset for _, offset in pairs))
        else:
            self._map.put_all(cast("list[bytes]", keys), offsets)
        self._map.latest_offset = max(self._map.latest_offset, offsets[-1])

    # ---- the second reading: what stays

    def _clean_group(self, group: list[Segment], batches: BatchFilter) -> GroupCleaned:
        sources = tuple(segment.base_offset for segment in group)
        cleaned = CleanedSegment(self._handles, self._job, sources[0])
        try:
            for segment in group:
                self._copy(segment, cleaned, batches)
            cleaned.finish(self._files, self._files.modified_ms(group[-1].path))
            write_sources(self._files, self._job.directory, sources)
            self._files.sync_dir(self._job.directory)
        except Exception:
            remove_cleaned(self._files, self._job.directory, sources[0])
            raise
        finally:
            cleaned.close()
        return GroupCleaned(sources, cleaned.size_bytes)

    def _copy(self, source: Segment, cleaned: CleanedSegment, batches: BatchFilter) -> None:
        for _, header, batch in read_batches(source, 0):
            self._throttle(header.size_bytes)
            verify_crc(batch, 0, header)
            kept = batches.keep(header, batch)
            self._bytes_read += header.size_bytes
            self._records_read += header.record_count
            self._records_kept += kept.records_kept
            self._keyless += kept.keyless
            if kept.aborted is not None:
                cleaned.write_aborted(kept.aborted)
            if kept.batch is not None:
                rewritten = header if kept.batch is batch else read_header_alone(kept.batch)
                cleaned.write(kept.batch, rewritten)
                self._bytes_kept += len(kept.batch)
                self._throttle(len(kept.batch))
