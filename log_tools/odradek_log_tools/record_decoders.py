"""Records of internal topics as plain values, for printing and for JSON.

A key or value of an unknown type or version is returned as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_broker.coordinator.share.records import decode_change
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_broker.coordinator.transactions.transaction import decode as decode_transaction
from odradek_broker.metadata.cluster import (
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from odradek_protocol import codec
from odradek_protocol.message import HIDDEN, ArrayOf, FieldType, Message, Struct
from odradek_protocol.primitives import UUID, DecodeError, decode_uvarint, uuid_text
from odradek_protocol.stored import (
    cluster_metadata,
    group_metadata,
    modern_groups,
    offset_commit,
    share_state,
    transaction_log,
)
from odradek_protocol.stored.assignment import decode_assignment
from odradek_protocol.stored.subscription import PROTOCOL_TYPE, decode_subscription

_INT16_BYTES = 2
#: Names of the epochs in tagged fields of transaction values.
_TRANSACTION_TAGS = {
    transaction_log.NEXT_EPOCH_TAG: "next_producer_epoch",
    transaction_log.LAST_EPOCH_TAG: "last_producer_epoch",
}

Key = bytes | None
Decoded = dict[str, Any]


def plain_struct(value: Struct) -> Decoded:
    """The fields of a struct by name. Topic ids are in Kafka's text form, bytes are not converted,
    and secrets are hidden."""
    fields = {
        spec.name: HIDDEN if spec.secret else _plain(spec.type, getattr(value, spec.name))
        for spec in value.fields
    }
    if value.unknown_tags:
        fields["unknown_tags"] = {str(tag): content for tag, content in value.unknown_tags.items()}
    return fields


def _plain(kind: FieldType, value: Any) -> Any:
    if isinstance(value, Struct):
        return plain_struct(value)
    if isinstance(kind, ArrayOf) and value is not None:
        return [_plain(kind.element, each) for each in value]
    if kind is UUID and value is not None:
        return uuid_text(value)
    return value


def _typed(value: Message, version: int | None = None, **more: Any) -> Decoded:
    """A message in the nested form of Kafka's tools: its type and version, and then its fields."""
    head: Decoded = {"type": type(value).__name__}
    if version is not None:
        head["version"] = version
    return {**head, "data": {**plain_struct(value), **more}}


def _kind(stored: bytes) -> int:
    """The int16 at the start of a key or value: the type of the key, or the version of the
    value.
    """
    if len(stored) < _INT16_BYTES:
        raise DecodeError(f"{len(stored)} bytes are too few for a type")
    return int.from_bytes(stored[:_INT16_BYTES], "big", signed=True)


# --- __consumer_offsets ---


def _offsets_key(key: bytes) -> Decoded:
    kind = _kind(key)
    if kind in (offset_commit.LEGACY_KEY_TYPE, offset_commit.KEY_TYPE):
        return _typed(offset_commit.decode_key(key))
    if kind == group_metadata.KEY_TYPE:
        return _typed(group_metadata.decode_key(key))
    decoded = modern_groups.decode_key(_modern_type(kind), key)
    return {**_typed(decoded), "type": modern_groups.key_name(kind)}


def _offsets_value(key: bytes, value: bytes) -> Decoded:
    kind, version = _kind(key), _kind(value)
    if kind in (offset_commit.LEGACY_KEY_TYPE, offset_commit.KEY_TYPE):
        return _typed(offset_commit.decode_value(value), version)
    if kind == group_metadata.KEY_TYPE:
        group = group_metadata.decode_value(value)
        return _typed(group, version, members=[_member(group, each) for each in group.members])
    return _typed(modern_groups.decode_value(_modern_type(kind), value), version)


def _modern_type(kind: int) -> int:
    if kind not in modern_groups.KEYS:
        raise DecodeError(f"a record of type {kind}")
    return kind


def _member(
    group: group_metadata.GroupMetadataValue, member: group_metadata.StoredMember
) -> Decoded:
    """A member of a group. The subscription and the assignment of a consumer are decoded if
    possible."""
    plain = plain_struct(member)
    if group.protocol_type == PROTOCOL_TYPE:
        try:
            plain["subscription"] = plain_struct(decode_subscription(member.subscription))
            plain["assignment"] = plain_struct(decode_assignment(member.assignment))
        except DecodeError:
            return plain_struct(member)
    return plain


# --- __transaction_state ---


def _transaction_key(key: bytes) -> Decoded:
    decoded = transaction_log.decode_key(key)
    if decoded is None:
        raise DecodeError(f"a key of version {_kind(key)}")
    return _typed(decoded)


def _transaction_value(key: bytes, value: bytes) -> Decoded:
    decoded = transaction_log.decode_value(value)
    epochs = {
        name: epoch
        for tag, name in _TRANSACTION_TAGS.items()
        if (epoch := transaction_log.tagged_epoch(decoded, tag)) != -1
    }
    decoded.unknown_tags = {
        tag: content
        for tag, content in (decoded.unknown_tags or {}).items()
        if tag not in _TRANSACTION_TAGS
    }
    return _typed(decoded, _kind(value), **_state_name(decoded.transaction_status), **epochs)


def _state_name(status: int) -> Decoded:
    try:
        return {"transaction_state": TransactionState(status).label}
    except ValueError:
        return {}


# --- __share_group_state ---


def _share_state_key(key: bytes) -> Decoded:
    return _typed(_share_partition(key))


def _share_state_value(key: bytes, value: bytes) -> Decoded:
    return _typed(share_state.decode_value(_share_partition(key), value), _kind(value))


def _share_partition(key: bytes) -> share_state.ShareStateKey:
    decoded = share_state.decode_key(key)
    if decoded is None:
        raise DecodeError(f"a record of type {_kind(key)}")
    return decoded


# --- __cluster_metadata ---


def _metadata_value(key: bytes, value: bytes) -> Decoded:
    try:
        _, position = decode_uvarint(value, 0)
        kind, position = decode_uvarint(value, position)
        version, position = decode_uvarint(value, position)
    except IndexError as error:
        raise DecodeError("a metadata record without its head") from error
    cls = cluster_metadata.RECORD_TYPES.get(kind)
    if cls is None or version not in cls.versions:
        return {"type": kind, "version": version, "data": value[position:]}
    return _typed(codec.decode(cls, version, value, position), version)


def _nothing(key: bytes) -> Decoded:
    raise DecodeError("a key where there should be none")


_DECODERS: dict[str, tuple[Callable[[bytes], Decoded], Callable[[bytes, bytes], Decoded]]] = {
    OFFSETS_TOPIC: (_offsets_key, _offsets_value),
    TRANSACTIONS_TOPIC: (_transaction_key, _transaction_value),
    SHARE_STATE_TOPIC: (_share_state_key, _share_state_value),
    METADATA_TOPIC: (_nothing, _metadata_value),
}


def _load_transaction(key: bytes, value: bytes | None) -> None:
    decoded = transaction_log.decode_key(key)
    if decoded is not None and value is not None:
        decode_transaction(decoded.transactional_id, value)


#: For each topic, the reader of the records that its coordinator reads when it loads a partition.
_LOADED: dict[str, Callable[[bytes, bytes | None], object]] = {
    SHARE_STATE_TOPIC: decode_change,
    TRANSACTIONS_TOPIC: _load_transaction,
}


def is_loaded(topic: str) -> bool:
    """True if `load_problem` can check records of the topic."""
    return topic in _LOADED


def load_problem(topic: str, key: Key, value: Key) -> str:
    """The reason why the topic's coordinator could not load a record; empty if it could."""
    try:
        if key is not None:
            _LOADED[topic](key, value)
    except DecodeError as problem:
        return str(problem)
    return ""


def decode_record(topic: str, key: Key, value: Key) -> tuple[Any, Any]:
    """Key and value of a record of a topic; each stays bytes if it cannot be decoded."""
    decoders = _DECODERS.get(topic)
    if decoders is None:
        return key, value
    decode_key, decode_value = decoders
    decoded_key: Any = key
    decoded_value: Any = value
    if key is not None:
        try:
            decoded_key = decode_key(key)
        except DecodeError:
            return key, value
    if value is not None:
        try:
            decoded_value = decode_value(key or b"", value)
        except DecodeError:
            decoded_value = value
    return decoded_key, decoded_value
