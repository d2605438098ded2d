"""The four codecs of record batches, with a limit on the decompressed size.

Compressed bytes come from peers, and one megabyte of them can expand to gigabytes (R-12). So output
buffers never grow beyond `max_bytes`, and an output that does not fit is an error. For snappy, lz4
and zstd an upper bound of the output is first computed from the headers of frames and blocks, so
that a buffer of the right size can be allocated.

| codec  | written                                    | read                                |
|--------|--------------------------------------------|-------------------------------------|
| gzip   | one member                                 | members one after another (R-11)    |
| snappy | xerial blocks of 32 KiB, as Java's (R-10)  | xerial, and raw as other clients do |
| lz4    | one frame, independent 64 KiB blocks: Java | frames of any flags                 |
|        | refuses linked ones                        |                                     |
| zstd   | one frame with the content size            | frames, with or without a size      |

Each function imports the library of the codecs itself: the library takes 2 MB, and many brokers
never compress.
"""

from __future__ import annotations

import mmap
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from struct import error as StructError

Buffer = bytes | bytearray | memoryview

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""The size that one batch may inflate to when the caller has no better limit."""

GZIP_LEVEL = 6
ZSTD_LEVEL = 3


class CompressionError(ValueError):
    """The compressed bytes are damaged, incomplete, or of an unknown kind."""


class DecompressionLimitExceeded(CompressionError):
    """The output would exceed the caller's limit. No buffer above the limit was allocated."""

    def __init__(self, codec: Codec, max_bytes: int) -> None:
        super().__init__(
            f"{codec.name.lower()} data would decompress to more than the limit of {max_bytes} bytes"
        )
        self.max_bytes = max_bytes


class BytesBehind(CompressionError):
    """The error for valid compressed data that is followed by other bytes."""


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of_name(cls, name: str) -> Codec:
        """The codec of a `compression.type` value such as "lz4".

        Raises ValueError with the known names for any other value.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(codec.name.lower() for codec in cls)
            raise ValueError(f"unknown compression {name!r}; known: {known}") from None


def compress(codec: Codec, data: Buffer) -> bytes:
    """`data` compressed as the body of a batch; unchanged with NONE."""
    return _COMPRESSORS[codec](data)


def check_portable(codec: Codec, data: Buffer) -> None:
    """Refuse data that not every client can read: Java reads only one lz4 frame, of independent
    blocks.

    Raises CompressionError, or BytesBehind if other bytes follow the first frame.
    """
    if codec is not Codec.LZ4:
        return
    try:
        view = memoryview(data)
        if _UINT32.unpack_from(view)[0] != _LZ4_MAGIC:
            raise CompressionError("lz4 data that does not begin with a frame")
        if not view[4] & _LZ4_INDEPENDENT:
            raise CompressionError("an lz4 frame of linked blocks, which not every client reads")
        end, _, _ = _lz4_frame(view, 0)
        if end < len(view):
            raise BytesBehind(f"{len(view) - end} bytes behind the lz4 frame")
    except (StructError, IndexError) as error:
        raise CompressionError(f"damaged lz4 data: {error}") from error


def decompress(
    codec: Codec, data: Buffer, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> bytes:
    """The original bytes, as a copy of the result of `inflate`."""
    return bytes(inflate(codec, data, max_bytes))


def inflate(codec: Codec, data: Buffer, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The original bytes, at most `max_bytes`. For zstd, empty input is an empty stream.

    Allocates at most about twice `max_bytes`, whatever the input contains. In a thread, other
    threads run meanwhile: no step of more than a few milliseconds holds the interpreter's lock.
    Raises DecompressionLimitExceeded if there is more output, CompressionError if the input is
    damaged, incomplete or followed by other bytes.
    """
    import cramjam

    try:
        return _DECOMPRESSORS[codec](data, max_bytes)
    except (cramjam.DecompressionError, zlib.error, StructError, IndexError) as error:
        raise CompressionError(f"damaged {codec.name.lower()} data: {error}") from error


# --- none -------------------------------------------------------------------------------------


def _keep(data: Buffer) -> bytes:
    return bytes(data)


def _keep_within(data: Buffer, max_bytes: int) -> Buffer:
    if len(data) > max_bytes:
        raise DecompressionLimitExceeded(Codec.NONE, max_bytes)
    return data


# --- gzip -------------------------------------------------------------------------------------

_GZIP_WINDOW_BITS = 31  # 15 bits of window, plus 16 for a gzip header
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_STEP_BYTES = 64 * 1024
# The library copies the output of a step once more, with the interpreter's lock.
_GZIP_STEP_OUTPUT_BYTES = 1024 * 1024
_GZIP_MAX_MEMBERS = 1024


def _gzip_compress(data: Buffer) -> bytes:
    import cramjam

    return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL))


def _gzip_decompress(data: Buffer, max_bytes: int) -> bytes:
    """Decompress members one after another (R-11). Zero padding after the last member is accepted,
    as in gzip.

    A decompressor copies the rest of its input after each member. So the input is passed in steps,
    and the number of members is limited: thousands of tiny members would take quadratic time.
    """
    view = memoryview(data)
    size = len(view)
    position = 0
    members = 0
    total = 0
    parts: list[bytes] = []
    while position < size:
        if members and not any(view[position:]):
            break
        if members == _GZIP_MAX_MEMBERS:
            raise CompressionError(f"more than {_GZIP_MAX_MEMBERS} gzip members in one batch")
        members += 1
        if members > 1 and view[position : position + 2] != _GZIP_MAGIC:
            raise BytesBehind(f"{size - position} bytes behind the gzip data")
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        pending: Buffer = b""
        full = False
        while not member.eof:
            if not pending and not full:
                if position >= size:
                    raise CompressionError("gzip data ends within a member")
                pending = view[position : position + _GZIP_STEP_BYTES]
                position += len(pending)
            # One byte more than allowed is requested, to distinguish "exactly full" from "too
            # much".
            room_bytes = min(max_bytes - total + 1, _GZIP_STEP_OUTPUT_BYTES)
            part = member.decompress(pending, room_bytes)
            full = len(part) == room_bytes
            total += len(part)
            if total > max_bytes:
                raise DecompressionLimitExceeded(Codec.GZIP, max_bytes)
            parts.append(part)
            pending = member.unconsumed_tail
        position -= len(member.unused_data)
    if not members:
        raise CompressionError("empty gzip data")
    return parts[0] if len(parts) == 1 else b"".join(parts)


#: The limit of blocks and frames of one batch; full blocks have hundreds of megabytes then. Each
#: takes microseconds, and an empty one has three bytes: a megabyte of them took a second.
_PARTS_MAX = 8 * 1024
#: More blocks of snappy, whose full blocks are the smallest, may come if they have so much content.
_PART_BYTES_MIN = 1024


def _check_parts(parts: int, content_bytes: int = 0) -> None:
    if parts > _PARTS_MAX and content_bytes < parts * _PART_BYTES_MIN:
        raise CompressionError(f"more than {_PARTS_MAX} blocks in one batch")


# --- snappy -----------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_HEADER_BYTES = 16
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
_XERIAL_MAGIC_AS_LENGTH = int.from_bytes(_XERIAL_MAGIC[:4], "big", signed=True)
# The densest element of snappy is a copy, in which three bytes stand for 64.
_SNAPPY_MAX_RATIO = 22


def _snappy_compress(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _snappy_block(view, max_bytes, max_bytes)
    size = len(view)
    position = _XERIAL_HEADER_BYTES
    if size < position:
        raise CompressionError("snappy data ends within its xerial header")
    total = 0
    parts: list[bytes] = []
    while position < size:
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        if length == _XERIAL_MAGIC_AS_LENGTH:  # the header of a concatenated stream
            if view[position : position + 8] != _XERIAL_MAGIC:
                raise CompressionError(f"damaged xerial header at byte {position}")
            position += _XERIAL_HEADER_BYTES
            continue
        position += 4
        if not 0 < length <= size - position:
            raise CompressionError(
                f"xerial block of {length} bytes at byte {position}, with {size - position} left"
            )
        part = _snappy_block(view[position : position + length], max_bytes - total, max_bytes)
        position += length
        total += len(part)
        parts.append(part)
        _check_parts(len(parts), total)
    if position > size:
        raise CompressionError("snappy data ends within a xerial header")
    return b"".join(parts)


def _snappy_block(block: memoryview, room_bytes: int, max_bytes: int) -> bytes:
    import cramjam

    claimed_bytes: int = cramjam.snappy.decompress_raw_len(block)
    if claimed_bytes > len(block) * _SNAPPY_MAX_RATIO:
        raise CompressionError(
            f"a snappy block of {len(block)} bytes cannot hold the {claimed_bytes} that it claims"
        )
    if claimed_bytes > room_bytes:
        raise DecompressionLimitExceeded(Codec.SNAPPY, max_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


# --- lz4 --------------------------------------------------------------------------------------

_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES = 64 * 1024
# Magic, flags (version 1, independent blocks, no checksums, no size), 64 KiB blocks, and the header
# checksum of just these flags: a constant, so that no xxHash is needed.
_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_STORED = 0x8000_0000
_LZ4_INDEPENDENT = 0x20
_LZ4_MAX_BLOCK_BYTES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
# Each additional length byte of a match adds 255 bytes; no other element is denser.
_LZ4_MAX_RATIO = 255
_UINT32 = Struct("<I")
_UINT64 = Struct("<Q")
# Frames with this magic number (and the 15 after it) are skipped, in lz4 and zstd alike.
_SKIPPABLE_MAGIC = 0x184D2A50


def _lz4_compress(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        original = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(original, store_size=False))
        if len(block) < len(original):
            parts.append(_UINT32.pack(len(block)))
            parts.append(block)
        else:
            parts.append(_UINT32.pack(len(original) | _LZ4_STORED))
            parts.append(bytes(original))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_decompress(data: Buffer, max_bytes: int) -> Buffer:
    import cramjam

    bound_bytes = _walk_frames(data, _LZ4_MAGIC, _lz4_frame)
    return _fill(Codec.LZ4, cramjam.lz4.decompress_into, data, bound_bytes, max_bytes)


def _lz4_frame(view: memoryview, position: int) -> tuple[int, int, int]:
    """(position after the frame, upper bound of its content, number of its blocks) of the frame at
    `position`."""
    flags = view[position + 4]
    if flags >> 6 != 1:
        raise CompressionError(f"lz4 frame of unknown version {flags >> 6}")
    max_block_bytes = _LZ4_MAX_BLOCK_BYTES.get(view[position + 5] >> 4 & 7)
    if max_block_bytes is None:
        raise CompressionError("lz4 frame with an impossible block size")
    content_bytes = None
    position += 6
    if flags & 0x08:
        (content_bytes,) = _UINT64.unpack_from(view, position)
        position += 8
    if flags & 0x01:
        raise CompressionError("lz4 frame that needs a dictionary")
    position += 1
    block_trailer_bytes = 4 if flags & 0x10 else 0
    bound_bytes = blocks = 0
    while True:
        (size,) = _UINT32.unpack_from(view, position)
        position += 4
        if size == 0:
            break
        blocks += 1
        _check_parts(blocks)
        if size & _LZ4_STORED:
            size &= ~_LZ4_STORED
            bound_bytes += size
        else:
            bound_bytes += min(max_block_bytes, size * _LZ4_MAX_RATIO)
        if size > max_block_bytes:
            raise CompressionError(f"lz4 block of {size} bytes, more than the frame allows")
        position += size + block_trailer_bytes
    if flags & 0x04:
        position += 4
    if content_bytes is not None:
        bound_bytes = min(bound_bytes, content_bytes)
    return position, bound_bytes, blocks


# --- zstd -------------------------------------------------------------------------------------

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_MAX_BLOCK_BYTES = 128 * 1024
# The library's own limit, and the window of level 22. A declared window only costs address space:
# the decoder writes to as much of the window as there is output.
_ZSTD_MAX_WINDOW_BYTES = 128 << 20
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED = 0, 1, 2
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)


def _zstd_compress(data: Buffer) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def _zstd_decompress(data: Buffer, max_bytes: int) -> Buffer:
    import cramjam

    def frame(view: memoryview, position: int) -> tuple[int, int, int]:
        return _zstd_frame(view, position, max_bytes)

    if not len(data):
        return b""
    bound_bytes = _walk_frames(data, _ZSTD_MAGIC, frame)
    return _fill(Codec.ZSTD, cramjam.zstd.decompress_into, data, bound_bytes, max_bytes)


def _zstd_frame(view: memoryview, position: int, max_bytes: int) -> tuple[int, int, int]:
    """(position after the frame, upper bound of its content, number of its blocks) of the frame at
    `position`.

    Layout: RFC 8878, section 3.1.1. The header of a raw or run-length block has the size of the
    content. A compressed block contains at most 128 KiB, or the window size if that is smaller.
    """
    descriptor = view[position + 4]
    position += 5
    single_segment = descriptor & 0x20
    window_bytes = 0
    if not single_segment:
        exponent, mantissa = view[position] >> 3, view[position] & 7
        window_bytes = (1 << (10 + exponent)) + (1 << (7 + exponent)) * mantissa
        position += 1
    position += _DICTIONARY_ID_BYTES[descriptor & 3]
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if single_segment else 0)
    content_bytes = None
    if size_bytes:
        if position + size_bytes > len(view):
            raise CompressionError("zstd data ends within a frame header")
        content_bytes = int.from_bytes(view[position : position + size_bytes], "little")
        if size_bytes == 2:
            content_bytes += 256
        position += size_bytes
    if single_segment:
        window_bytes = content_bytes or 0
    if window_bytes > _ZSTD_MAX_WINDOW_BYTES:
        if content_bytes is None:
            raise CompressionError(
                f"a zstd frame with a window of {window_bytes} bytes; at most"
                f" {_ZSTD_MAX_WINDOW_BYTES} are accepted: compress with a windowLog of 27 or less"
            )
        if content_bytes > max_bytes:
            raise DecompressionLimitExceeded(Codec.ZSTD, max_bytes)
    max_block_bytes = min(_ZSTD_MAX_BLOCK_BYTES, window_bytes)
    bound_bytes = blocks = 0
    last = 0
    while not last:
        blocks += 1
        _check_parts(blocks)
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        position += 3
        if kind == _ZSTD_COMPRESSED:
            bound_bytes += max_block_bytes
            position += size
        elif kind == _ZSTD_RAW:
            bound_bytes += size
            position += size
        elif kind == _ZSTD_RLE:
            bound_bytes += size
            position += 1
        else:
            raise CompressionError("zstd block of the reserved type")
    if descriptor & 0x04:
        position += 4
    if content_bytes is not None:
        bound_bytes = min(bound_bytes, content_bytes)
    return position, bound_bytes, blocks


# --- lz4 and zstd ---------------------------------------------------------------------------------


def _walk_frames(
    data: Buffer, magic: int, frame: Callable[[memoryview, int], tuple[int, int, int]]
) -> int:
    """An upper bound of the content of all frames. Raises CompressionError for bytes outside of
    frames."""
    view = memoryview(data)
    size = len(view)
    position = 0
    bound_bytes = parts = 0
    while True:
        (found,) = _UINT32.unpack_from(view, position)
        parts += 1
        if found == magic:
            position, frame_bytes, blocks = frame(view, position)
            bound_bytes += frame_bytes
            parts += blocks
        elif found & ~0xF == _SKIPPABLE_MAGIC:
            position += 8 + _UINT32.unpack_from(view, position + 4)[0]
        else:
            raise CompressionError(f"no frame starts at byte {position} (magic 0x{found:08x})")
        _check_parts(parts)
        if position > size:
            raise CompressionError("the data ends within a frame")
        if position == size:
            return bound_bytes


#: A bytearray is filled with zeros first, with the interpreter's lock: some milliseconds at most.
_FILLED_BYTES_MAX = 4 * 1024 * 1024


def writable_memory(size_bytes: int) -> bytearray | mmap.mmap:
    """A buffer. Memory of a large one is only taken where it is written to."""
    if size_bytes <= _FILLED_BYTES_MAX:
        return bytearray(size_bytes)
    memory = mmap.mmap(-1, size_bytes, access=mmap.ACCESS_COPY)
    if sys.platform == "linux":
        # The faults of small pages would take as long as a decompression. Some kernels have no
        # large ones.
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _fill(
    codec: Codec,
    decompress_into: Callable[[Buffer, bytearray | mmap.mmap], int],
    data: Buffer,
    bound_bytes: int,
    max_bytes: int,
) -> Buffer:
    import cramjam

    output = writable_memory(min(bound_bytes, max_bytes))
    try:
        used = decompress_into(data, output)
    except cramjam.DecompressionError as error:
        # Valid input fits into a buffer of `bound_bytes`, so only a smaller buffer can be full.
        if bound_bytes > max_bytes and "whole buffer" in str(error):
            raise DecompressionLimitExceeded(codec, max_bytes) from error
        raise
    return memoryview(output)[:used]


_COMPRESSORS: dict[Codec, Callable[[Buffer], bytes]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}

_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int], Buffer]] = {
    Codec.NONE: _keep_within,
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}
