"""Scans of one segment file, batch after batch, with checks that detect a damaged file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from odradek_broker.platform.seams import File
from odradek_broker.storage.index import RELATIVE_OFFSET_MAX
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchHeader, read_header_alone
from odradek_protocol.records.layout import HEADER_BYTES, LOG_OVERHEAD_BYTES, PACKED_EXTENT

_unpack_extent = PACKED_EXTENT.unpack_from
_WALK_BLOCK_BYTES = 4096
_READ_CHUNK_BYTES = 1024 * 1024


class SegmentCorrupt(Exception):
    """The bytes where a batch should start are not a batch, or an index does not fit its
    segment."""


class BatchAt(NamedTuple):
    """The position and offsets of a batch, from its header."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int


class ScannedSegment(Protocol):
    """The segment that is scanned."""

    path: str
    base_offset: int
    size_bytes: int

    @property
    def file(self) -> File:
        """The handle of its `.log` file. Raises OSError."""
        ...


def walk_batches(segment: ScannedSegment, position: int) -> Iterator[BatchAt]:
    """The extent of each batch from a batch start to the end; only headers are read. Offsets must
    ascend: this is checked because checksums do not cover them. Raises SegmentCorrupt, OSError."""
    block, block_start = b"", position
    end = segment.size_bytes
    least_offset = segment.base_offset
    if position < 0:
        raise SegmentCorrupt(f"{segment.path} has no byte {position}")
    while position < end:
        at = position - block_start
        if at + HEADER_BYTES > len(block):
            size = min(_WALK_BLOCK_BYTES, end - position)
            block, block_start, at = segment.file.read_at(position, size), position, 0
            if len(block) < HEADER_BYTES:
                raise SegmentCorrupt(f"{segment.path} ends inside a batch at byte {position}")
        base_offset, length, last_delta, max_timestamp = _unpack_extent(block, at)
        size_bytes = length + LOG_OVERHEAD_BYTES
        if (
            size_bytes < HEADER_BYTES
            or size_bytes > end - position
            or base_offset < least_offset
            or last_delta < 0
            or base_offset + last_delta - segment.base_offset > RELATIVE_OFFSET_MAX
        ):
            raise SegmentCorrupt(f"{segment.path} has no batch at byte {position}")
        last_offset = base_offset + last_delta
        yield BatchAt(position, size_bytes, base_offset, last_offset, max_timestamp)
        least_offset = last_offset + 1
        position += size_bytes


class SegmentScan:
    """Reads a segment file batch by batch. A read of the file returns a megabyte, or a whole batch
    if the batch is larger.

    If the file ends inside a batch, `grow` is called with the position where the batch ends, and
    may raise the segment's `size_bytes` if the file is still being written.
    """

    __slots__ = ("_chunk", "_chunk_at", "_grow", "_segment")

    def __init__(
        self, segment: ScannedSegment, grow: Callable[[int], None] = lambda _: None
    ) -> None:
        self._segment = segment
        self._grow = grow
        self._chunk = memoryview(b"")
        self._chunk_at = 0

    def header(self, position: int) -> BatchHeader:
        """The header of the whole batch at `position`. Raises BatchError, SegmentCorrupt if there
        is none; raises OSError."""
        at = position - self._chunk_at
        if at < 0 or at + HEADER_BYTES > len(self._chunk):
            self._need(position, HEADER_BYTES, "the header of a batch")
            self._read_chunk(position, HEADER_BYTES)
            at = 0
        header = read_header_alone(self._chunk, at)
        if header.last_offset_delta < 0:
            raise SegmentCorrupt(f"a batch with last offset delta {header.last_offset_delta}")
        if position + header.size_bytes > self._segment.size_bytes:
            self._need(position, header.size_bytes, "a batch")
        return header

    def _need(self, position: int, wanted_bytes: int, what: str) -> None:
        if position + wanted_bytes > self._segment.size_bytes:
            self._grow(position + wanted_bytes)
        remaining_bytes = self._segment.size_bytes - position
        if wanted_bytes > remaining_bytes:
            raise SegmentCorrupt(
                f"{what} of {wanted_bytes} bytes, of which {remaining_bytes} are there"
            )

    def data(self, position: int, size_bytes: int) -> memoryview:
        """The bytes at `position`. Raises SegmentCorrupt if the file is shorter than it was;
        raises OSError."""
        at = position - self._chunk_at
        if at < 0 or at + size_bytes > len(self._chunk):
            self._read_chunk(position, size_bytes)
            at = 0
        return self._chunk[at : at + size_bytes]

    def _read_chunk(self, position: int, at_least_bytes: int) -> None:
        segment = self._segment
        wanted = min(max(_READ_CHUNK_BYTES, at_least_bytes), segment.size_bytes - position)
        self._chunk = memoryview(segment.file.read_at(position, wanted))
        self._chunk_at = position
        if len(self._chunk) < wanted:
            raise SegmentCorrupt(f"{segment.path} is shorter than its {segment.size_bytes} bytes")


def read_batches(
    segment: ScannedSegment, position: int, least_offset: int = 0
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, the batch) of each whole batch from `position` to the end.

    Offsets must be at least `least_offset`, and ascend; the caller compares checksums. At most a
    megabyte is in memory, or a single batch that is larger. Raises BatchError, SegmentCorrupt,
    OSError.
    """
    scan = SegmentScan(segment)
    next_offset = max(segment.base_offset, least_offset)
    while position < segment.size_bytes:
        header = scan.header(position)
        if header.base_offset < next_offset:
            raise SegmentCorrupt(
                f"a batch with offsets {header.base_offset} to {header.last_offset}, where"
                f" {next_offset} or more is expected"
            )
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            raise SegmentCorrupt(f"a batch with offset {header.last_offset}, too far from the base")
        yield position, header, scan.data(position, header.size_bytes)
        next_offset = header.next_offset
        position += header.size_bytes
