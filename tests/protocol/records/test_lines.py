"""Conversion of lines to records and back, in the compiled and in the pure codec."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import record_codecs
from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import CorruptBatch, read_header
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.records.from_arrow import RowTooLarge
from odradek_protocol.records.lines import LineRecords, ValueLines, join_lines, split_lines
from odradek_protocol.records.record import read_body, read_records

pytestmark = pytest.mark.usefixtures("codec_twin")

NOW = 1_700_000_000_000


@given(
    data=st.lists(st.sampled_from([b"a", b"b", b";", b"--", b"-"])).map(b"".join),
    delimiter=st.sampled_from([b";", b"--", b"-", b"a-"]),
)
def test_data_is_split_into_lines_at_each_delimiter(data: bytes, delimiter: bytes) -> None:
    values, ends, used = split_lines(data, delimiter)
    *lines, rest = data.split(delimiter)
    assert (values, data[used:]) == (b"".join(lines), rest)
    assert join_lines(values, ends, delimiter) == data[:used]
    records = LineRecords(data, delimiter)
    assert [records.line(row) for row in range(records.count)] == lines
    assert (records.count, records.used_bytes) == (len(lines), used)


def test_many_lines_and_a_very_long_line_are_split() -> None:
    data = b"\n" * 5_000 + b"x" * 300_000 + b"\n" + b"ab\n" * 5_000
    values, ends, used = split_lines(data, b"\n")
    assert (len(values), len(ends), used) == (310_000, 4 * 10_002, len(data))
    assert join_lines(values, ends, b"\n") == data


@pytest.mark.parametrize("ends", [[1, 2], [0, 2, 1], [0, 3], [0, -1], [5]])
def test_line_ends_that_do_not_fit_the_values_are_refused(ends: list[int]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        join_lines(b"ab", array("i", ends).tobytes(), b"\n")


def test_empty_data_has_no_line() -> None:
    assert join_lines(b"", b"", b"\n") == b""
    assert split_lines(b"", b"\n") == (b"", bytes(4), 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_lines_become_values_without_key_and_headers(codec: Codec) -> None:
    lines = [b"", b"\x00\xff", b"v" * 9000, *(b"%d" % n for n in range(300))]
    records = LineRecords(b"".join(line + b"\r\n" for line in lines), b"\r\n")
    start, found = 0, []
    while start < records.count:
        encoded = records.encode(start, records.count, 2_000, NOW, codec)
        batch = encoded.build()
        header = read_header(batch)
        found += read_records(batch, 0, header)
        assert (
            header.record_count
            == encoded.record_count
            == len(records.rows(start, start + encoded.record_count))
        )
        start += encoded.record_count
    assert [record.value for record in found] == lines
    assert {(record.key, record.headers, record.timestamp) for record in found} == {(None, (), NOW)}


def test_the_first_line_that_is_too_large_is_named() -> None:
    records = LineRecords(b"a\n" + b"b" * 500 + b"\n" + b"c" * 600 + b"\n", b"\n")
    records.check(700)
    with pytest.raises(RowTooLarge) as refused:
        records.check(500)
    assert refused.value.row == 1
    with pytest.raises(ValueError, match="lines 3 to 4 of 3"):
        records.encode(3, 4, 500, NOW, Codec.NONE)


def batch_of(values: list[bytes | None], base_offset: int, timestamp: int = NOW) -> Any:
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp, b"key", value, [("h", b"1")])
    batch = builder.build(base_offset=base_offset)
    header = read_header(batch)
    return header, read_body(batch, 0, header)


def test_record_values_are_joined_as_lines_up_to_an_end_offset() -> None:
    lines = ValueLines(b"|", {("t", 0): 14})
    assert lines.add("t", 0, *batch_of([b"a", None, b"c"], 10), first=11) == -1
    assert lines.positions == {("t", 0): 13}
    assert lines.add("t", 1, *batch_of([b"x", b"y", b"z"], 5), first=5, limit=2) == 7
    assert lines.add("t", 0, *batch_of([b"d", b"e", b"f"], 13), first=13) == -1
    assert (lines.count, lines.is_full) == (5, False)
    assert lines.firsts == {("t", 0): 11, ("t", 1): 5}
    assert lines.positions == {("t", 0): 14, ("t", 1): 7}
    assert lines.take() == b"|c|x|y|d|"
    assert (lines.count, lines.take(), lines.firsts, lines.positions) == (0, b"", {}, {})


def test_record_values_are_joined_as_lines_for_any_timestamp() -> None:
    """The record's timestamp is too large for Arrow's microseconds, but lines need no timestamp."""
    lines = ValueLines(b"\n", {})
    assert lines.add("t", 0, *batch_of([b"v"], 0, 2**63 - 2)) == -1
    assert lines.take() == b"v\n"


def test_value_lines_are_full_after_enough_bytes() -> None:
    lines = ValueLines(b"\n", {})
    lines.add("t", 0, *batch_of([bytes(600_000), bytes(600_000)], 0))
    assert lines.is_full


def test_a_damaged_batch_adds_no_line() -> None:
    lines = ValueLines(b"\n", {})
    header, body = batch_of([b"a", b"b"], 0)
    with pytest.raises(CorruptBatch):
        lines.add("t", 0, header, body[:-1])
    assert lines.count == 0


def test_the_compiled_twin_refuses_invalid_arguments() -> None:
    compiled: ModuleType | None = record_codecs.twin("compiled")
    assert compiled is not None
    assert compiled.split_lines(b"abc", b"") is None
    for call, arguments in (
        (compiled.split_lines, (bytearray(b"a"), b"\n")),
        (compiled.split_lines, (b"a",)),
        (compiled.join_lines, ("a", b"", b"\n")),
    ):
        with pytest.raises(TypeError):
            call(*arguments)
