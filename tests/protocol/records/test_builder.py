"""Building batches: limits, sealing, stamping again, rewriting, recompressing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import (
    CorruptBatch,
    read_header,
    set_log_append_time,
    update_crc,
    verify_crc,
)
from odradek_protocol.records.builder import (
    BatchBuilder,
    BuilderSealed,
    recompress,
    record_upper_bound,
    simple_batch,
)
from odradek_protocol.records.record import Record, TimestampType, read_body, read_records
from rewritten_batches import rewrite_batch

pytestmark = pytest.mark.usefixtures("codec_twin")

NOW = 1_700_000_000_000


def test_append_returns_the_index_of_the_record() -> None:
    builder = BatchBuilder()
    assert builder.record_count == 0
    assert [builder.append(NOW, None, b"x") for _ in range(3)] == [0, 1, 2]
    assert builder.record_count == 3


def test_a_batch_without_records_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()


def test_an_append_after_building_is_refused() -> None:
    builder = BatchBuilder()
    builder.append(NOW, None, b"x")
    assert not builder.is_sealed
    builder.build()
    assert builder.is_sealed
    with pytest.raises(BuilderSealed):
        builder.append(NOW, None, b"y")
    assert builder.record_count == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((NOW, None, "text"), "record value is str, not bytes or None"),
        ((NOW, 5, b"x"), "record key is int"),
        ((NOW, None, b"x", [(b"h", b"v")]), "header key b'h' is bytes, not str"),
        ((NOW, None, b"x", [("h", "v")]), "value of header 'h' is str"),
        ((float(NOW), None, b"x"), "record timestamp is float"),
    ],
)
def test_an_append_of_a_wrong_type_is_refused_and_changes_nothing(row: Any, message: str) -> None:
    builder = BatchBuilder()
    for count in range(2):
        estimated = builder.estimated_bytes
        with pytest.raises(TypeError, match=message):
            builder.append(*row)
        assert (builder.record_count, builder.estimated_bytes) == (count, estimated)
        builder.append(NOW, b"k", b"sound", [("h", None)])
    batch = builder.build()
    assert [r.value for r in read_records(batch, 0, read_header(batch))] == [b"sound"] * 2


@pytest.mark.parametrize("before", [[], [0], [NOW]])
def test_impossible_timestamps_are_refused(before: list[int]) -> None:
    builder = BatchBuilder()
    for timestamp in before:
        builder.append(timestamp, None, b"x")
    for timestamp in (2**63 - 1, 2**63, -2, -(2**63)):
        with pytest.raises(ValueError, match="is not in ms since 1970"):
            builder.append(timestamp, None, b"x")
    assert builder.record_count == len(before)
    builder.append(-1, None, b"x")
    builder.append(2**63 - 2, None, b"x")
    batch = builder.build()
    found = [record.timestamp for record in read_records(batch, 0, read_header(batch))]
    assert found == [*before, -1, 2**63 - 2]


def test_a_header_key_that_is_no_valid_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be written as UTF-8"):
        BatchBuilder().append(NOW, None, None, [("\ud800", None)])


def test_mutable_buffers_are_copied_at_append() -> None:
    value, key = bytearray(b"value"), bytearray(b"key")
    builder = BatchBuilder()
    builder.append(NOW, key, memoryview(value), [("h", bytearray(b"v"))])
    value[:] = b"#####"
    key[:] = b"###"
    (record,) = read_records(builder.build(), 0, read_header(builder.build()))
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"v"),))


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 2**63 - 2) | st.integers(NOW, NOW + 20_000),
            st.none() | st.integers(0, 9000).map(bytes),
            st.none() | st.integers(0, 9000).map(bytes) | st.just(bytes(1_100_000)),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(deadline=None)
def test_size_estimates_are_upper_bounds(rows: list[Any]) -> None:
    builder = BatchBuilder()
    alone = 61
    for row in rows:
        builder.append(*row)
        alone += record_upper_bound(*row[1:])
    size = len(builder.build())
    assert size <= builder.estimated_bytes
    assert size <= alone
    assert BatchBuilder.record_upper_bound(*rows[0][1:]) == record_upper_bound(*rows[0][1:])


@pytest.mark.parametrize(
    ("last", "slack"),
    [
        ((NOW + 8191, bytes(100), bytes(100)), 0),  # every number has two bytes
        ((NOW + 8192, bytes(100), bytes(100)), 19),
        ((2**63 - 2, bytes(100), bytes(100)), 12),
        ((2**63 - 2, bytes(2**20), bytes(2**20)), 6),
    ],
)
def test_size_estimates_are_upper_bounds_for_the_widest_numbers(last: Any, slack: int) -> None:
    builders = [BatchBuilder(), BatchBuilder()]
    for builder in builders:
        for _ in range(70):
            builder.append(NOW, None, b"x")
    builders[1].append(*last)
    estimated = builders[1].estimated_bytes - builders[0].estimated_bytes
    used = len(builders[1].build()) - len(builders[0].build())
    assert estimated - used == slack
    assert used <= record_upper_bound(*last[1:])


def test_the_size_estimate_is_tight_for_ordinary_records() -> None:
    builder = BatchBuilder()
    for n in range(150):
        builder.append(NOW + n // 30, None, bytes(100))
    assert builder.estimated_bytes < 1.03 * len(builder.build())


@pytest.mark.parametrize("codec", Codec)
def test_building_again_gives_the_same_records_a_new_header(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    for n in range(10):
        builder.append(NOW + n, b"k", b"value" * n)
    first = builder.build(producer_id=5, producer_epoch=1, base_sequence=40)
    second = builder.build(
        producer_id=6, producer_epoch=2, base_sequence=0, transactional=True, leader_epoch=3
    )
    for batch in (first, second):
        verify_crc(batch, 0, read_header(batch))
    assert first[61:] == second[61:]
    one, two = read_header(first), read_header(second)
    assert (one.producer_id, one.producer_epoch, one.base_sequence) == (5, 1, 40)
    assert (two.producer_id, two.producer_epoch, two.base_sequence) == (6, 2, 0)
    assert (one.is_transactional, two.is_transactional, two.is_control) == (False, True, False)
    assert (one.leader_epoch, two.leader_epoch, one.last_sequence) == (-1, 3, 49)
    first[70] ^= 1  # A built batch belongs to the caller.
    assert builder.build() != first and builder.build()[61:] == second[61:]


def test_r03_a_batch_is_built_with_log_append_time() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"x")
    builder.append(2, None, b"y")
    batch = builder.build(log_append_time_ms=NOW)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert header.is_log_append_time
    records = read_records(batch, 0, header)
    assert [(r.timestamp, r.timestamp_type) for r in records] == [
        (NOW, TimestampType.LOG_APPEND_TIME)
    ] * 2


def test_c25_the_records_of_a_built_batch_can_be_split() -> None:
    rows = [(NOW + n, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in range(5)]
    builder = BatchBuilder(Codec.ZSTD)
    for row in rows:
        builder.append(*row)
    builder.build()
    assert builder.records() == rows
    halves = [BatchBuilder(), BatchBuilder()]
    for index, record in enumerate(builder.records()):
        halves[index >= 2].append(*record)
    batches = [half.build() for half in halves]
    found = [r for batch in batches for r in read_records(batch, 0, read_header(batch))]
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == rows


def test_simple_batch_has_the_given_records_offset_and_codec() -> None:
    batch = simple_batch([(b"k", b"v"), (b"gone", None)], NOW, base_offset=9, codec=Codec.LZ4)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert header.codec is Codec.LZ4
    assert read_records(batch, 0, header) == [
        Record(9, NOW, TimestampType.CREATE_TIME, b"k", b"v"),
        Record(10, NOW, TimestampType.CREATE_TIME, b"gone", None),
    ]


# --- compaction (R-19) --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec)
def test_r19_rewriting_keeps_the_offsets_producer_and_codec_of_a_batch(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    for n in range(100):
        builder.append(NOW + n, b"k%d" % (n % 10), b"v%d" % n, [("h", b"%d" % n)])
    batch = builder.build(
        base_offset=500, leader_epoch=4, producer_id=9, producer_epoch=1, base_sequence=77
    )
    header = read_header(batch)
    kept = read_records(batch, 0, header)[3:90:7]
    rewritten = rewrite_batch(header, kept)
    after = read_header(rewritten)
    verify_crc(rewritten, 0, after)
    assert read_records(rewritten, 0, after) == kept
    for name in ("base_offset", "last_offset_delta", "leader_epoch", "producer_id"):
        assert getattr(after, name) == getattr(header, name)
    for name in ("producer_epoch", "base_sequence", "last_sequence", "codec", "attributes"):
        assert getattr(after, name) == getattr(header, name)
    assert after.max_timestamp == max(record.timestamp for record in kept)
    assert after.record_count == len(kept)


def test_r19_rewriting_without_records_leaves_the_batch_header() -> None:
    batch = simple_batch([(b"k", b"v")] * 4, NOW, producer_id=9, producer_epoch=1, base_sequence=7)
    empty = rewrite_batch(read_header(batch), [], codec=Codec.GZIP)
    header = read_header(empty)
    verify_crc(empty, 0, header)
    assert len(empty) == 61
    assert (header.record_count, header.next_offset, header.last_sequence) == (0, 4, 10)
    assert header.codec is Codec.NONE
    assert read_records(empty, 0, header) == []


def test_rewrite_batch_sets_and_keeps_the_delete_horizon() -> None:
    batch = simple_batch([(b"k", None), (b"l", b"v")], NOW)
    records = read_records(batch, 0, read_header(batch))
    once = rewrite_batch(read_header(batch), records, delete_horizon_ms=NOW + 5)
    header = read_header(once)
    assert header.delete_horizon_ms == NOW + 5
    assert read_records(once, 0, header) == records
    again = read_header(rewrite_batch(header, records[:1], codec=Codec.SNAPPY))
    assert (again.delete_horizon_ms, again.codec) == (NOW + 5, Codec.SNAPPY)


def test_rewrite_batch_keeps_log_append_time() -> None:
    batch = simple_batch([(b"k", b"v")] * 2, 5)
    set_log_append_time(batch, 0, NOW)
    header = read_header(batch)
    rewritten = rewrite_batch(header, read_records(batch, 0, header)[1:])
    (record,) = read_records(rewritten, 0, read_header(rewritten))
    assert (record.timestamp, record.timestamp_type) == (NOW, TimestampType.LOG_APPEND_TIME)


# --- recompression (R-08) -----------------------------------------------------------------------


def body_of(batch: bytearray) -> bytes:
    return read_body(batch, 0, read_header(batch))


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_r08_recompression_changes_nothing_but_the_codec(before: Codec, after: Codec) -> None:
    pairs = [(b"k%d" % n, b"value %d" % n) for n in range(50)]
    batch = simple_batch(pairs, NOW, codec=before, base_offset=3, producer_id=1, producer_epoch=0)
    changed = recompress(read_header(batch), body_of(batch), after)
    header = read_header(changed)
    verify_crc(changed, 0, header)
    assert header.codec is after
    assert changed == simple_batch(
        pairs, NOW, codec=after, base_offset=3, producer_id=1, producer_epoch=0
    )


def test_r08_recompression_renumbers_offsets_and_timestamp_deltas() -> None:
    """The result has Kafka's form: offset deltas from 0, timestamp deltas from the first record,
    and undefined attribute bits cleared."""
    batch = simple_batch([(b"k", b"a"), (b"k", b"b"), (b"k", b"c")], NOW)
    header = read_header(batch)
    gaps = rewrite_batch(header, read_records(batch, 0, header)[1:], delete_horizon_ms=5)
    odd = read_header(gaps)
    odd.attributes |= 0x7F80
    changed = recompress(odd, body_of(gaps), Codec.GZIP)
    now = read_header(changed)
    assert (now.attributes, now.base_timestamp, now.last_offset_delta) == (1, NOW, 1)
    assert [(r.offset, r.timestamp, r.value) for r in read_records(changed, 0, now)] == [
        (0, NOW, b"b"),
        (1, NOW, b"c"),
    ]


def test_r03_recompression_sets_and_clears_log_append_time() -> None:
    batch = simple_batch([(b"k", b"a")], NOW)
    appended = recompress(read_header(batch), body_of(batch), Codec.LZ4, NOW + 7)
    header = read_header(appended)
    assert (header.is_log_append_time, header.max_timestamp) == (True, NOW + 7)
    cleared = read_header(recompress(header, body_of(appended), Codec.NONE))
    assert (cleared.is_log_append_time, cleared.base_timestamp) == (False, NOW + 7)


def test_recompression_refuses_a_base_timestamp_below_minus_one() -> None:
    header = read_header(simple_batch([(b"k", b"a")], NOW))
    header.base_timestamp = -2
    with pytest.raises(ValueError, match="-2"):
        recompress(header, body_of(simple_batch([(b"k", b"a")], NOW)), Codec.GZIP)


def test_update_crc_makes_a_changed_batch_valid_again() -> None:
    batch = simple_batch([(None, b"x")], NOW)
    batch[22] |= 0x10
    with pytest.raises(CorruptBatch):
        verify_crc(batch, 0, read_header(batch))
    update_crc(batch, 0)
    verify_crc(batch, 0, read_header(batch))
