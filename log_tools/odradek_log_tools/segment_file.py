"""The reader of a segment file for `odradek log`. The broker may write to the file at the same
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek_broker.platform.seams import File
from odradek_broker.storage.segment_scanner import SegmentCorrupt, SegmentScan
from odradek_protocol.checksums import crc32c
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchError, BatchHeader
from odradek_protocol.records.layout import CRC_START

_PIECE_BYTES = 1024 * 1024
#: The maximum size of a batch that is read as a whole. The checksum of a larger batch is computed
#: in pieces, and its records are not read.
_BATCH_BYTES_MAX = 128 * 1024 * 1024
#: The maximum number of waits for the rest of a file that ends inside a batch.
_WAITS_MAX = 20


class Damaged(Exception):
    """The error of a file that is damaged from `position` on; batches before it are undamaged."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"byte {position}: {problem}")
        self.position = position
        self.problem = problem


class SegmentBatch(NamedTuple):
    """A batch in a file. `data`: its bytes; None if the batch is larger than _BATCH_BYTES_MAX.
    `problem`: the problem with its checksum, empty if the checksum is right."""

    position: int
    header: BatchHeader
    data: memoryview | None
    problem: str


def no_wait() -> None:
    """Do not wait, because no process writes to the files."""


class SegmentFile:
    """The batches of `file`, in order.

    `wait` is called before the size of a file that ends inside a batch is read again, because the
    rest may still be written. `size_bytes`: the last read size of the file.
    """

    path = "the file"
    base_offset = 0

    def __init__(self, file: File, wait: Callable[[], None] = no_wait) -> None:
        self.file = file
        self.size_bytes = file.size()
        self._wait = wait

    def batches(self) -> Iterator[SegmentBatch]:
        """All whole batches. Raises Damaged at the first position without a whole batch. Also
        raises OSError."""
        scan = SegmentScan(self, self._grow)
        position = 0
        while position < self.size_bytes:
            try:
                batch = self._read(scan, position)
            except (BatchError, SegmentCorrupt) as problem:
                raise Damaged(position, str(problem)) from problem
            yield batch
            position += batch.header.size_bytes

    def _grow(self, wanted_bytes: int) -> None:
        for _ in range(_WAITS_MAX):
            self._wait()
            before, self.size_bytes = self.size_bytes, self.file.size()
            if self.size_bytes == before or self.size_bytes >= wanted_bytes:
                return

    def _read(self, scan: SegmentScan, position: int) -> SegmentBatch:
        header = scan.header(position)
        data: memoryview | None = None
        if header.size_bytes <= _BATCH_BYTES_MAX:
            data = scan.data(position, header.size_bytes)
            computed = crc32c(data[CRC_START:])
        else:
            computed, at, end = 0, position + CRC_START, position + header.size_bytes
            while at < end:
                piece = scan.data(at, min(_PIECE_BYTES, end - at))
                computed = crc32c(piece, computed)
                at += len(piece)
        problem = ""
        if computed != header.crc:
            problem = f"checksum is {computed:08x}, stored {header.crc:08x}"
        return SegmentBatch(position, header, data, problem)
