"""Kafka's hash of keys. The hash of a record's key determines the partition of the record
(C-18)."""

from __future__ import annotations

from struct import unpack_from

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed, unsigned."""
    length = len(data)
    h = _SEED ^ length
    for k in unpack_from(f"<{length >> 2}I", data):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    rest = length & 3
    if rest:
        h ^= int.from_bytes(data[length - rest :], "little")
        h = h * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def positive_murmur2(data: bytes) -> int:
    """The hash without its sign bit. Like Java's client, ours takes this number modulo the number
    of partitions."""
    return murmur2(data) & _POSITIVE
