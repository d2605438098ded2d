"""The four codecs: damaged data, and data that claims to become very large (R-09 to R-12).

The first byte chooses the codec and the limit. Decompressed data must be within the limit, and
equal to the result of another implementation.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import suppress

import lz4.frame
import zstandard
from tests.adversity.fuzz.target import MEGABYTE, Broken, Target

from odradek_protocol.compression import (
    Codec,
    CompressionError,
    check_portable,
    compress,
    decompress,
)

_LIMITS = (MEGABYTE, 100, 0, 16 * MEGABYTE)
_PLAIN = (b"", b"value", b"the same again, " * 40, bytes(range(256)), bytes(100_000))


def _seeds() -> Iterator[bytes]:
    for codec in Codec:
        for plain in _PLAIN:
            packed = compress(codec, plain)
            yield bytes([codec]) + packed
            yield bytes([codec]) + packed + packed
    for plain in _PLAIN:
        yield bytes([Codec.LZ4]) + lz4.frame.compress(
            plain, block_linked=True, content_checksum=True, store_size=True
        )
        yield bytes([Codec.ZSTD]) + zstandard.ZstdCompressor(
            write_content_size=False, write_checksum=True
        ).compress(plain)
    yield bytes([Codec.ZSTD]) + compress(Codec.ZSTD, bytes(100 * MEGABYTE))
    yield bytes([Codec.GZIP]) + gzip.compress(bytes(3 * MEGABYTE))


def _others(codec: Codec, data: bytes) -> bytes | None:
    """The result of another implementation; None for a codec without another implementation."""
    if codec is Codec.GZIP:
        return gzip.decompress(data)
    if codec is Codec.LZ4:
        with lz4.frame.open(io.BytesIO(data)) as frames:
            found: bytes = frames.read()
            return found
    if codec is Codec.ZSTD:
        reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(
            data, read_across_frames=True
        )
        return reader.read()
    return None


def _check(data: bytes) -> None:
    if not data:
        return
    codec = Codec(data[0] % len(Codec))
    limit = _LIMITS[data[0] // len(Codec) % len(_LIMITS)]
    body = data[1:]
    if codec is Codec.LZ4:
        with suppress(CompressionError):
            check_portable(codec, body)
    try:
        plain = decompress(codec, body, limit)
    except CompressionError:
        return
    if len(plain) > limit:
        raise Broken(f"{codec.name}: {len(plain)} bytes, with a limit of {limit}")
    others = _others(codec, body)
    if others is not None and others != plain:
        raise Broken(f"{codec.name}: {len(plain)} bytes, others read {len(others)}")
    if decompress(codec, compress(codec, plain), limit) != plain:
        raise Broken(f"{codec.name}: {len(plain)} bytes do not come back")


TARGET = Target(_check, _seeds, memory_bytes=48 * MEGABYTE)
