"""The batches of a segment file, read from outside: the broker may be writing to it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from odradek_broker.platform.seams import File
from odradek_protocol.checksums import crc32c
from odradek_protocol.records.batch import BatchError, BatchHeader, read_header_alone
from odradek_protocol.records.layout import CRC_START, HEADER_BYTES

_CHUNK_BYTES = 1024 * 1024
#: A larger batch is summed in pieces, and its records are not opened.
HELD_BYTES_MAX = 128 * 1024 * 1024
#: How often the end of a file is looked at again that ends inside of a batch.
_LOOKS_MAX = 20


class Damaged(Exception):
    """From here on the file is not what its name says; what was given before is sound."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"byte {position}: {problem}")
        self.position = position
        self.problem = problem


class StoredBatch(NamedTuple):
    """A batch where it lies. `data` are all of its bytes; None if there are too many to be held.
    `problem` is what is wrong with its checksum; empty if nothing is."""

    position: int
    header: BatchHeader
    data: memoryview | None
    problem: str


def no_wait() -> None:
    """Who reads files that nobody writes to need not wait."""


class SegmentFile:
    """Reads the batches of `file` in order, a megabyte or one batch at a time.

    `wait` is called between two looks at a file that ends inside of a batch: the rest may be on
    its way. `size_bytes`: how far it was read, at the end.
    """

    def __init__(self, file: File, wait: Callable[[], None] = no_wait) -> None:
        self._file = file
        self._wait = wait
        self._chunk = memoryview(b"")
        self._chunk_at = 0
        self.size_bytes = file.size()

    def batches(self) -> Iterator[StoredBatch]:
        """All whole batches. Damaged at the first place where none can be; OSError."""
        position = 0
        while position < self.size_bytes:
            self._need(position, HEADER_BYTES, "the header of a batch")
            try:
                header = read_header_alone(self._at(position, HEADER_BYTES))
            except BatchError as error:
                raise Damaged(position, str(error)) from error
            if header.last_offset_delta < 0:
                raise Damaged(
                    position, f"a batch with last offset delta {header.last_offset_delta}"
                )
            self._need(position, header.size_bytes, "a batch")
            yield self._checked(position, header)
            position += header.size_bytes

    def _need(self, position: int, wanted: int, what: str) -> None:
        """Damaged unless so many bytes are there, at last."""
        for _ in range(_LOOKS_MAX):
            if position + wanted <= self.size_bytes:
                return
            self._wait()
            size_bytes = self._file.size()
            if size_bytes == self.size_bytes:
                break
            self.size_bytes = size_bytes
            self._chunk = memoryview(b"")
        if position + wanted > self.size_bytes:
            present = self.size_bytes - position
            raise Damaged(position, f"{what} of {wanted} bytes, of which {present} are there")

    def _at(self, position: int, size_bytes: int) -> memoryview:
        at = position - self._chunk_at
        if at < 0 or at + size_bytes > len(self._chunk):
            wanted = min(max(_CHUNK_BYTES, size_bytes), self.size_bytes - position)
            self._chunk = memoryview(self._file.read_at(position, wanted))
            self._chunk_at, at = position, 0
            if len(self._chunk) < size_bytes:
                raise Damaged(position, "the file was cut while it was read")
        return self._chunk[at : at + size_bytes]

    def _checked(self, position: int, header: BatchHeader) -> StoredBatch:
        data: memoryview | None = None
        if header.size_bytes <= HELD_BYTES_MAX:
            data = self._at(position, header.size_bytes)
            computed = crc32c(data[CRC_START:])
        else:
            computed = self._sum(position + CRC_START, position + header.size_bytes)
        problem = ""
        if computed != header.crc:
            problem = f"checksum is {computed:08x}, stored {header.crc:08x}"
        return StoredBatch(position, header, data, problem)

    def _sum(self, position: int, end: int) -> int:
        computed = 0
        while position < end:
            piece = self._at(position, min(_CHUNK_BYTES, end - position))
            computed = crc32c(piece, computed)
            position += len(piece)
        return computed
