"""The deep check of a produced batch (R-04 to R-08)."""

from __future__ import annotations

import pytest

from odradek_protocol.compression import Codec
from odradek_protocol.records import (
    BatchBuilder,
    CorruptBatch,
    RecordRules,
    read_header,
    read_records,
    rewrite_batch,
    set_log_append_time,
    simple_batch,
    validate_records,
)
from odradek_protocol.records.validation import MAX_RECORD_ERRORS, RecordsChecked

pytestmark = pytest.mark.usefixtures("codec_twin")

NOW = 1_700_000_000_000
HOUR = 3_600_000


def check(batch: bytearray, rules: RecordRules | None = None) -> RecordsChecked:
    return validate_records(batch, 0, read_header(batch), rules or RecordRules(), NOW)


def batch_at(*timestamps: int, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec)
    for timestamp in timestamps:
        builder.append(timestamp, b"k", b"v")
    return builder.build()


@pytest.mark.parametrize("codec", Codec)
def test_a_sound_batch_is_accepted(codec: Codec) -> None:
    batch = batch_at(NOW, NOW + 5, NOW - 5, NOW + 5, codec=codec)
    checked = check(batch)
    assert checked.accepted and not checked.invalid_timestamp
    assert (checked.max_timestamp_ms, checked.max_timestamp_index) == (NOW + 5, 1)
    assert checked.body_bytes == len(batch_at(NOW, NOW + 5, NOW - 5, NOW + 5)) - 61


def test_r04_the_maximum_is_that_of_the_records() -> None:
    batch = batch_at(NOW, NOW + 5)
    header = read_header(batch)
    header.max_timestamp = 1
    assert validate_records(batch, 0, header, RecordRules(), NOW).max_timestamp_ms == NOW + 5


@pytest.mark.parametrize(
    ("timestamps", "bad"),
    [
        ((NOW, NOW + HOUR, NOW - 2 * HOUR), []),
        ((NOW, NOW + HOUR + 1), [1]),
        ((NOW - 2 * HOUR - 1, NOW, NOW - 2 * HOUR - 1), [0, 2]),
        ((-1, NOW), []),  # no timestamp: nothing to test
        ((NOW, 0), [1]),
        ((-1, 5, NOW), [1]),
    ],
)
def test_r05_window(timestamps: tuple[int, ...], bad: list[int]) -> None:
    rules = RecordRules(timestamp_before_max_ms=2 * HOUR, timestamp_after_max_ms=HOUR)
    checked = check(batch_at(*timestamps), rules)
    assert [index for index, _ in checked.record_errors] == bad
    assert checked.invalid_timestamp is bool(bad)
    assert checked.accepted is not bool(bad)


def test_r05_no_window_without_limits_and_for_log_append_time() -> None:
    batch = batch_at(1, 2**60)
    assert check(batch).accepted
    rules = RecordRules(log_append_time=True, timestamp_before_max_ms=1, timestamp_after_max_ms=1)
    assert check(batch, rules).accepted


def test_r05_a_producer_may_not_set_log_append_time() -> None:
    """Refused on a LogAppendTime topic and for records without a timestamp; accepted otherwise."""
    batch = batch_at(NOW, NOW)
    set_log_append_time(batch, 0, NOW)
    assert check(batch).accepted
    refused = check(batch, RecordRules(log_append_time=True))
    assert refused.invalid_timestamp
    assert [index for index, _ in refused.record_errors] == [0, 1]
    nameless = batch_at(-1)
    set_log_append_time(nameless, 0, NOW)
    assert check(nameless).invalid_timestamp


def test_r07_a_compacted_topic_needs_keys() -> None:
    batch = simple_batch([(b"k", b"v"), (None, b"v"), (b"", None), (None, None)], NOW)
    assert check(batch).accepted
    checked = check(batch, RecordRules(compacted=True))
    assert [index for index, _ in checked.record_errors] == [1, 3]
    assert "without a key" in checked.record_errors[0][1]
    assert not checked.invalid_timestamp


def test_r06_both_kinds_of_trouble_are_listed() -> None:
    builder = BatchBuilder()
    builder.append(NOW, None, b"v")
    builder.append(1, b"k", b"v")
    builder.append(1, None, b"v")
    rules = RecordRules(compacted=True, timestamp_before_max_ms=HOUR)
    checked = check(builder.build(), rules)
    assert [index for index, _ in checked.record_errors] == [0, 1, 2]
    assert checked.invalid_timestamp


def test_r08_offset_deltas_must_count_up() -> None:
    batch = simple_batch([(b"k", b"v")] * 5, NOW)
    header = read_header(batch)
    gaps = rewrite_batch(header, read_records(batch, 0, header)[1:])
    checked = check(gaps)
    assert checked.record_errors[0] == (0, "offset delta is 1, not 0")
    assert len(checked.record_errors) == 4


def test_the_list_of_bad_records_is_limited() -> None:
    batch = simple_batch([(None, b"v")] * 500, NOW)
    checked = check(batch, RecordRules(compacted=True))
    assert len(checked.record_errors) == MAX_RECORD_ERRORS


def test_r12_limit_and_damage_raise() -> None:
    batch = simple_batch([(None, bytes(100_000))], NOW, codec=Codec.ZSTD)
    with pytest.raises(CorruptBatch, match="more than the limit"):
        validate_records(batch, 0, read_header(batch), RecordRules(), NOW, 1000)
    header = read_header(batch)
    header.record_count = 2
    with pytest.raises(CorruptBatch, match="end within record 1 of 2"):
        validate_records(batch, 0, header, RecordRules(), NOW)
