"""Transaction markers (R-30 to R-32)."""

from __future__ import annotations

import pytest

from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import read_header, verify_crc
from odradek_protocol.records.builder import control_batch
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.control_marker import (
    ControlMarkerError,
    ControlType,
    EndTransactionMarker,
    decode_marker,
    decode_type,
    encode_key,
    encode_marker,
)


@pytest.mark.parametrize(
    ("kind", "commit"), [(ControlType.ABORT, False), (ControlType.COMMIT, True)]
)
def test_r30_r31_a_marker_batch_is_written_as_kafka_writes_it(
    kind: ControlType, commit: bool
) -> None:
    batch = control_batch(kind, 7, 4000, 3, 1_700_000_000_000, base_offset=55, leader_epoch=2)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert header.is_control and header.is_transactional
    assert header.codec is Codec.NONE
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 3, -1)
    assert (header.record_count, header.base_offset, header.next_offset) == (1, 55, 56)
    assert header.leader_epoch == 2
    (record,) = read_records(batch, 0, header)
    assert record.key == bytes([0, 0, 0, int(commit)])
    assert record.value == bytes([0, 0, 0, 0, 0, 7])
    marker = decode_marker(record.key, record.value)
    assert marker == EndTransactionMarker(kind, 7)
    assert marker is not None and marker.is_commit is commit


def test_a_control_batch_is_built_for_commit_and_abort_only() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE does not end a transaction"):
        control_batch(ControlType.LEADER_CHANGE, 0, 1, 0, 0)


def test_r31_other_control_types_are_no_transaction_markers() -> None:
    assert decode_type(b"\x00\x00\x00\x63") is None
    assert decode_marker(b"\x00\x00\x00\x63", b"whatever") is None
    assert decode_type(b"\x00\x00\x00\x02") is ControlType.LEADER_CHANGE
    assert decode_marker(b"\x00\x00\x00\x02", None) is None


def test_r32_longer_keys_and_values_are_read_by_their_known_prefix() -> None:
    key = b"\x00\x05" + encode_key(ControlType.COMMIT)[2:] + b"later field"
    value = b"\x00\x01" + encode_marker(12)[2:] + b"later field"
    assert decode_marker(key, value) == EndTransactionMarker(ControlType.COMMIT, 12)


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_unreadable_control_record_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(ControlMarkerError, match="control record key"):
        decode_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x01"])
def test_unreadable_transaction_markers_are_refused(value: bytes | None) -> None:
    with pytest.raises(ControlMarkerError, match="transaction marker"):
        decode_marker(encode_key(ControlType.ABORT), value)
