"""Encodes records and batches whose fields may all have wrong values."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import cramjam

from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import Codec, compress
from odradek_protocol.records.varint import zigzag_encode


def octets(content: bytes | None, length: int | bytes | None = None) -> bytes:
    """Encode a length and its bytes. `length`: a wrong length, or wrong bytes in place of the
    encoded length."""
    if isinstance(length, bytes):
        return length + (content or b"")
    if length is None:
        length = -1 if content is None else len(content)
    return zigzag_encode(length) + (content or b"")


def record(
    offset_delta: int | bytes = 0,
    *,
    timestamp_delta: int | bytes = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[bytes] = (),
    header_count: int | bytes | None = None,
    key_length: int | bytes | None = None,
    value_length: int | bytes | None = None,
    attributes: int = 0,
    length: int | bytes | None = None,
    longer_by: int = 0,
    tail: bytes = b"",
) -> bytes:
    """Encode a record. `length` or `longer_by` make its length wrong; `tail`: additional bytes at
    its end."""
    count = len(headers) if header_count is None else header_count
    body = b"".join(
        (
            bytes([attributes]),
            _number(timestamp_delta),
            _number(offset_delta),
            octets(key, key_length),
            octets(value, value_length),
            _number(count),
            *headers,
            tail,
        )
    )
    return _number(len(body) + longer_by if length is None else length) + body


def _number(number: int | bytes) -> bytes:
    return number if isinstance(number, bytes) else zigzag_encode(number)


def records(count: int, **fields: Any) -> bytes:
    """Correct records, with offset deltas 0, 1, 2, ..."""
    return b"".join(record(index, **fields) for index in range(count))


Packing = Callable[[bytes], bytes]


def raw_snappy(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


PACKINGS: dict[str, tuple[Codec, Packing]] = {
    "none": (Codec.NONE, bytes),
    "gzip": (Codec.GZIP, lambda body: compress(Codec.GZIP, body)),
    "snappy": (Codec.SNAPPY, lambda body: compress(Codec.SNAPPY, body)),
    "raw-snappy": (Codec.SNAPPY, raw_snappy),
    "lz4": (Codec.LZ4, lambda body: compress(Codec.LZ4, body)),
    "zstd": (Codec.ZSTD, lambda body: compress(Codec.ZSTD, body)),
}


def batch(
    body: bytes,
    count: int,
    *,
    packing: str = "none",
    packed: bytes | None = None,
    now_ms: int,
    base_offset: int = 0,
    longer_by: int = 0,
    magic: int = 2,
    crc_wrong: bool = False,
    attributes: int | None = None,
    flags: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Encode a batch with the compressed `body`, or with the bytes `packed` instead."""
    codec, pack = PACKINGS[packing]
    content = pack(body) if packed is None else packed
    covered = struct.pack(
        ">hiqqqhii",
        (int(codec) | flags) if attributes is None else attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        now_ms if base_timestamp is None else base_timestamp,
        now_ms if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    covered += content
    crc = crc32c(covered) ^ (1 if crc_wrong else 0)
    return (
        struct.pack(">qiibI", base_offset, 9 + len(covered) + longer_by, -1, magic, crc) + covered
    )


def old_message(magic: int, now_ms: int) -> bytes:
    """A correct message of format 0 or 1."""
    content = struct.pack(">bb", magic, 0)
    if magic == 1:
        content += struct.pack(">q", now_ms)
    content += struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"v"
    message = struct.pack(">I", zlib.crc32(content)) + content
    return struct.pack(">qi", 0, len(message)) + message
