"""The records of consumer groups, share groups and streams groups in `__consumer_offsets`. `KEYS`
and `VALUES` have the classes of the keys and values for each record type."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from odradek_protocol.codec import Buffer
from odradek_protocol.message import Message
from odradek_protocol.stored import consumer_group, share_group, streams_group, typed_records

KEYS: Mapping[int, type[Message]] = {
    **consumer_group.KEYS,
    **share_group.KEYS,
    **streams_group.KEYS,
}

VALUES: Mapping[int, type[Message]] = {
    **consumer_group.VALUES,
    **share_group.VALUES,
    **streams_group.VALUES,
}


def encode_record(value: Message, **key: str) -> tuple[bytes, bytes]:
    """(key, value) of a record. `key`: the fields of the key; the class of `value` determines the
    record type."""
    return encode_key(value.api_key, **key), typed_records.encode_value(value)


def encode_record_with_pauses(
    value: Message, **key: str
) -> Generator[None, None, tuple[bytes, bytes]]:
    """Like `encode_record`, as a generator that yields after some elements and returns the
    record."""
    encoded = yield from typed_records.encode_value_with_pauses(value)
    return encode_key(value.api_key, **key), encoded


def encode_key(kind: int, **key: str) -> bytes:
    """The key of a record. `kind`: the record type; `key`: the fields of the key."""
    key_class: Any = KEYS[kind]
    return typed_records.encode_key(key_class(**key), kind)


def key_name(kind: int) -> str:
    """Kafka's name of the key of a record type."""
    return VALUES[kind].__name__.removesuffix("Value") + "Key"


def decode_key(kind: int, key: Buffer) -> Message:
    """The key in bytes that begin with the record type; an instance of `KEYS[kind]`. DecodeError
    for invalid bytes."""
    return typed_records.decode_key(KEYS[kind], key)


def decode_value(kind: int, value: Buffer) -> Message:
    """The value, an instance of `VALUES[kind]`. Raises DecodeError for invalid bytes, or an unknown
    version."""
    return typed_records.decode_value(VALUES[kind], value)


def decode_value_with_pauses(kind: int, value: Buffer) -> Generator[None, None, Message]:
    """Like `decode_value`, as a generator that yields after some elements and returns the value."""
    found = yield from typed_records.decode_value_with_pauses(VALUES[kind], value)
    return found
