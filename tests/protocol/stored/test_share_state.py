"""The records of __share_group_state (H-100)."""

from __future__ import annotations

import pytest

from odradek_protocol.common_structs import ShareStateBatch
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored import share_state
from odradek_protocol.stored.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from odradek_protocol.stored.typed_records import encode_key, encode_value

TOPIC = bytes(range(16))
SNAPSHOT = ShareSnapshotKey(group_id="g", topic_id=TOPIC, partition=7)
UPDATE = ShareUpdateKey(group_id="g", topic_id=TOPIC, partition=7)
BATCH = ShareStateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=3)


def test_h100_a_key_is_its_type_and_the_share_partition() -> None:
    share_partition = "000167" + TOPIC.hex() + "00000007"
    assert encode_key(SNAPSHOT).hex() == "0000" + share_partition
    assert encode_key(UPDATE).hex() == "0001" + share_partition
    for key in (SNAPSHOT, UPDATE):
        assert share_state.decode_key(encode_key(key)) == key


def test_h100_a_snapshot_has_kafkas_layout() -> None:
    value = ShareSnapshotValue(
        snapshot_epoch=1,
        state_epoch=2,
        leader_epoch=3,
        start_offset=4,
        delivery_complete_count=6,
        create_timestamp=7,
        write_timestamp=8,
        state_batches=[BATCH],
    )
    encoded = encode_value(value)
    assert encoded.hex() == (
        "0000" "00000001" "00000002" "00000003" "0000000000000004"
        "0000000000000007" "0000000000000008"
        "02" "0000000000000005" "0000000000000009" "02" "0003" "00"
        "01" "00" "04" "00000006"
    )  # fmt: skip
    assert share_state.decode_value(SNAPSHOT, encoded) == value


def test_h100_an_update_has_no_state_epoch_and_no_timestamps() -> None:
    value = ShareUpdateValue(snapshot_epoch=1, leader_epoch=3, start_offset=-1, state_batches=[])
    encoded = encode_value(value)
    assert encoded.hex() == "00000000000100000003ffffffffffffffff0100"
    assert share_state.decode_value(UPDATE, encoded) == value


def test_h100_keys_of_other_types_are_skipped() -> None:
    assert share_state.decode_key(b"\0\2\0\1g" + bytes(20)) is None


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0\5ab", b"\0\1\0\1g" + bytes(19)])
def test_h100_invalid_keys_are_refused(key: bytes) -> None:
    with pytest.raises(DecodeError):
        share_state.decode_key(key)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\1" + bytes(60), b"\0\0" + bytes(19)])
def test_h100_unreadable_values_are_refused(value: bytes) -> None:
    for key in (SNAPSHOT, UPDATE):
        with pytest.raises(DecodeError):
            share_state.decode_value(key, value)
