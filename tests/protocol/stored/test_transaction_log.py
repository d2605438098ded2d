"""The records of __transaction_state (T-02)."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored import transaction_log as log
from odradek_protocol.stored.transaction_log import StoredPartitions, TransactionLogValue


def value(**fields: Any) -> TransactionLogValue:
    given = {
        "producer_id": 5_000_000_000,
        "producer_epoch": 3,
        "transaction_timeout_ms": 60_000,
        "transaction_status": 1,
        "transaction_partitions": [StoredPartitions(topic="größe", partition_ids=[0, 7])],
        "transaction_last_update_timestamp_ms": 1_700_000_000_001,
        "transaction_start_timestamp_ms": 1_700_000_000_000,
        **fields,
    }
    return TransactionLogValue(**given)


def test_t02_the_key_is_an_int16_0_and_the_id() -> None:
    assert log.encode_key("abc") == b"\0\0\0\3abc"
    decoded = log.decode_key(b"\0\0\0\3abc")
    assert decoded is not None and decoded.transactional_id == "abc"


def test_t02_keys_of_other_versions_are_skipped() -> None:
    assert log.decode_key(b"\0\1\0\3abc") is None


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0\5ab"])
def test_t02_invalid_keys_are_refused(key: bytes) -> None:
    with pytest.raises(DecodeError):
        log.decode_key(key)


def test_t02_version_1_is_written() -> None:
    assert log.encode_value(value())[:2] == b"\0\1"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("partitions", [None, [], [StoredPartitions(topic="t")]])
def test_t02_both_versions_round_trip(version: int, partitions: Any) -> None:
    given = value(transaction_partitions=partitions)
    assert log.decode_value(log.encode_value(given, version)) == given


def test_t02_version_0_has_kafkas_layout() -> None:
    given = value(producer_id=1, producer_epoch=2, transaction_partitions=None)
    assert log.encode_value(given, 0).hex() == (
        "0000" "0000000000000001" "0002" "0000ea60" "01" "ffffffff"
        "0000018bcfe56801" "0000018bcfe56800"
    )  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\2" + bytes(40), b"\0\1" + bytes(3)])
def test_t02_unreadable_values_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        log.decode_value(data)


def test_t02_tagged_fields_survive_a_round_trip() -> None:
    given = value(previous_producer_id=4, next_producer_id=6, client_transaction_version=2)
    log.set_tagged_epoch(given, log.LAST_EPOCH_TAG, 32_766)
    log.set_tagged_epoch(given, log.NEXT_EPOCH_TAG, 0)
    again = log.decode_value(log.encode_value(given))
    assert again == given
    assert log.tagged_epoch(again, log.LAST_EPOCH_TAG) == 32_766
    assert log.tagged_epoch(again, log.NEXT_EPOCH_TAG) == 0


def test_an_epoch_of_minus_one_is_not_written_as_a_tagged_field() -> None:
    given = value()
    log.set_tagged_epoch(given, log.LAST_EPOCH_TAG, -1)
    assert given.unknown_tags is None
    assert log.tagged_epoch(given, log.LAST_EPOCH_TAG) == -1


def test_a_tagged_epoch_of_another_length_is_refused() -> None:
    given = value()
    given.unknown_tags = {log.LAST_EPOCH_TAG: b"\0\0\0"}
    with pytest.raises(DecodeError):
        log.tagged_epoch(given, log.LAST_EPOCH_TAG)


def test_t02_version_1_has_kafkas_flexible_layout() -> None:
    given = value(
        producer_id=1,
        producer_epoch=2,
        transaction_partitions=[StoredPartitions(topic="t", partition_ids=[3])],
        next_producer_id=9,
        client_transaction_version=2,
    )
    assert log.encode_value(given).hex() == (
        "0001" "0000000000000001" "0002" "0000ea60" "01"
        "02" "0274" "02" "00000003" "00"
        "0000018bcfe56801" "0000018bcfe56800"
        "02" "01" "08" "0000000000000009" "02" "02" "0002"
    )  # fmt: skip
