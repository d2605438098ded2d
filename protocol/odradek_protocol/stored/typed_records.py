"""Records of coordinators in Kafka's form: a key is an int16 record type and the fields of its
class; a value is the int16 version 0 and its fields. The value is null if the described object was
removed."""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct as Packer
from typing import TypeVar

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.message import Message, field, message
from odradek_protocol.primitives import MAX_MESSAGE_ELEMENTS, STRING, DecodeError

WRITTEN_VERSION = 0

_INT16 = Packer(">h")

M = TypeVar("M", bound=Message)


@message(versions="0")
class GroupKey(Message):
    """The key of the records of a group, whatever their type."""

    group_id: str = field(STRING)


@message(versions="0")
class GroupMemberKey(Message):
    """The key of the records of a member of a group, whatever their type."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


def encode_key(key: Message, kind: int | None = None) -> bytes:
    """The record key. `kind`: the record type; None: the type of the message."""
    return _INT16.pack(key.api_key if kind is None else kind) + codec.encode_bytes(key, 0)


def encode_value(value: Message) -> bytes:
    """The record value."""
    return _INT16.pack(WRITTEN_VERSION) + codec.encode_bytes(value, WRITTEN_VERSION)


def encode_value_with_pauses(value: Message) -> Generator[None, None, bytes]:
    """Like `encode_value`, as a generator that yields after some elements and returns the value."""
    encoded = yield from codec.encode_bytes_with_pauses(value, WRITTEN_VERSION)
    return _INT16.pack(WRITTEN_VERSION) + encoded


def decode_key(cls: type[M], key: Buffer) -> M:
    """The key in bytes that begin with a record type. Raises DecodeError for invalid
    bytes."""
    return codec.decode(cls, 0, key, _INT16.size)


def decode_value(cls: type[M], value: Buffer) -> M:
    """The value, an instance of `cls`. Raises DecodeError for invalid bytes, or an unknown
    version."""
    return codec.decode(cls, _version(cls, value), value, _INT16.size)


def decode_value_with_pauses(cls: type[M], value: Buffer) -> Generator[None, None, M]:
    """Like `decode_value`, as a generator that yields after some elements and returns the value."""
    found = yield from codec.decode_with_pauses(
        cls, _version(cls, value), value, _INT16.size, MAX_MESSAGE_ELEMENTS
    )
    return found


def _version(cls: type[M], value: Buffer) -> int:
    if len(value) < _INT16.size:
        raise DecodeError(f"{len(value)} bytes are too few for a {cls.__name__}")
    version: int = _INT16.unpack_from(value)[0]
    if version != WRITTEN_VERSION:
        raise DecodeError(f"version {version} of a {cls.__name__}")
    return version
