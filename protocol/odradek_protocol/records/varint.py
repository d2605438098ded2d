"""Zigzag varints, as in Protocol Buffers: an encoding of integers in which small positive and small
negative numbers take few bytes.

Every number inside a record is such a varint, of at most 5 bytes for an int32 and 10 for an int64.
The loops over whole batches handle varints of one and two bytes themselves, and call these
functions for longer varints.
"""

from __future__ import annotations

from .batch import Buffer, CorruptBatch

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10


def zigzag_encode(number: int) -> bytes:
    """The varint of a signed number: 0, -1, 1, -2, ... become 0, 1, 2, 3, ..."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def zigzag(raw: int) -> int:
    """The signed number of a raw (unsigned) varint."""
    return raw >> 1 if not raw & 1 else ~(raw >> 1)


def read_raw(data: Buffer, position: int, max_bytes: int) -> tuple[int, int]:
    """(raw unsigned number, position after it).

    CorruptBatch if the varint is longer than `max_bytes` or exceeds the integer type of that
    length, IndexError at the end of the data.
    """
    raw = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise CorruptBatch(f"varint longer than {max_bytes} bytes")
    if raw >> (32 if max_bytes == MAX_VARINT_BYTES else 64):
        raise CorruptBatch(f"varint of {max_bytes} bytes with more bits than its integer has")
    return raw, position


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """(int32, position after it); errors as in `read_raw`."""
    raw, position = read_raw(data, position, MAX_VARINT_BYTES)
    return zigzag(raw), position


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """(int64, position after it); errors as in `read_raw`."""
    raw, position = read_raw(data, position, MAX_VARLONG_BYTES)
    return zigzag(raw), position
