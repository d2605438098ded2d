"""The state of a segment, in a producer snapshot that was taken inside the segment or at its end.
The state is written after the producers (P-26, L-30); the segment's indexes are compared with it
(L-05, L-33).

A scan after a crash may begin at that snapshot instead of the segment's first batch, if the
segment's indexes still match this state. Indexes are written without fsync, so only these few
numbers show that a crash has removed entries. Kafka ignores the state.

`SEGMENT_STATE` declares the format; equivalent struct code writes and reads it.
"""

from __future__ import annotations

import struct

import construct as c

from odradek_protocol.lazy_tuple import NamedTuple

STATE_MAGIC = b"ODRS"
STATE_VERSION = 1

SEGMENT_STATE = c.Struct(
    "magic" / c.Const(STATE_MAGIC),
    "version" / c.Const(STATE_VERSION, c.Int16ub),
    "base_offset" / c.Int64sb,
    "size_bytes" / c.Int64sb,
    "offset_entries" / c.Int32sb,
    "time_entries" / c.Int32sb,
    "max_timestamp" / c.Int64sb,
    "max_timestamp_offset" / c.Int64sb,
    "aborted_entries" / c.Int32sb,
    "aborted_crc" / c.Int32ub,
)
_STATE = struct.Struct(">4sHqqiiqqiI")
SEGMENT_STATE_BYTES = _STATE.size


class SegmentState(NamedTuple):
    """The state of a segment up to a snapshot's offset: `size_bytes` of batches, the numbers of
    their index entries, and the largest timestamp with the last offset of its batch (-1 and the
    base offset if there is no batch). `aborted_crc`: CRC-32C of the counted entries of the
    transaction index."""

    base_offset: int
    size_bytes: int
    offset_entries: int
    time_entries: int
    max_timestamp: int
    max_timestamp_offset: int
    aborted_entries: int
    aborted_crc: int


def encode_segment_state(state: SegmentState) -> bytes:
    """The bytes for the end of a snapshot."""
    return _STATE.pack(STATE_MAGIC, STATE_VERSION, *state)


def decode_segment_state(content: bytes) -> SegmentState | None:
    """The state at the end of a whole snapshot; None if there is none."""
    if len(content) < _STATE.size:
        return None
    magic, version, *fields = _STATE.unpack_from(content, len(content) - _STATE.size)
    if magic != STATE_MAGIC or version != STATE_VERSION:
        return None
    return SegmentState._make(fields)
