"""Conversion of fetched bytes to Arrow: exactly the requested records, and exactly Spark's
columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from odradek_protocol.compression import Codec
from odradek_protocol.records.arrow import arrow_schema, chosen_columns
from odradek_protocol.records.batch import CorruptBatch, update_crc
from odradek_protocol.records.builder import BatchBuilder, control_batch, simple_batch
from odradek_protocol.records.layout import LAST_OFFSET_DELTA_AT
from odradek_protocol.schemas.fetch import AbortedTransaction
from odradek_protocol.stored.control_marker import ControlType
from pyspark_odradek import fetching
from pyspark_odradek.fetching import RowDecodeSettings, decode, next_offset
from pyspark_odradek.planning import OffsetRange, Partition

pytestmark = pytest.mark.usefixtures("codec_twin")

P = Partition("t", 3)


def batch(first: int, count: int, **more: Any) -> bytearray:
    pairs = [(b"k%d" % n, b"v%d" % n) for n in range(first, first + count)]
    return simple_batch(pairs, 1_700_000_000_123, base_offset=first, **more)


def with_gap_after(data: bytearray, last_offset_delta: int) -> bytearray:
    """Change a batch as if compaction had removed its last records."""
    data[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = last_offset_delta.to_bytes(4, "big")
    update_crc(data, 0)
    return data


def rows(
    data: bytes | bytearray,
    start: int = 0,
    end: int = 1_000_000,
    aborted: Sequence[AbortedTransaction] | None = None,
    include_headers: bool = False,
    **flags: bool,
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    settings = RowDecodeSettings(columns=chosen_columns(None, include_headers), **flags)
    for each in decode(data, OffsetRange(P, start, end), aborted, settings):
        assert each.schema.equals(arrow_schema(settings.columns))
        found += each.to_pylist()
    return found


def offsets(*arguments: Any, **settings: Any) -> list[int]:
    return [row["offset"] for row in rows(*arguments, **settings)]


def test_a_row_has_every_field_of_its_record() -> None:
    builder = BatchBuilder()
    builder.append(1_700_000_000_123, None, None)
    builder.append(-1, b"k", b"")
    first, second = rows(builder.build(base_offset=7))
    assert first["key"] is None and first["value"] is None
    assert (first["topic"], first["partition"], first["offset"]) == ("t", 3, 7)
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert first["timestampType"] == 0
    assert (second["key"], second["value"]) == (b"k", b"")
    assert second["timestamp"].timestamp() == -0.001


def test_log_append_time_is_type_one() -> None:
    builder = BatchBuilder()
    builder.append(5, b"k", b"v")
    data = builder.build(log_append_time_ms=9_000)
    found = rows(bytes(data) + bytes(batch(1, 1)))
    assert [row["timestampType"] for row in found] == [1, 0]
    assert found[0]["timestamp"].timestamp() == 9.0


def test_headers_of_a_record_without_headers_are_null() -> None:
    builder = BatchBuilder()
    builder.append(0, b"k", b"v", [("a", b"1"), ("b", None), ("a", b"2")])
    builder.append(0, b"k", b"v")
    with_headers, without = rows(builder.build(), include_headers=True)
    assert with_headers["headers"] == [
        {"key": "a", "value": b"1"},
        {"key": "b", "value": None},
        {"key": "a", "value": b"2"},
    ]
    assert without["headers"] is None
    (plain,) = rows(batch(0, 1), include_headers=True)
    assert plain["headers"] is None


def test_a_header_key_of_invalid_utf8_is_read_with_replacements() -> None:
    builder = BatchBuilder()
    builder.append(0, b"k", b"v", [("xx", b"1")])
    data = bytearray(builder.build())
    data[data.index(b"xx")] = 0xFF
    update_crc(data, 0)
    (row,) = rows(data, include_headers=True)
    assert row["headers"][0]["key"] == "\ufffdx"


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_every_codec_are_read(codec: Codec) -> None:
    assert offsets(batch(0, 50, codec=codec), 0, 50) == list(range(50))


def test_only_records_of_the_range_become_rows() -> None:
    data = bytes(batch(0, 10)) + bytes(batch(10, 10)) + bytes(batch(20, 10))
    assert offsets(data, 5, 23) == list(range(5, 23))
    assert offsets(data, 30, 40) == []
    assert offsets(data, 12, 13) == [12]


def test_r19_the_next_offset_comes_from_the_header_across_gaps() -> None:
    data = with_gap_after(batch(0, 3), 99)
    assert next_offset(data, 0) == 100
    assert offsets(bytes(data) + bytes(batch(100, 1))) == [0, 1, 2, 100]


def test_r14_a_partial_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    data = bytes(batch(0, 3)) + bytes(batch(3, 3))[:-1]
    assert next_offset(data, 0) == 3
    assert offsets(data) == [0, 1, 2]
    assert next_offset(bytes(batch(3, 3))[:40], 3) == 3


def test_control_records_are_never_rows() -> None:
    data = (
        bytes(batch(0, 2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
        + bytes(control_batch(ControlType.COMMIT, 0, 1, 0, 5, base_offset=2))
        + bytes(batch(3, 1))
    )
    assert offsets(data) == [0, 1, 3]
    assert offsets(data, read_committed=True) == [0, 1, 3]
    assert next_offset(data[: -len(batch(3, 1))], 0) == 3


def test_f10_records_of_aborted_transactions_are_hidden_from_read_committed() -> None:
    mine = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    others = {"producer_id": 2, "producer_epoch": 0, "transactional": True}
    data = b"".join(
        map(
            bytes,
            (
                batch(0, 2, base_sequence=0, **mine),
                batch(2, 2, base_sequence=0, **others),
                control_batch(ControlType.ABORT, 0, 1, 0, 5, base_offset=4),
                batch(5, 1, base_sequence=2, **mine),
                control_batch(ControlType.COMMIT, 0, 2, 0, 5, base_offset=6),
                control_batch(ControlType.COMMIT, 0, 1, 0, 5, base_offset=7),
            ),
        )
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    assert offsets(data, 0, 100, aborted, read_committed=True) == [2, 3, 5]
    assert offsets(data, 0, 100, aborted) == [0, 1, 2, 3, 5]


def test_k16_a_damaged_batch_is_an_error_unless_check_crcs_is_false() -> None:
    data = batch(0, 3)
    data[-2] ^= 1
    with pytest.raises(CorruptBatch):
        rows(data)
    assert len(rows(data, check_crcs=False)) == 3


def test_large_answers_become_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "ROWS_MAX", 25)
    data = b"".join(bytes(batch(n * 10, 10)) for n in range(10))
    found = list(decode(data, OffsetRange(P, 0, 100), None, RowDecodeSettings()))
    assert [each.num_rows for each in found] == [30, 30, 30, 10]


def test_arrow_batches_are_limited_by_decompressed_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "BYTES_MAX", 10_000)
    zeros = [
        simple_batch([(None, b"\0" * 8_000)], 0, base_offset=n, codec=Codec.ZSTD) for n in range(4)
    ]
    data = b"".join(map(bytes, zeros))
    assert len(data) < 10_000
    found = list(decode(data, OffsetRange(P, 0, 100), None, RowDecodeSettings()))
    assert [each.num_rows for each in found] == [2, 2]
