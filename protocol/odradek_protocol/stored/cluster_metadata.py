"""The records of `__cluster_metadata`, in the format of Kafka's KRaft metadata log.

Each record is the value of a log record: a frame version, the type, the version of the type (all
unsigned varints), and the flexible body. Field numbers and types are Kafka's; fields that one node
does not need are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packer

from odradek_protocol import codec
from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.message import Message, array, field, message
from odradek_protocol.primitives import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    DecodeError,
    decode_uvarint,
    encode_uvarint,
)

FRAME_VERSION = 1


@message(key=2, versions="0", flexible="0+")
class TopicRecord(Message):
    """A topic exists."""

    name: str = field(STRING)
    topic_id: bytes = field(UUID)


@message(key=3, versions="0", flexible="0+")
class PartitionRecord(Message):
    """A partition exists, with its replicas and leader."""

    partition_id: int = field(INT32, default=-1)
    topic_id: bytes = field(UUID)
    replicas: list[int] = field(array(INT32))
    isr: list[int] = field(array(INT32))
    removing_replicas: list[int] = field(array(INT32))
    adding_replicas: list[int] = field(array(INT32))
    leader: int = field(INT32, default=-1)
    leader_recovery_state: int = field(INT8, tag=0, tagged="0+")
    leader_epoch: int = field(INT32, default=-1)
    partition_epoch: int = field(INT32, default=-1)


class PartitionRecords(NamedTuple):
    """The records of many partitions of a topic, which differ in their number alone: `first`, and
    those of the partitions after it, `size` in all."""

    first: PartitionRecord
    size: int

    @property
    def indexes(self) -> range:
        """The numbers of the partitions."""
        return range(self.first.partition_id, self.first.partition_id + self.size)


@message(key=4, versions="0", flexible="0+")
class ConfigRecord(Message):
    """A setting of a topic (resource type 2) or of brokers (4). A null value removes the
    setting."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


@message(key=9, versions="0", flexible="0+")
class RemoveTopicRecord(Message):
    """A topic, its partitions and its settings are removed."""

    topic_id: bytes = field(UUID)


@message(key=10, versions="0", flexible="0+")
class DelegationTokenRecord(Message):
    """A delegation token exists, with principals as "User:alice".

    The HMAC of the token is its password. The HMAC is not stored, because it follows from the id
    and the brokers' secret key.
    """

    owner: str = field(STRING)
    requester: str = field(STRING)
    renewers: list[str] = field(array(STRING))
    issue_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    expiration_timestamp: int = field(INT64)
    token_id: str = field(STRING)


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialRecord(Message):
    """A user has a SCRAM credential of a mechanism (1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512).

    The password cannot be computed from the credential, but whoever has `server_key` can
    impersonate the broker to this user.
    """

    name: str = field(STRING)
    mechanism: int = field(INT8)
    salt: bytes = field(BYTES, secret=True)
    stored_key: bytes = field(BYTES, secret=True)
    server_key: bytes = field(BYTES, secret=True)
    iterations: int = field(INT32)


@message(key=12, versions="0", flexible="0+")
class FeatureLevelRecord(Message):
    """A feature is finalized at a level; 0 switches it off."""

    name: str = field(STRING)
    feature_level: int = field(INT16)


@message(key=14, versions="0", flexible="0+")
class ClientQuotaRecord(Message):
    """A quota of an entity. If `remove` is true, the quota is removed, and `value` has no
    meaning."""

    entity: list[QuotaEntityPart] = field(array(QuotaEntityPart))
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


@message(key=15, versions="0", flexible="0+")
class ProducerIdsRecord(Message):
    """Every producer id below `next_producer_id` is in a reserved block or skipped (rule P-29)."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    next_producer_id: int = field(INT64)


@message(key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord(Message):
    """A user's SCRAM credential of a mechanism is removed."""

    name: str = field(STRING)
    mechanism: int = field(INT8)


@message(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord(Message):
    """An ACL exists. The numbers are those of `odradek_protocol.acls`."""

    id: bytes = field(UUID)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord(Message):
    """An ACL is removed."""

    id: bytes = field(UUID)


@message(key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord(Message):
    """A delegation token is removed."""

    token_id: str = field(STRING)


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | PartitionRecords
    | ConfigRecord
    | RemoveTopicRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | RemoveUserScramCredentialRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)

RECORD_TYPES: dict[int, type[Message]] = {
    cls.api_key: cls
    for cls in (
        *(TopicRecord, PartitionRecord, ConfigRecord),
        *(RemoveTopicRecord, FeatureLevelRecord, ClientQuotaRecord, ProducerIdsRecord),
        *(UserScramCredentialRecord, RemoveUserScramCredentialRecord),
        *(AccessControlEntryRecord, RemoveAccessControlEntryRecord),
        *(DelegationTokenRecord, RemoveDelegationTokenRecord),
    )
}


def encode_record(record: Message) -> bytes:
    """The value of a log record, in the newest version of its type."""
    version = type(record).versions.last
    head = encode_uvarint(FRAME_VERSION) + encode_uvarint(record.api_key) + encode_uvarint(version)
    return head + codec.encode_bytes(record, version)


#: The bytes of an encoded PartitionRecord before the partition's number, and the number's format.
_FRAME_BYTES = 3
_NUMBER = Packer(">i")


def encode_records(records: Sequence[MetadataRecord]) -> list[list[bytes]]:
    """The values of log records, those of each element in a list."""
    return [
        _encode_partitions(record)
        if isinstance(record, PartitionRecords)
        else [encode_record(record)]
        for record in records
    ]


def _encode_partitions(records: PartitionRecords) -> list[bytes]:
    value = encode_record(records.first)
    head, tail = value[:_FRAME_BYTES], value[_FRAME_BYTES + _NUMBER.size :]
    return [head + _NUMBER.pack(index) + tail for index in records.indexes]


def decode_record(value: bytes | memoryview) -> Message:
    """The record in the value of a log record.

    Raises DecodeError if the record is invalid, or if its type or version is unknown: such a record
    must not be ignored."""
    try:
        frame_version, position = decode_uvarint(value, 0)
        record_type, position = decode_uvarint(value, position)
        version, position = decode_uvarint(value, position)
    except IndexError as error:
        raise DecodeError("a metadata record without its head") from error
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"a metadata record of frame version {frame_version}")
    cls = RECORD_TYPES.get(record_type)
    if cls is None or version not in cls.versions:
        raise DecodeError(f"a metadata record of unknown type {record_type} version {version}")
    return codec.decode(cls, version, value, position)
