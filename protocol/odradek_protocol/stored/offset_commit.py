"""The record of a committed offset in `__consumer_offsets` (rule O-02; Kafka's OffsetCommitKey and
-Value).

The key is the int16 record type 1 (or the older 0, with the same fields), the group id, topic and
partition. The value is an int16 version and its fields, or null if the offset is removed. Version 4
is written, or 1, which has no topic id, if there is an explicit expiry (rules O-13, O-24).
"""

from __future__ import annotations

from struct import Struct as Packer

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.constants import NO_EXPIRY
from odradek_protocol.message import Message, field, message
from odradek_protocol.primitives import INT32, INT64, STRING, UUID, ZERO_UUID, DecodeError

LEGACY_KEY_TYPE = 0
KEY_TYPE = 1
"""The int16 in front of every key of this kind."""


_INT16 = Packer(">h")
_VERSION = 4
_VERSION_WITH_EXPIRY = 1


@message(key=KEY_TYPE, versions="0")
class OffsetCommitKey(Message):
    """The key: group id, topic and partition."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@message(key=KEY_TYPE, versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    """A committed offset. Timestamps are in milliseconds since the epoch, -1 for none. A leader
    epoch of -1 is unknown, and so is a topic id of zeros."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, "1", default=NO_EXPIRY, ignorable=True)
    topic_id: bytes = field(UUID, "4+", tag=0, tagged="4+", default=ZERO_UUID, ignorable=True)


def encode_key(group: str, topic: str, partition: int) -> bytes:
    """The record key of one committed offset."""
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return _INT16.pack(KEY_TYPE) + codec.encode_bytes(key, 0)


def encode_value(value: OffsetCommitValue) -> bytes:
    """The record value. A value with an expiry is written in version 1, which has an expiry but no
    leader epoch and no topic id."""
    version = _VERSION if value.expire_timestamp == NO_EXPIRY else _VERSION_WITH_EXPIRY
    return _INT16.pack(version) + codec.encode_bytes(value, version)


def decode_key(key: Buffer) -> OffsetCommitKey:
    """The key in bytes that begin with the record type. Raises DecodeError for invalid bytes."""
    return codec.decode(OffsetCommitKey, 0, key, _INT16.size)


def decode_value(value: Buffer) -> OffsetCommitValue:
    """The value. Raises DecodeError for invalid bytes, or an unknown version."""
    if len(value) < _INT16.size:
        raise DecodeError(f"{len(value)} bytes are too few for a committed offset")
    return codec.decode(OffsetCommitValue, _INT16.unpack_from(value)[0], value, _INT16.size)
