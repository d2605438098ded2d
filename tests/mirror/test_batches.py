"""The batches that a mirror copies, unchanged or rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_mirror.batches import SMALL_BATCH_BYTES, ConsecutiveOffsets, Copied, copy_batches
from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import (
    CorruptBatch,
    iter_batches,
    read_header,
    set_log_append_time,
    verify_crc,
)
from odradek_protocol.records.builder import BatchBuilder, control_batch
from odradek_protocol.records.record import Record, read_records
from odradek_protocol.schemas.fetch import AbortedTransaction
from odradek_protocol.stored.control_marker import ControlType
from rewritten_batches import rewrite_batch

BIG = b"v" * SMALL_BATCH_BYTES
OFFSET_HEADER = "source-offset"
HEADERS = [("a", b"1"), ("e", None), ("\udcff", b"")]


def batch(
    base: int, values: Sequence[bytes | None], codec: Codec = Codec.NONE, **fields: Any
) -> bytearray:
    builder = BatchBuilder(codec)
    for number, value in enumerate(values):
        key = None if number % 3 == 2 else b"k%d" % (base + number)
        headers = HEADERS if number % 2 else []
        builder.append(1_000 + base * 10 + number, key, value, headers)
    return builder.build(base_offset=base, leader_epoch=7, **fields)


def with_gaps(data: bytearray, keep: set[int], horizon: int | None = None) -> bytearray:
    header = read_header(data)
    records = [each for each in read_records(data, 0, header) if each.offset in keep]
    return rewrite_batch(header, records, delete_horizon_ms=horizon)


def copied(data: bytes, offset: int = 0, aborted: Any = None, **options: Any) -> Copied:
    return copy_batches(memoryview(data), offset, aborted, **options)


def sent(found: Copied) -> list[tuple[int, Record]]:
    """Check the copied batches; returns each stored record with its offset at the source."""
    records: list[tuple[int, Record]] = []
    for each in found.batches:
        data = each.records.build(
            producer_id=5, producer_epoch=1, base_sequence=9, transactional=True
        )
        header = read_header(data)
        verify_crc(data, 0, header)
        assert header.size_bytes == len(data)
        assert (header.base_offset, header.leader_epoch, header.producer_id) == (0, -1, 5)
        assert (header.producer_epoch, header.base_sequence) == (1, 9)
        assert header.is_transactional and not header.is_control
        assert not header.is_log_append_time and not header.has_delete_horizon
        inside = read_records(data, 0, header)
        assert [record.offset for record in inside] == list(range(len(inside)))
        assert header.last_offset_delta == len(inside) - 1
        assert header.max_timestamp == max(record.timestamp for record in inside)
        sources = [span.first + at for span in each.spans for at in range(span.length)]
        records += zip(sources, inside, strict=True)
    assert found.record_count == len(records)
    return records


def content(record: Record) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value, record.headers


def stored(data: bytes, offset: int = 0) -> list[tuple[int, tuple[Any, ...]]]:
    return [
        (record.offset, content(record))
        for position, header in iter_batches(data)
        for record in read_records(data, position, header)
        if record.offset >= offset
    ]


def check(data: bytes, offset: int = 0) -> Copied:
    """Check that a copy has the same records in the same order; returns the copy."""
    found = copied(data, offset)
    assert [(source, content(record)) for source, record in sent(found)] == stored(data, offset)
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_i32_the_body_of_an_ordinary_batch_is_copied_unchanged(codec: Codec) -> None:
    noise = bytes(range(256)) * 100
    data = batch(30, [BIG, None, noise, b""], codec) + batch(34, [BIG + noise], codec)
    found = check(bytes(data), 30)
    bodies = [bytes(each.records.build()[61:]) for each in found.batches]
    if found.untouched == 2:
        assert bodies == [bytes(data[p + 61 : p + h.size_bytes]) for p, h in iter_batches(data)]
    assert found.untouched == 2 or codec is not Codec.NONE, "well compressed, so small"
    assert found.next_offset == 35
    assert [each.records.codec for each in found.batches] == [codec] * len(found.batches)


def test_producer_ids_and_transactional_flags_are_not_copied() -> None:
    data = batch(0, [BIG], producer_id=1, producer_epoch=2, base_sequence=3, transactional=True)
    assert check(bytes(data)).untouched == 1


def test_a_start_inside_of_a_batch_leaves_out_the_records_before_it() -> None:
    data = batch(10, [BIG, b"b", b"c"])
    found = check(bytes(data), 11)
    assert (found.untouched, found.record_count, found.next_offset) == (0, 2, 13)
    assert check(bytes(data), 13).record_count == 0


def test_compaction_gaps_separate_spans() -> None:
    data = with_gaps(batch(0, [BIG, b"b", b"c", b"d"]), {0, 3}) + batch(4, [BIG])
    found = check(bytes(data))
    assert [list(each.spans) for each in found.batches] == [
        [ConsecutiveOffsets(0, 1), ConsecutiveOffsets(3, 1)],
        [ConsecutiveOffsets(4, 1)],
    ]


def test_a_delete_horizon_is_not_taken_for_a_timestamp() -> None:
    check(bytes(with_gaps(batch(0, [BIG, b"b"]), {0, 1}, horizon=999_999)))


def test_a_batch_without_records_moves_the_position() -> None:
    found = check(bytes(with_gaps(batch(0, [b"a", b"b"]), set())))
    assert (found.batches, found.next_offset) == ([], 2)


def test_log_append_times_become_record_timestamps() -> None:
    data = batch(0, [BIG, b"b"])
    set_log_append_time(data, 0, 77_000)
    check(bytes(data))
    assert {record.timestamp for _, record in sent(copied(bytes(data)))} == {77_000}


def test_small_batches_are_combined() -> None:
    data = b"".join(batch(number, [b"%d" % number], Codec.GZIP) for number in range(2000))
    found = check(data)
    assert 2 <= len(found.batches) < 20
    assert all(len(each.records.build()) < 70_000 for each in found.batches)


def test_the_order_is_kept_when_small_and_large_batches_alternate() -> None:
    data, base = bytearray(), 0
    for number in range(40):
        values = [BIG] if number % 3 == 0 else [b"small", b"too"]
        data += batch(base, values)
        base += len(values)
    assert check(bytes(data)).untouched >= 14


def test_aborted_transactions_and_markers_are_left_out() -> None:
    fields: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    data = (
        batch(0, [b"kept"], producer_id=1, **fields)
        + batch(1, [BIG], producer_id=2, **fields)
        + control_batch(ControlType.ABORT, 0, 2, 0, 5, base_offset=2)
        + batch(3, [b"kept too"], producer_id=2, **fields)
        + control_batch(ControlType.COMMIT, 0, 2, 0, 5, base_offset=4)
        + control_batch(ControlType.COMMIT, 0, 1, 0, 5, base_offset=5)
    )
    aborted = [AbortedTransaction(producer_id=2, first_offset=1)]
    found = copied(bytes(data), aborted=aborted)
    assert [(at, record.value) for at, record in sent(found)] == [(0, b"kept"), (3, b"kept too")]
    assert found.next_offset == 6
    behind = copied(bytes(data), offset=3, aborted=aborted)
    assert [at for at, _ in sent(behind)] == [3], "the abort before the offset counts"


def test_the_source_offset_is_a_header_if_asked_for() -> None:
    found = copied(bytes(batch(40, [BIG, b"b"])), 40, offset_header=OFFSET_HEADER)
    assert [(source, record.headers[-1]) for source, record in sent(found)] == [
        (40, (OFFSET_HEADER, b"40")),
        (41, (OFFSET_HEADER, b"41")),
    ]
    assert sent(found)[1][1].headers[:-1] == tuple(HEADERS)


def test_a_damaged_batch_is_not_copied() -> None:
    data = batch(0, [BIG, b"b"])
    data[-3] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        copied(bytes(data))


KINDS = st.tuples(
    st.integers(1, 4),
    st.sampled_from([b"s", BIG, None]),
    st.sampled_from(list(Codec)),
    st.sampled_from(["plain", "gaps", "append time", "horizon", "empty"]),
)


@given(kinds=st.lists(KINDS, max_size=6), offset=st.integers(0, 8))
def test_i32_any_mixture_of_batches_is_copied_in_order(
    kinds: list[tuple[int, bytes | None, Codec, str]], offset: int
) -> None:
    data, base = bytearray(), 0
    for count, value, codec, kind in kinds:
        made = batch(base, [value] * count, codec)
        if kind == "gaps":
            made = with_gaps(made, set(range(base, base + count, 2)))
        elif kind == "append time":
            set_log_append_time(made, 0, 123_456)
        elif kind == "horizon":
            made = with_gaps(made, set(range(base, base + count)), horizon=55)
        elif kind == "empty":
            made = with_gaps(made, set())
        data += made
        base += count
    assert check(bytes(data), offset).next_offset == max(base, offset)
