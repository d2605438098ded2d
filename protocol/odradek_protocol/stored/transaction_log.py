"""The record of a transactional id in `__transaction_state` (rule T-02; Kafka's TransactionLogKey
and -Value).

The key is an int16 0 and the transactional id. The value is an int16 version and its fields, or
null if the id has expired. Version 1, which is flexible, is written; versions 0 and 1 are read.

Two tagged fields are not declared here. `LAST_EPOCH_TAG` is Odradek's own, and other readers skip
it. The field has the epoch before the last epoch bump. With this epoch, a client whose request got
no answer can repeat the request, even after a restart of the broker (T-50a). `NEXT_EPOCH_TAG` is
Kafka's NextProducerEpoch, for two-phase commit (KIP-939).
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct as Packer

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.message import Message, Struct, array, field, message
from odradek_protocol.primitives import (
    INT8,
    INT16,
    INT32,
    INT64,
    MAX_MESSAGE_ELEMENTS,
    STRING,
    DecodeError,
)

KEY_VERSION = 0
"""The int16 in front of every key."""

WRITTEN_VERSION = 1

NEXT_EPOCH_TAG = 3
LAST_EPOCH_TAG = 10_000

_INT16 = Packer(">h")


@message(key=KEY_VERSION, versions="0")
class TransactionLogKey(Message):
    """The key: transactional id."""

    transactional_id: str = field(STRING)


class StoredPartitions(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


@message(key=KEY_VERSION, versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    """The state of a transactional id. Timestamps are in milliseconds since the epoch. In all
    fields, -1 means none.

    `transaction_partitions` is null in state Empty.
    """

    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, "1+", tag=0, tagged="1+", default=-1)
    next_producer_id: int = field(INT64, "1+", tag=1, tagged="1+", default=-1)
    producer_epoch: int = field(INT16)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[StoredPartitions] | None = field(
        array(StoredPartitions), nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, "1+", tag=2, tagged="1+", default=0)


def encode_key(transactional_id: str) -> bytes:
    """The record key of a transactional id."""
    key = TransactionLogKey(transactional_id=transactional_id)
    return _INT16.pack(KEY_VERSION) + codec.encode_bytes(key, 0)


def encode_value(value: TransactionLogValue, version: int = WRITTEN_VERSION) -> bytes:
    """The record value of a transactional id."""
    return _INT16.pack(version) + codec.encode_bytes(value, version)


def encode_value_with_pauses(value: TransactionLogValue) -> Generator[None, None, bytes]:
    """Like `encode_value`, for a large value: yields between the pieces of the work."""
    encoded = yield from codec.encode_bytes_with_pauses(value, WRITTEN_VERSION)
    return _INT16.pack(WRITTEN_VERSION) + encoded


def decode_key(key: Buffer) -> TransactionLogKey | None:
    """The key; None for an unknown version, so that readers skip the record.

    Raises DecodeError for invalid bytes.
    """
    if len(key) < _INT16.size:
        raise DecodeError(f"{len(key)} bytes are too few for the key of a transaction")
    if _INT16.unpack_from(key)[0] != KEY_VERSION:
        return None
    return codec.decode(TransactionLogKey, 0, key, _INT16.size)


def decode_value(value: Buffer) -> TransactionLogValue:
    """The value. Raises DecodeError for invalid bytes, or an unknown version."""
    return codec.decode(TransactionLogValue, _version_of(value), value, _INT16.size)


def decode_value_with_pauses(value: Buffer) -> Generator[None, None, TransactionLogValue]:
    """Like `decode_value`, for a large value: yields between the pieces of the work."""
    found = yield from codec.decode_with_pauses(
        TransactionLogValue, _version_of(value), value, _INT16.size, MAX_MESSAGE_ELEMENTS
    )
    return found


def _version_of(value: Buffer) -> int:
    if len(value) < _INT16.size:
        raise DecodeError(f"{len(value)} bytes are too few for a transaction")
    version: int = _INT16.unpack_from(value)[0]
    return version


def tagged_epoch(value: TransactionLogValue, tag: int) -> int:
    """The epoch in a tagged field; -1 if the tag is missing. Raises DecodeError for invalid
    bytes."""
    data = (value.unknown_tags or {}).get(tag)
    if data is None:
        return -1
    if len(data) != _INT16.size:
        raise DecodeError(f"{len(data)} bytes are no epoch (tag {tag})")
    epoch: int = _INT16.unpack(data)[0]
    return epoch


def set_tagged_epoch(value: TransactionLogValue, tag: int, epoch: int) -> None:
    """Store an epoch in a tag; the default -1 is not written."""
    if epoch != -1:
        value.unknown_tags = {**(value.unknown_tags or {}), tag: _INT16.pack(epoch)}
