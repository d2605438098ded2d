"""Which partition of an internal topic looks after a group or a transactional id (G-06, T-01)."""

from __future__ import annotations

from struct import iter_unpack


def java_hash(text: str) -> int:
    """The value of Java's `String.hashCode`: over UTF-16 code units, a signed 32-bit integer."""
    value = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition of a key among `partitions`: a masked hash, not an absolute value."""
    return (java_hash(key) & 0x7FFFFFFF) % partitions
