"""The record of a classic group in `__consumer_offsets` (rule O-02; Kafka's GroupMetadataKey and
-Value).

The key is the int16 record type 2 and the group id. The value is an int16 version and its fields,
or null if the group is removed. Version 3 is written, because every reader since Kafka 2.3 supports
it.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct as Packer

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.message import Message, Struct, array, field, message
from odradek_protocol.primitives import (
    BYTES,
    INT32,
    INT64,
    MAX_MESSAGE_ELEMENTS,
    STRING,
    DecodeError,
)

KEY_TYPE = 2
"""The int16 in front of every key of this kind."""

WRITTEN_VERSION = 3

_INT16 = Packer(">h")


@message(key=KEY_TYPE, versions="0")
class GroupMetadataKey(Message):
    """The key: group id."""

    group: str = field(STRING)


class StoredMember(Struct):
    """A member of a stored classic group. `subscription`: the member's metadata for the protocol of
    the group. The broker does not interpret `subscription` and `assignment`."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@message(key=KEY_TYPE, versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    """A classic group. Timeouts are in milliseconds, the timestamp in ms since the epoch."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[StoredMember] = field(array(StoredMember))


def encode_key(group: str) -> bytes:
    """The record key of a group."""
    return _INT16.pack(KEY_TYPE) + codec.encode_bytes(GroupMetadataKey(group=group), 0)


def encode_value(value: GroupMetadataValue) -> bytes:
    """The record value of a group."""
    return _INT16.pack(WRITTEN_VERSION) + codec.encode_bytes(value, WRITTEN_VERSION)


def encode_value_with_pauses(value: GroupMetadataValue) -> Generator[None, None, bytes]:
    """Like `encode_value`, as a generator that yields after some members and returns the value."""
    encoded = yield from codec.encode_bytes_with_pauses(value, WRITTEN_VERSION)
    return _INT16.pack(WRITTEN_VERSION) + encoded


def decode_key(key: Buffer) -> GroupMetadataKey:
    """The key in bytes that begin with the record type. Raises DecodeError for invalid bytes."""
    return codec.decode(GroupMetadataKey, 0, key, _INT16.size)


def decode_value(value: Buffer) -> GroupMetadataValue:
    """The value. Raises DecodeError for invalid bytes, or an unknown version."""
    return codec.decode(GroupMetadataValue, _version(value), value, _INT16.size)


def decode_value_with_pauses(value: Buffer) -> Generator[None, None, GroupMetadataValue]:
    """Like `decode_value`, as a generator that yields after some members and returns the value."""
    found = yield from codec.decode_with_pauses(
        GroupMetadataValue, _version(value), value, _INT16.size, MAX_MESSAGE_ELEMENTS
    )
    return found


def _version(value: Buffer) -> int:
    if len(value) < _INT16.size:
        raise DecodeError(f"{len(value)} bytes are too few for a group")
    version: int = _INT16.unpack_from(value)[0]
    return version
