"""The records of a share partition, written and read (H-100)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.coordinator.runtime import Record
from odradek_broker.share_state import DeadLetterPosition, ShareKey, ShareState, StateBatch
from odradek_protocol.common_structs import ShareStateBatch
from odradek_protocol.stored.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_key,
    decode_position,
    decode_value,
    encode_position,
)
from odradek_protocol.stored.typed_records import encode_key, encode_value


def snapshot_record(key: ShareKey, state: ShareState) -> Record:
    """The record with the whole state of a share partition."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        dead_letters_from=_position(state.dead_letters_from),
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=_stored(state.batches),
    )
    return _snapshot_key(key), encode_value(value)


def update_record(key: ShareKey, change: ShareState) -> Record:
    """The record of a change; the state epoch and the timestamps are not in it."""
    value = ShareUpdateValue(
        snapshot_epoch=change.snapshot_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        dead_letters_from=_position(change.dead_letters_from),
        state_batches=_stored(change.batches),
    )
    update_key = ShareUpdateKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return encode_key(update_key), encode_value(value)


def tombstone_record(key: ShareKey) -> Record:
    """The record that deletes the state of a share partition."""
    return _snapshot_key(key), None


def decode_change(
    key: bytes, value: bytes | None
) -> tuple[ShareKey, ShareState | None, bool] | None:
    """(share partition, state, is snapshot) of a record; the state is None for a deletion. The
    result is None for a record of an unknown type, and for an update without a value, which nobody
    writes. Raises DecodeError for invalid bytes."""
    decoded = decode_key(key)
    if decoded is None:
        return None
    share_partition = ShareKey(decoded.group_id, decoded.topic_id, decoded.partition)
    is_snapshot = isinstance(decoded, ShareSnapshotKey)
    if value is None:
        return (share_partition, None, True) if is_snapshot else None
    read = decode_value(decoded, value)
    snapshot = read if isinstance(read, ShareSnapshotValue) else None
    position = decode_position(read.dead_letters_from)
    state = ShareState(
        snapshot_epoch=read.snapshot_epoch,
        state_epoch=0 if snapshot is None else snapshot.state_epoch,
        leader_epoch=read.leader_epoch,
        start_offset=read.start_offset,
        delivery_complete_count=read.delivery_complete_count,
        batches=tuple(
            StateBatch(
                each.first_offset, each.last_offset, each.delivery_state, each.delivery_count
            )
            for each in read.state_batches
        ),
        created_ms=0 if snapshot is None else snapshot.create_timestamp,
        written_ms=0 if snapshot is None else snapshot.write_timestamp,
        dead_letters_from=None if position is None else DeadLetterPosition(*position),
    )
    return share_partition, state, is_snapshot


def _snapshot_key(key: ShareKey) -> bytes:
    return encode_key(
        ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    )


def _position(position: DeadLetterPosition | None) -> bytes:
    return b"" if position is None else encode_position(*position)


def _stored(batches: Iterable[StateBatch]) -> list[ShareStateBatch]:
    return [
        ShareStateBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.delivery_state,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]
