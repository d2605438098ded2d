"""The records of a share partition in `__share_group_state` (KIP-932; Kafka's ShareSnapshot* and
ShareUpdate*).

A snapshot has the whole state, and a null value deletes the state. An update has the changes of one
write, and the epoch of the snapshot that it follows. An update has no state epoch. Its start offset
is -1 if it has not changed; its `delivery_complete_count` is -1 if it is unknown.

`dead_letters_from` is a tagged field of Odradek's own, and Kafka skips it. The field has a topic
id, a partition and an offset, or nothing.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct as Packer

from odradek_protocol.codec import Buffer
from odradek_protocol.common_structs import ShareStateBatch
from odradek_protocol.message import Message, array, field, message
from odradek_protocol.primitives import BYTES, INT32, INT64, STRING, UUID, DecodeError
from odradek_protocol.stored import typed_records

_INT16 = Packer(">h")
_POSITION = Packer(">16siq")
#: The tag is far from the tags that Kafka will give to new fields.
_DEAD_LETTERS_TAG = 10_191


class ShareStateRecordType(IntEnum):
    """The type of a record: the int16 at the start of its key."""

    SNAPSHOT = 0
    UPDATE = 1


@message(key=ShareStateRecordType.SNAPSHOT, versions="0")
class ShareSnapshotKey(Message):
    """The key of a snapshot: the share partition."""

    group_id: str = field(STRING)
    topic_id: bytes = field(UUID)
    partition: int = field(INT32)


@message(key=ShareStateRecordType.SNAPSHOT, versions="0", flexible="0+")
class ShareSnapshotValue(Message):
    """The whole state of a share partition. `create_timestamp`: the time of the last snapshot that
    a change caused; `write_timestamp`: the time of this snapshot."""

    snapshot_epoch: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "0+", tag=0, tagged="0+", default=-1)
    dead_letters_from: bytes = field(BYTES, "0+", tag=_DEAD_LETTERS_TAG, tagged="0+", default=b"")
    create_timestamp: int = field(INT64)
    write_timestamp: int = field(INT64)
    state_batches: list[ShareStateBatch] = field(array(ShareStateBatch))


@message(key=ShareStateRecordType.UPDATE, versions="0")
class ShareUpdateKey(Message):
    """The key of an update: the share partition."""

    group_id: str = field(STRING)
    topic_id: bytes = field(UUID)
    partition: int = field(INT32)


@message(key=ShareStateRecordType.UPDATE, versions="0", flexible="0+")
class ShareUpdateValue(Message):
    """A change of the state of a share partition."""

    snapshot_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "0+", tag=0, tagged="0+", default=-1)
    dead_letters_from: bytes = field(BYTES, "0+", tag=_DEAD_LETTERS_TAG, tagged="0+", default=b"")
    state_batches: list[ShareStateBatch] = field(array(ShareStateBatch))


ShareStateKey = ShareSnapshotKey | ShareUpdateKey
ShareStateValue = ShareSnapshotValue | ShareUpdateValue

_KEYS: dict[int, type[ShareStateKey]] = {
    ShareStateRecordType.SNAPSHOT: ShareSnapshotKey,
    ShareStateRecordType.UPDATE: ShareUpdateKey,
}
_VALUES: dict[int, type[ShareStateValue]] = {
    ShareStateRecordType.SNAPSHOT: ShareSnapshotValue,
    ShareStateRecordType.UPDATE: ShareUpdateValue,
}


def encode_position(topic_id: bytes, partition: int, offset: int) -> bytes:
    """A position in a dead letter topic."""
    return _POSITION.pack(topic_id, partition, offset)


def decode_position(data: bytes) -> tuple[bytes, int, int] | None:
    """The topic id, partition and offset of a position; None if there are no bytes. DecodeError for
    bytes of another length."""
    if not data:
        return None
    if len(data) != _POSITION.size:
        raise DecodeError(f"{len(data)} bytes for a position of dead letters")
    topic_id, partition, offset = _POSITION.unpack(data)
    return topic_id, partition, offset


def decode_key(key: Buffer) -> ShareStateKey | None:
    """The key; None for an unknown type, so that readers skip the record. Raises DecodeError for
    invalid bytes."""
    if len(key) < _INT16.size:
        raise DecodeError(f"{len(key)} bytes are too few for the key of a share partition")
    cls = _KEYS.get(_INT16.unpack_from(key)[0])
    return None if cls is None else typed_records.decode_key(cls, key)


def decode_value(key: ShareStateKey, value: Buffer) -> ShareStateValue:
    """The value of a record. Raises DecodeError for invalid bytes, or an unknown version."""
    return typed_records.decode_value(_VALUES[key.api_key], value)
