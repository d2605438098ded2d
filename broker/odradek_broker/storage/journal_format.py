"""The bytes of a commit journal (`journal.py`).

A header block; then parts of equal size, each a sequence of blocks. A block has the bytes that one
write made durable: the ends of some partition logs, as they are in the segment files. Blocks begin
at multiples of `ALIGN_BYTES`, and have ascending numbers: in a part each number is one more than
the one before, so that an old block of an earlier use of the part is not taken for the next block.

`HEADER`, `BLOCK` and `ENTRY` declare the format; equivalent struct code writes and reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import construct as c

from odradek_broker.platform.seams import BLOCK_BYTES, Buffer, File
from odradek_protocol.checksums import crc32c
from odradek_protocol.lazy_tuple import NamedTuple

#: The name of the file in its directory.
JOURNAL = "commit-journal"
JOURNAL_MAGIC = b"ODRJ"
JOURNAL_VERSION = 1
_BLOCK_MAGIC = b"ODRB"
#: The alignment of writes: they begin and end at multiples of it.
ALIGN_BYTES = BLOCK_BYTES
#: The limit of a part: a damaged header must not make a reader allocate more.
PART_BYTES_MAX = 256 * 1024 * 1024

HEADER = c.Struct(
    "magic" / c.Const(JOURNAL_MAGIC),
    "version" / c.Int16ub,
    "incarnation" / c.Bytes(16),
    "part_bytes" / c.Int32ub,
    "crc" / c.Int32ub,
)
"""`crc`: CRC-32C of the fields before it."""

BLOCK = c.Struct(
    "magic" / c.Const(_BLOCK_MAGIC),
    "crc" / c.Int32ub,
    "incarnation" / c.Bytes(16),
    "number" / c.Int64ub,
    "size_bytes" / c.Int32ub,
    "entries" / c.Int32ub,
)
"""`size_bytes`: the size of the block without its padding. `crc`: CRC-32C of the block after this
field."""

ENTRY = c.Struct(
    "topic_id" / c.Bytes(16),
    "partition" / c.Int32sb,
    "segment" / c.Int64sb,
    "position" / c.Int64sb,
    "size_bytes" / c.Int32sb,
)
"""Batches of `size_bytes` at `position` of the segment with the base offset `segment`."""

_HEADER = struct.Struct(">4sH16sII")
_BLOCK = struct.Struct(">4sI16sQII")
_ENTRY = struct.Struct(">16siqqi")
HEADER_BYTES = _HEADER.size
BLOCK_HEADER_BYTES = _BLOCK.size
ENTRY_HEADER_BYTES = _ENTRY.size
_CRC_END = 8


class UnknownJournal(Exception):
    """The file is of a version that this broker does not know."""


class CorruptJournal(Exception):
    """The file is no journal, or its header is damaged."""


class JournalHeader(NamedTuple):
    """The header of the file. `incarnation`: blocks with another incarnation are ignored."""

    incarnation: bytes
    part_bytes: int


class JournalEntry(NamedTuple):
    """Batches as they are in a segment file."""

    topic_id: bytes
    partition: int
    segment: int
    position: int
    batches: Buffer


class JournalBlock(NamedTuple):
    """The entries of one write. `number` counts all blocks in the order of their writes."""

    number: int
    entries: list[tuple[JournalEntry, int]]
    """Each entry with the position in the block where its batches begin."""


def aligned(size_bytes: int) -> int:
    """A size rounded up to a position at which a block may begin."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


def encode_header(header: JournalHeader) -> bytes:
    """The header of a journal, as an aligned block."""
    body = _HEADER.pack(JOURNAL_MAGIC, JOURNAL_VERSION, *header, 0)[:-4]
    return (body + struct.pack(">I", crc32c(body))).ljust(ALIGN_BYTES, b"\0")


def decode_header(content: bytes) -> JournalHeader:
    """The header in the first bytes of a journal. Raises UnknownJournal, CorruptJournal."""
    if len(content) < HEADER_BYTES:
        raise CorruptJournal(f"its header has {len(content)} bytes")
    magic, version, incarnation, part_bytes, crc = _HEADER.unpack_from(content)
    if magic != JOURNAL_MAGIC:
        raise CorruptJournal("it does not begin as one")
    if version > JOURNAL_VERSION:
        raise UnknownJournal(
            f"it has version {version}, and this broker knows versions up to {JOURNAL_VERSION}"
        )
    if crc32c(content[: HEADER_BYTES - 4]) != crc:
        raise CorruptJournal("the checksum of its header is wrong")
    if version != JOURNAL_VERSION or not (
        ALIGN_BYTES <= part_bytes <= PART_BYTES_MAX and part_bytes % ALIGN_BYTES == 0
    ):
        raise CorruptJournal(f"its header names version {version}, parts of {part_bytes} bytes")
    return JournalHeader(incarnation, part_bytes)


def encode_block(incarnation: bytes, number: int, entries: Sequence[JournalEntry]) -> list[Buffer]:
    """The buffers of a block, in their order in the file, without the padding."""
    parts: list[Buffer] = [b""]
    size_bytes = BLOCK_HEADER_BYTES
    for entry in entries:
        length = len(entry.batches)
        parts += (_ENTRY.pack(*entry[:4], length), entry.batches)
        size_bytes += ENTRY_HEADER_BYTES + length
    header = _BLOCK.pack(_BLOCK_MAGIC, 0, incarnation, number, size_bytes, len(entries))
    crc = crc32c(header[_CRC_END:])
    for part in parts:
        crc = crc32c(part, crc)
    parts[0] = header[:4] + struct.pack(">I", crc) + header[_CRC_END:]
    return parts


def decode_block(content: memoryview, incarnation: bytes) -> tuple[JournalBlock, int] | None:
    """The block at the start of `content`, and its size; None if there is no whole block of this
    incarnation."""
    if len(content) < BLOCK_HEADER_BYTES:
        return None
    magic, crc, written_by, number, size_bytes, count = _BLOCK.unpack_from(content)
    if magic != _BLOCK_MAGIC or written_by != incarnation:
        return None
    if not BLOCK_HEADER_BYTES <= size_bytes <= len(content):
        return None
    if crc32c(content[_CRC_END:size_bytes]) != crc:
        return None
    entries = []
    position = BLOCK_HEADER_BYTES
    for _ in range(count):
        if position + ENTRY_HEADER_BYTES > size_bytes:
            return None
        topic_id, partition, segment, at, length = _ENTRY.unpack_from(content, position)
        position += ENTRY_HEADER_BYTES
        if length < 0 or position + length > size_bytes:
            return None
        batches = content[position : position + length]
        entries.append((JournalEntry(topic_id, partition, segment, at, batches), position))
        position += length
    if position != size_bytes:
        return None
    return JournalBlock(number, entries), aligned(size_bytes)


def decode_part(content: memoryview, incarnation: bytes) -> Iterator[tuple[JournalBlock, int]]:
    """The blocks of one part and their positions, up to the first that is missing."""
    position, number = 0, None
    while position < len(content):
        found = decode_block(content[position:], incarnation)
        if found is None or (number is not None and found[0].number != number + 1):
            return
        block, size_bytes = found
        number = block.number
        yield block, position
        position += size_bytes


def journal_parts(file: File, header: JournalHeader) -> list[int]:
    """The positions of the parts that have a block, the oldest first. Raises OSError."""
    starts = []
    for start in range(ALIGN_BYTES, file.size(), header.part_bytes):
        first = next(decode_part(read_part(file, header, start), header.incarnation), None)
        if first is not None:
            starts.append((first[0].number, start))
    return [start for _, start in sorted(starts)]


def read_part(file: File, header: JournalHeader, start: int) -> memoryview:
    """The bytes of a part, as far as the file has them. Raises OSError."""
    return memoryview(file.read_at(start, header.part_bytes))
