"""Reads over the segments of one log: by offset (R-14..R-16, F-06) and by time (L-15).

`segments` ascend by offset. The caller gives the bounds of what may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from odradek_broker.storage.aborted_transactions import AbortedTransactions
from odradek_broker.storage.errors import (
    IndexesBeingRebuilt,
    LogCorrupt,
    SearchTakesLong,
    StorageError,
)
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.segment import Segment, SegmentList
from odradek_broker.storage.segment_scanner import SegmentCorrupt, read_batches, walk_batches
from odradek_broker.storage.transaction_index import TransactionIndex
from odradek_broker.storage.validation import AT_ONCE_BYTES
from odradek_protocol.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    DecompressionLimitExceeded,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import (
    BatchError,
    BatchHeader,
    BodyNotDecompressed,
    Buffer,
    CorruptBatch,
    read_header_alone,
)
from odradek_protocol.records.layout import HEADER_BYTES
from odradek_protocol.records.record import inflated_body, parse_records, split_records
from odradek_protocol.records.validation import MAX_INT64, MIN_INT64

T = TypeVar("T")
_OffsetAndTime = tuple[int, int]
_NO_BOUND = 1 << 63
#: The records that searches for timestamps have found in batches; see SearchTakesLong.
Known = dict[Hashable, _OffsetAndTime | None]
#: The most records that are searched on the event loop, some milliseconds.
_SEARCHED_AT_ONCE = 10_000
#: The limit of batches that a cheap lookup may walk over.
_CHEAP_BATCHES = 500


class _Wanted(NamedTuple):
    """The first record of a batch from `first_offset` on, and before `end_offset`, with a timestamp
    of at least `at_least_ms`. None: with the largest timestamp of those."""

    first_offset: int
    end_offset: int
    at_least_ms: int | None

    def find(
        self,
        batch: Buffer,
        header: BatchHeader,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> _OffsetAndTime | None:
        """(offset, timestamp) of the record in a batch at the beginning of `batch`. Raises
        BatchError."""
        body = inflated_body(batch, header, max_decompressed_bytes)
        append_time_ms = header.max_timestamp if header.is_log_append_time else None
        best: _OffsetAndTime | None = None
        for part, count in split_records(body, header.record_count):
            parsed = parse_records(part, count)
            for delta, since_ms in zip(parsed.offset_deltas, parsed.timestamp_deltas, strict=True):
                offset = header.base_offset + delta
                if not self.first_offset <= offset < self.end_offset:
                    continue
                time = (
                    header.base_timestamp + since_ms if append_time_ms is None else append_time_ms
                )
                if self.at_least_ms is None:
                    if best is None or time > best[1]:
                        best = offset, time
                elif time >= self.at_least_ms:
                    best = offset, time
                    break
            if best is not None and self.at_least_ms is not None:
                break
        if best is not None and not MIN_INT64 <= best[1] <= MAX_INT64:
            raise CorruptBatch(f"the record at offset {best[0]} has the timestamp {best[1]}")
        return best


class BatchInLog(NamedTuple):
    """A batch of a segment, of which only the header was read."""

    segment: Segment
    position: int
    header: BatchHeader


class LogReader:
    """Reads of one log whose files are open, within the caller's bounds.

    Every method raises LogCorrupt, IndexesBeingRebuilt, and for an OSError the result of `failed`.
    """

    __slots__ = ("_aborted_transactions", "_failed", "_handles", "_segments")

    def __init__(
        self,
        segments: SegmentList,
        aborted_transactions: AbortedTransactions,
        handles: HandleCache,
        failed: Callable[[str, OSError], StorageError],
    ) -> None:
        self._segments = segments
        self._aborted_transactions = aborted_transactions
        self._handles = handles
        self._failed = failed

    def read(self, offset: int, max_bytes: int, upper_bound: int, *, minimum_one: bool) -> bytes:
        """Whole batches of one segment, from the one that holds `offset` or follows it (R-16)."""
        try:
            return _read_whole_batches(self._segments, offset, max_bytes, upper_bound, minimum_one)
        except OSError as problem:
            raise self._failed("reading", problem) from problem

    def count_bytes(self, offset: int, upper_bound: int) -> int:
        """Bytes from the batch that holds `offset` to the bound (F-04)."""
        try:
            return _count_bytes(self._segments, offset, upper_bound)
        except OSError as problem:
            raise self._failed("reading", problem) from problem

    def first_batch_bytes(self, offset: int, upper_bound: int) -> int:
        """Bytes of the batch that holds `offset` or follows it; 0 if there is none below the bound
        (F-04)."""
        try:
            return _first_batch_bytes(self._segments, offset, upper_bound)
        except OSError as problem:
            raise self._failed("reading", problem) from problem

    def data_batch_at(self, offset: int, upper_bound: int) -> BatchInLog | None:
        """The batch with the first record for consumers at or after `offset`; None if there is none
        below the bound. Nothing is loaded, rebuilt or scanned. Raises StorageError if finding the
        batch would take much work."""
        try:
            return _data_batch_at(self._segments, offset, upper_bound)
        except OSError as problem:
            raise self._failed("reading", problem) from problem
        except (SegmentCorrupt, BatchError) as problem:
            raise LogCorrupt(str(problem)) from problem

    def aborted_transactions(
        self,
        start: int,
        end: int,
        fill: Callable[[Segment, Sequence[Segment], TransactionIndex], None],
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions between the offsets (F-09).
        `fill` rebuilds an index that does not match its segment."""
        segments = self._segments
        try:
            return self._aborted_transactions.search(
                segments.starting_at(start),
                start,
                end,
                segments.all,
                fill,
                self._handles.background,
            )
        except OSError as problem:
            raise self._failed("reading", problem) from problem

    def require_transaction_indexes(
        self, fill: Callable[[Segment, Sequence[Segment], TransactionIndex], None]
    ) -> None:
        """Check that the transaction index of each segment is complete. Raises IndexesBeingRebuilt,
        LogCorrupt."""
        try:
            self._aborted_transactions.require(self._segments.all, fill, self._handles.background)
        except OSError as problem:
            raise self._failed("reading", problem) from problem

    def find_timestamp(
        self, timestamp: int, log_start_offset: int, upper_bound: int, known: Known | None = None
    ) -> _OffsetAndTime | None:
        """(offset, timestamp) of the first record with a timestamp of at least `timestamp`
        (L-15). Raises SearchTakesLong, unless `known` is None."""
        try:
            return _find_timestamp(self._segments, timestamp, log_start_offset, upper_bound, known)
        except OSError as problem:
            raise self._failed("reading", problem) from problem

    def latest_timestamp(
        self, log_start_offset: int, upper_bound: int, known: Known | None = None
    ) -> _OffsetAndTime | None:
        """(offset, timestamp) of the record with the largest timestamp, for ListOffsets -3. Raises
        SearchTakesLong, unless `known` is None."""
        try:
            return _latest_timestamp(self._segments, log_start_offset, upper_bound, known)
        except OSError as problem:
            raise self._failed("reading", problem) from problem


def with_rebuild(segment: Segment, use: Callable[[], T]) -> T:
    """Read from a segment; if its index is wrong, rebuild the index once, and try again (L-33).

    Raises LogCorrupt if the segment itself is damaged; IndexesBeingRebuilt, OSError.
    """
    try:
        try:
            return use()
        except SegmentCorrupt:
            if segment.indexes.damage:
                raise
            if not segment.indexes.repair():
                raise IndexesBeingRebuilt(segment.path) from None
            return use()
    except SegmentCorrupt as problem:
        # Rebuilt indexes would lead to the same damaged bytes.
        segment.indexes.damage = segment.indexes.damage or str(problem)
        raise LogCorrupt(str(problem)) from problem
    except BatchError as problem:
        raise LogCorrupt(str(problem)) from problem


def _read_whole_batches(
    segments: SegmentList, offset: int, max_bytes: int, upper_bound: int, minimum_one: bool
) -> bytes:
    for segment in segments.starting_at(offset):
        if segment.base_offset >= upper_bound:
            break
        try:
            data = _read_segment(segment, offset, max_bytes, upper_bound, minimum_one)
        except SegmentCorrupt:
            data = with_rebuild(
                segment,
                lambda segment=segment: _read_segment(  # type: ignore[misc]
                    segment, offset, max_bytes, upper_bound, minimum_one
                ),
            )
        if data is not None:
            return data
    return b""


def _read_segment(
    segment: Segment, offset: int, max_bytes: int, upper_bound: int, minimum_one: bool
) -> bytes | None:
    """Whole batches of one segment; None if the segment has no batch at or after `offset`, because
    compaction has removed its end."""
    start = segment.indexes.position_of(offset)
    if start >= segment.size_bytes:
        return None
    limit = segment.indexes.position_of(upper_bound)
    segment.indexes.hint(upper_bound, limit)
    end = segment.indexes.end_position(start, limit, max_bytes, minimum_one=minimum_one)
    if end <= start:
        if limit <= start and offset < upper_bound:
            _check_bound(segment, start, upper_bound)
        return b""
    return segment.read(start, end)


def _check_bound(segment: Segment, position: int, upper_bound: int) -> None:
    """Raise SegmentCorrupt if a batch extends beyond the bound. A bound is always between two
    batches, so such a batch has wrong offsets."""
    batch = next(walk_batches(segment, position))
    if batch.base_offset < upper_bound <= batch.last_offset:
        raise SegmentCorrupt(
            f"{segment.path} has a batch at byte {position} that claims to reach offset"
            f" {batch.last_offset}, after {upper_bound}"
        )


def _count_bytes(segments: SegmentList, offset: int, upper_bound: int) -> int:
    total = 0
    for segment in segments.starting_at(offset):
        if segment.base_offset >= upper_bound:
            break
        total += with_rebuild(
            segment,
            lambda segment=segment: max(  # type: ignore[misc]
                segment.indexes.position_of(upper_bound) - segment.indexes.position_of(offset), 0
            ),
        )
    return total


def _first_batch_bytes(segments: SegmentList, offset: int, upper_bound: int) -> int:
    for segment in segments.starting_at(offset):
        if segment.base_offset >= upper_bound:
            break
        size_bytes = with_rebuild(
            segment,
            lambda segment=segment: _first_in_segment(segment, offset, upper_bound),  # type: ignore[misc]
        )
        if size_bytes:
            return size_bytes
    return 0


def _first_in_segment(segment: Segment, offset: int, upper_bound: int) -> int:
    start, limit = segment.indexes.position_of(offset), segment.indexes.position_of(upper_bound)
    if start >= limit:
        return 0
    return segment.indexes.end_position(start, limit, 0, minimum_one=True) - start


def _data_batch_at(segments: SegmentList, offset: int, upper_bound: int) -> BatchInLog | None:
    steps_left = _CHEAP_BATCHES
    for segment in segments.starting_at(offset):
        if segment.base_offset >= upper_bound:
            break
        position = segment.indexes.seek(offset, steps_left)
        while position is not None and position < segment.size_bytes:
            header = read_header_alone(segment.file.read_at(position, HEADER_BYTES))
            if header.base_offset >= upper_bound:
                return None
            if header.record_count and not header.is_control:
                return BatchInLog(segment, position, header)
            position += header.size_bytes
            steps_left -= 1
            if not steps_left:
                position = None
        if position is None:
            raise StorageError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{segment.path}: offset {offset} is too far from the next entry of the index",
            )
    return None


def _find_timestamp(
    segments: Iterable[Segment],
    timestamp: int,
    log_start_offset: int,
    upper_bound: int,
    known: Known | None,
) -> _OffsetAndTime | None:
    for segment in segments:
        if segment.base_offset >= upper_bound:
            break
        found = with_rebuild(
            segment,
            lambda segment=segment: _find_in_segment(  # type: ignore[misc]
                segment, timestamp, log_start_offset, known
            ),
        )
        if found is not None:
            return found if found[0] < upper_bound else None
    return None


def _find_in_segment(
    segment: Segment, timestamp: int, log_start_offset: int, known: Known | None
) -> _OffsetAndTime | None:
    if segment.indexes.largest_timestamp[0] < timestamp:
        return None
    for batch in segment.indexes.walk_to_time(timestamp):
        if batch.max_timestamp < timestamp or batch.last_offset < log_start_offset:
            continue
        wanted = _Wanted(log_start_offset, _NO_BOUND, timestamp)
        found = _find_record(segment, batch.position, wanted, known)
        if found is not None:
            return found
    return None


def _latest_timestamp(
    segments: Iterable[Segment], log_start_offset: int, upper_bound: int, known: Known | None
) -> _OffsetAndTime | None:
    """The first record with the largest timestamp; None if there is none in the bounds."""
    best: tuple[int, int, Segment] | None = None
    for segment in segments:
        if not segment.size_bytes or segment.base_offset >= upper_bound:
            continue
        if segment.next_offset <= log_start_offset:
            continue
        timestamp, last_offset = with_rebuild(
            segment,
            lambda segment=segment: _largest_in_segment(  # type: ignore[misc]
                segment, log_start_offset, upper_bound, known
            ),
        )
        if best is None or timestamp > best[0]:
            best = timestamp, last_offset, segment
    if best is None:
        return None
    largest, last_offset, chosen = best
    # If no record has a timestamp, the first record has the largest one, -1.
    holder = max(last_offset, log_start_offset)
    wanted = _Wanted(log_start_offset, upper_bound, largest)
    found = with_rebuild(
        chosen,
        lambda: _find_record(chosen, chosen.indexes.position_of(holder), wanted, known),
    )
    # The header of a batch may claim a timestamp that none of its records has.
    return found if found is not None and found[1] == largest else None


def _largest_in_segment(
    segment: Segment, log_start_offset: int, upper_bound: int, known: Known | None
) -> tuple[int, int]:
    """The largest timestamp in the bounds, -1 if there is none, and the last offset of the first
    batch that has it. Batches are read only if the batch with the segment's largest timestamp may
    begin below the log start.
    """
    largest = segment.indexes.largest_timestamp_below(upper_bound)
    if log_start_offset <= segment.base_offset:
        return largest
    holder = next(walk_batches(segment, segment.indexes.position_of(largest[1])), None)
    if holder is not None and holder.base_offset >= log_start_offset:
        return largest
    timestamp, last_offset = -1, segment.base_offset
    for batch in walk_batches(segment, segment.indexes.position_of(log_start_offset)):
        if batch.last_offset >= upper_bound:
            break
        time = batch.max_timestamp
        if batch.base_offset < log_start_offset:
            wanted = _Wanted(log_start_offset, _NO_BOUND, None)
            found = _find_record(segment, batch.position, wanted, known)
            time = -1 if found is None else found[1]
        if time > timestamp:
            timestamp, last_offset = time, batch.last_offset
    return timestamp, last_offset


def _find_record(
    segment: Segment, position: int, wanted: _Wanted, known: Known | None
) -> _OffsetAndTime | None:
    """The record of one batch. The batch is decompressed (D6 allows that here: time lookups are
    rare, and their result is a record, not a batch)."""
    for _, header, batch in read_batches(segment, position):
        if known is None:
            return wanted.find(batch, header)
        key = segment.base_offset, header.base_offset, header.crc, wanted
        if key in known:
            return known[key]
        body_bytes = header.size_bytes - HEADER_BYTES
        if header.record_count <= _SEARCHED_AT_ONCE and body_bytes <= AT_ONCE_BYTES:
            try:
                return wanted.find(batch, header, AT_ONCE_BYTES)
            except BodyNotDecompressed as problem:
                if not isinstance(problem.__cause__, DecompressionLimitExceeded):
                    raise
        raise SearchTakesLong(key, partial(_find_in_copy, wanted, bytes(batch), header))
    return None


def _find_in_copy(wanted: _Wanted, batch: bytes, header: BatchHeader) -> _OffsetAndTime | None:
    try:
        return wanted.find(batch, header)
    except BatchError as problem:
        raise LogCorrupt(str(problem)) from problem
