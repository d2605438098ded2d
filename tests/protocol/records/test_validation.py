"""The full validation of the records of a produced batch (R-04 to R-08)."""

from __future__ import annotations

import pytest

from odradek_protocol.compression import Codec, compress
from odradek_protocol.records import validation
from odradek_protocol.records.batch import (
    BodyNotDecompressed,
    CorruptBatch,
    read_header,
    set_log_append_time,
)
from odradek_protocol.records.builder import BatchBuilder, seal, simple_batch
from odradek_protocol.records.record import read_records
from odradek_protocol.records.validation import (
    MAX_RECORD_ERRORS,
    RecordRules,
    RecordsChecked,
    validate_records,
)
from rewritten_batches import rewrite_batch

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
    assert checked.max_timestamp_ms == NOW + 5
    assert bytes(checked.body) == batch_at(NOW, NOW + 5, NOW - 5, NOW + 5)[61:]


def test_r04_the_largest_timestamp_is_computed_from_the_records() -> None:
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
def test_r05_timestamps_outside_the_allowed_range_are_refused(
    timestamps: tuple[int, ...], bad: list[int]
) -> None:
    rules = RecordRules(timestamp_before_max_ms=2 * HOUR, timestamp_after_max_ms=HOUR)
    checked = check(batch_at(*timestamps), rules)
    assert [index for index, _ in checked.record_errors] == bad
    assert checked.invalid_timestamp is bool(bad)
    assert checked.accepted is not bool(bad)


def test_r05_timestamps_are_unlimited_by_default_and_for_log_append_time() -> None:
    batch = batch_at(1, 2**60)
    assert check(batch).accepted
    rules = RecordRules(log_append_time=True, timestamp_before_max_ms=1, timestamp_after_max_ms=1)
    assert check(batch, rules).accepted


def test_r05_a_producer_may_not_set_log_append_time() -> None:
    """The bit is refused for topics with LogAppendTime, and for records without a timestamp;
    otherwise it is accepted."""
    batch = batch_at(NOW, NOW)
    set_log_append_time(batch, 0, NOW)
    assert check(batch).accepted
    refused = check(batch, RecordRules(log_append_time=True))
    assert refused.invalid_timestamp
    assert [index for index, _ in refused.record_errors] == [0, 1]
    set_log_append_time(batch, 0, -1)
    assert check(batch).invalid_timestamp


def test_r05_the_largest_timestamp_counts_if_log_append_time_is_set() -> None:
    """The timestamps of single records are not checked if the batch has the bit for LogAppendTime,
    as in Kafka."""
    rules = RecordRules(timestamp_before_max_ms=HOUR)
    batch = batch_at(1, NOW)
    assert not check(batch, rules).accepted
    set_log_append_time(batch, 0, NOW)
    assert check(batch, rules).accepted
    set_log_append_time(batch, 0, NOW - 2 * HOUR)
    assert [index for index, _ in check(batch, rules).record_errors] == [0, 1]


def test_r05_a_timestamp_that_overflows_int64_is_refused() -> None:
    batch = batch_at(NOW, NOW + 5)
    header = read_header(batch)
    header.base_timestamp = 2**63 - 3
    checked = validate_records(batch, 0, header, RecordRules(), NOW)
    assert [index for index, _ in checked.record_errors] == [1]
    assert validate_records(batch, 0, header, RecordRules(log_append_time=True), NOW).accepted


def test_r04_the_largest_timestamp_is_never_below_minus_one() -> None:
    batch = batch_at(NOW)
    header = read_header(batch)
    header.base_timestamp = -5
    assert validate_records(batch, 0, header, RecordRules(), NOW).max_timestamp_ms == -1


def test_r07_a_compacted_topic_needs_keys() -> None:
    batch = simple_batch([(b"k", b"v"), (None, b"v"), (b"", None), (None, None)], NOW)
    assert check(batch).accepted
    checked = check(batch, RecordRules(compacted=True))
    assert [index for index, _ in checked.record_errors] == [1, 3]
    assert "without a key" in checked.record_errors[0][1]
    assert not checked.invalid_timestamp


def test_r06_records_without_key_and_with_bad_timestamps_are_listed() -> None:
    """For a record without a key, the timestamp is not checked."""
    builder = BatchBuilder()
    builder.append(NOW, None, b"v")
    builder.append(1, b"k", b"v")
    builder.append(1, None, b"v")
    rules = RecordRules(compacted=True, timestamp_before_max_ms=HOUR)
    checked = check(builder.build(), rules)
    assert [index for index, _ in checked.record_errors] == [0, 1, 2]
    assert checked.invalid_timestamp
    keyless = batch_at(1)
    keyless[61:] = bytes(simple_batch([(None, b"kv")], NOW)[61:])
    assert not check(keyless, rules).invalid_timestamp


def test_r08_gaps_and_overflows_of_offset_deltas_are_reported() -> None:
    batch = simple_batch([(b"k", b"v")] * 5, NOW)
    header = read_header(batch)
    gaps = rewrite_batch(header, read_records(batch, 0, header)[1:])
    checked = check(gaps)
    assert (checked.in_order, checked.in_range, checked.accepted) == (False, True, True)
    changed = read_header(gaps)
    changed.last_offset_delta = 3
    assert not validate_records(gaps, 0, changed, RecordRules(), NOW).in_range
    assert check(batch).in_order and check(batch).in_range


def test_r10_an_lz4_body_that_java_does_not_read_is_refused() -> None:
    body = bytes(simple_batch([(b"k", b"v")], NOW)[61:])
    sound = simple_batch([(b"k", b"v")], NOW, codec=Codec.LZ4)
    both = seal(read_header(sound), compress(Codec.LZ4, body) + compress(Codec.LZ4, b""))
    assert check(sound).accepted
    with pytest.raises(BodyNotDecompressed, match="behind the lz4 frame"):
        check(both)


def test_the_list_of_bad_records_is_limited() -> None:
    batch = simple_batch([(None, b"v")] * 500, NOW)
    checked = check(batch, RecordRules(compacted=True))
    assert len(checked.record_errors) == MAX_RECORD_ERRORS


@pytest.mark.parametrize("key", [b"k", None])
@pytest.mark.parametrize("timestamp", [NOW, NOW + HOUR + 1, 0])
def test_bad_records_of_a_very_large_batch_are_not_listed(
    monkeypatch: pytest.MonkeyPatch, timestamp: int, key: bytes | None
) -> None:
    """Objects for millions of errors would block the event loop, and fill the memory."""
    rules = RecordRules(
        compacted=True, timestamp_before_max_ms=2 * HOUR, timestamp_after_max_ms=HOUR
    )
    builder = BatchBuilder(Codec.NONE)
    for number in range(5):
        builder.append(timestamp if number == 3 else NOW, key if number == 2 else b"k", b"v")
    batch = builder.build()
    named = check(batch, rules)
    monkeypatch.setattr(validation, "MAX_RECORDS_LOOKED_AT", 4)
    monkeypatch.setattr(validation, "parse_records", None)
    checked = check(batch, rules)
    assert (checked.accepted, checked.invalid_timestamp) == (
        named.accepted,
        named.invalid_timestamp,
    )
    assert bool(checked.trouble) is not checked.accepted
    assert checked.record_errors == []


@pytest.mark.parametrize("timestamps", [(-1, -1), (-1, NOW)])
def test_r05_records_without_timestamps_are_not_parsed_without_a_limit(
    monkeypatch: pytest.MonkeyPatch, timestamps: tuple[int, ...]
) -> None:
    batch = batch_at(*timestamps)
    monkeypatch.setattr(validation, "parse_records", None)
    assert check(batch, RecordRules(timestamp_before_max_ms=2**63 - 1)).accepted


def test_r12_a_damaged_or_too_large_body_is_an_error() -> None:
    batch = simple_batch([(None, bytes(100_000))], NOW, codec=Codec.ZSTD)
    with pytest.raises(CorruptBatch, match="more than the limit"):
        validate_records(batch, 0, read_header(batch), RecordRules(), NOW, 1000)
    header = read_header(batch)
    header.record_count = 2
    with pytest.raises(CorruptBatch, match="end within record 1 of 2"):
        validate_records(batch, 0, header, RecordRules(), NOW)
