"""Arrow's columns as records: the compiled and the pure codec write the same bytes as the builder
for Python objects."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
import record_codecs
from odradek_protocol.compression import Codec
from odradek_protocol.murmur2 import positive_murmur2
from odradek_protocol.records import native
from odradek_protocol.records.batch import read_header, verify_crc
from odradek_protocol.records.builder import BatchBuilder, BuilderSealed
from odradek_protocol.records.from_arrow import (
    ArrowRecords,
    PureColumns,
    RowTooLarge,
    UnwritableColumn,
    UnwritablePartition,
    UnwritableRow,
)
from odradek_protocol.records.layout import HEADER_BYTES
from odradek_protocol.records.record import read_records

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
OCTETS = st.none() | st.binary(max_size=9) | st.integers(0, 9000).map(bytes)
ITEMS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=3)
TIMES = st.none() | st.integers(NOW - 20_000, NOW + 20_000) | st.sampled_from([-1, 0, 2**63 - 2])
ROWS = st.lists(
    st.tuples(OCTETS, OCTETS, st.none() | ITEMS, st.none() | st.integers(0, 3), TIMES),
    min_size=1,
    max_size=12,
)
Rows = list[tuple[Any, ...]]


@pytest.fixture(params=record_codecs.TWINS, autouse=True, scope="module")
def codec(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "CODEC", record_codecs.twin(request.param))
        yield request.param


def batch_of(rows: Rows, octets: pa.DataType, lists: pa.DataType, cut: int = 0) -> pa.RecordBatch:
    """Put the rows into an Arrow batch with `cut` other rows before and `cut` after them. Returns
    the slice with the rows."""
    keys, values, headers, partitions, times = zip(*rows, strict=True)
    junk: Any = ([b"junk"] * cut, [None] * cut, [[("junk", b"")]] * cut, [99] * cut, [-7] * cut)
    columns = [
        [*some, *column, *some]
        for some, column in zip(junk, (keys, values, headers, partitions, times), strict=True)
    ]
    pairs: Any = [
        None if each is None else [{"key": name, "value": content} for name, content in each]
        for each in columns[2]
    ]
    if pa.types.is_map(lists):
        pairs = [None if each is None else [(p["key"], p["value"]) for p in each] for each in pairs]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(columns[0], octets),
            pa.array(columns[1], octets),
            pa.array(pairs, lists),
            pa.array(columns[3], pa.int32()),
            pa.array(columns[4], pa.int64()),
        ],
        names=["key", "value", "headers", "partition", "timestamp"],
    ).slice(cut, len(rows))


def bodies(records: ArrowRecords, partitions: int, limit_bytes: int) -> list[tuple[Any, ...]]:
    """(partition, rows, encoded batch) for all batches."""
    found: list[tuple[Any, ...]] = []
    for group in records.place(partitions):
        start = group.start
        while start < group.end:
            encoded = records.encode(start, group.end, limit_bytes, NOW, Codec.NONE)
            following = start + encoded.record_count
            rows = list(records.rows(start, following))
            found.append((group.partition, rows, encoded.build()))
            start = following
    return found


@given(
    ROWS,
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.sampled_from(
        [HEADERS, pa.large_list(HEADERS.value_type), pa.map_(pa.string(), pa.binary())]
    ),
    st.integers(0, 9),
    st.sampled_from([1, 100, 9000, 2**20]),
)
@settings(max_examples=budget.examples(150), deadline=None)
def test_batches_from_arrow_equal_those_of_the_builder(
    codec: str, rows: Rows, octets: Any, lists: Any, cut: int, limit_bytes: int
) -> None:
    records = ArrowRecords(batch_of(rows, octets, lists, cut))
    records.check(2**20, 4)
    seen = []
    for partition, numbers, batch in bodies(records, 4, limit_bytes):
        assert len(batch) <= limit_bytes or len(numbers) == 1
        builder = BatchBuilder()
        for number in numbers:
            key, value, headers, chosen, timestamp = rows[number]
            if chosen is None and key is not None:
                chosen = positive_murmur2(key) % 4
            assert chosen == partition
            builder.append(NOW if timestamp is None else timestamp, key, value, headers or ())
        assert batch == builder.build()
        seen += numbers
    assert sorted(seen) == list(range(len(rows)))
    if len({row[3] for row in rows}) == 1:
        assert seen == list(range(len(rows))) or rows[0][3] is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int8(), pa.string_view()),
        pa.dictionary(pa.int8(), pa.binary_view()),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.binary(2),
    ],
    ids=str,
)
def test_arrow_texts_dictionaries_and_fixed_sizes_are_written_as_bytes(kind: Any) -> None:
    contents = [b"ab", None, b"cd", b"ab"] if kind == pa.binary(2) else ["no", None, "é", "é"]
    base = kind.value_type if hasattr(kind, "value_type") else kind
    column = pa.array(contents, pa.string() if pa.types.is_dictionary(kind) else base)
    if pa.types.is_dictionary(kind):
        numbers = pa.array([0, None, 1, 1], pa.int8())
        values = [b"no", "é".encode()] if base == pa.binary_view() else ["no", "é"]
        column = pa.DictionaryArray.from_arrays(numbers, pa.array(values, base))
    elif pa.types.is_run_end_encoded(kind):
        from pyarrow.compute import run_end_encode

        column = run_end_encode(column)
    batch = pa.RecordBatch.from_arrays([column, column], names=["key", "value"]).slice(1)
    records = ArrowRecords(batch)
    keyed, _ = bodies(records, 1, 2**20)
    assert keyed[:2] == (0, [1, 2])
    written = keyed[2]
    found = read_records(written, 0, read_header(written))
    expected = [each.encode() if isinstance(each, str) else each for each in contents[1:]]
    assert [record.value for record in found] == expected[1:]
    assert [record.key for record in found] == [record.value for record in found]


def test_null_columns_and_missing_columns_are_written_as_null() -> None:
    batch = pa.record_batch({"value": pa.nulls(2), "key": pa.nulls(2), "headers": pa.nulls(2)})
    ((partition, rows, written),) = bodies(ArrowRecords(batch), 3, 2**20)
    assert (partition, rows) == (None, [0, 1])
    found = read_records(written, 0, read_header(written))
    assert [(each.key, each.value, each.headers, each.timestamp) for each in found] == [
        (None, None, (), NOW)
    ] * 2
    assert ArrowRecords(batch.slice(0, 0)).place(3) == []


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_become_milliseconds(unit: str) -> None:
    column = pa.array([NOW // 1000 * 1000], pa.timestamp("ms", "UTC")).cast(
        pa.timestamp(unit, "UTC")
    )
    batch = pa.record_batch({"value": pa.array([b"v"]), "timestamp": column})
    ((_, _, written),) = bodies(ArrowRecords(batch), 1, 2**20)
    assert read_header(written).base_timestamp == NOW // 1000 * 1000


def test_headers_in_a_slice_of_a_struct_array_are_written() -> None:
    items = pa.StructArray.from_arrays(
        [pa.array(["no", "a", "b", "no"]), pa.array([b"0", b"1", None, b"3"])],
        names=["key", "value"],
    ).slice(1, 2)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), items)
    batch = pa.RecordBatch.from_arrays([pa.array([b"v", b"w"]), lists], names=["value", "headers"])
    ((_, _, written),) = bodies(ArrowRecords(batch.slice(1)), 1, 2**20)
    (record,) = read_records(written, 0, read_header(written))
    assert (record.value, record.headers) == (b"w", (("b", None),))


@pytest.mark.parametrize("compression", list(Codec))
def test_encoded_records_are_a_sealed_batch_with_every_codec(compression: Codec) -> None:
    rows: Rows = [(b"k", b"v" * 500, [("h", b"1")], 0, NOW + n) for n in range(50)]
    records = ArrowRecords(batch_of(rows, pa.binary(), HEADERS))
    records.place(1)
    encoded = records.encode(0, 50, 2**20, NOW, compression)
    written = encoded.build(producer_id=7, producer_epoch=1, base_sequence=9, transactional=True)
    header = read_header(written)
    verify_crc(written, 0, header)
    assert len(written) == encoded.batch_bytes
    assert (header.codec, header.producer_id, header.base_sequence) == (compression, 7, 9)
    assert header.is_transactional and header.max_timestamp == NOW + 49
    assert [record.value for record in read_records(written, 0, header)] == [b"v" * 500] * 50
    assert [tuple(row) for row in encoded.records()] == [
        (NOW + n, b"k", b"v" * 500, (("h", b"1"),)) for n in range(50)
    ]
    builder = BatchBuilder()
    for row in encoded.records():
        builder.append(*row)
    assert encoded.estimated_bytes == len(builder.build())
    with pytest.raises(BuilderSealed):
        encoded.append(NOW, None, b"v")


# --- what cannot be written -----------------------------------------------------------------------


def test_the_error_for_an_unwritable_row_names_row_and_column() -> None:
    def check(max_bytes: int = 2**20, **columns: Any) -> None:
        ArrowRecords(pa.record_batch({"value": pa.array([b"v"] * 3), **columns})).check(
            max_bytes, 4
        )

    check()
    with pytest.raises(UnwritablePartition, match=r"row 2, column partition: .* 0 to 3, not 4"):
        check(partition=pa.array([0, None, 4], pa.int32()))
    with pytest.raises(UnwritablePartition, match=r"row 1, column partition: .*, not -1"):
        check(partition=pa.array([0, -1, 4], pa.int8()))
    with pytest.raises(UnwritableRow, match="row 1, column timestamp: -2 is not in ms"):
        check(timestamp=pa.array([-1, -2, 0], pa.int64()))
    headers = [[], [{"key": None, "value": b""}], []]
    with pytest.raises(UnwritableRow, match="row 1, column headers: a header has no key"):
        check(headers=pa.array(headers, HEADERS))
    with pytest.raises(UnwritableRow, match="row 2, column headers: a header has no key"):
        check(headers=pa.array([[], None, [None]], HEADERS))
    with pytest.raises(RowTooLarge, match=r"row 1 takes 9094 bytes .*, 9000 are allowed"):
        check(9000, key=pa.array([b"", bytes(9000), b""]))


def test_arrow_columns_of_other_names_and_types_are_refused() -> None:
    def refused(match: str, **columns: Any) -> None:
        with pytest.raises(UnwritableColumn, match=match):
            ArrowRecords(pa.record_batch(columns))

    value = pa.array([b"v"])
    refused("there is no column 'value'; the columns are key", key=value)
    refused("no part of a record is called 'offset'", value=value, offset=pa.array([1]))
    refused("column 'value' is int64, but must be binary or string", value=pa.array([1]))
    refused("column 'partition' is string", value=value, partition=pa.array(["1"]))
    refused("column 'partition' is int64 and no int32", value=value, partition=pa.array([2**40]))
    refused("column 'timestamp' is double", value=value, timestamp=pa.array([1.5]))
    far = pa.array([10**17], pa.timestamp("s"))
    refused(r"column 'timestamp' is timestamp\[s\] and no", value=value, timestamp=far)
    refused("column 'headers' is list<", value=value, headers=pa.array([["a"]]))
    refused("column 'headers' is string", value=value, headers=pa.array(["a"]))
    twice = pa.RecordBatch.from_arrays([value, value], names=["value", "value"])
    with pytest.raises(UnwritableColumn, match="more than one column 'value'"):
        ArrowRecords(twice)
    with pytest.raises(
        TypeError, match=r"not Table; the batches of a Table are in table.to_batches"
    ):
        ArrowRecords(pa.table({"value": value}))


def test_an_arrow_array_with_ends_beyond_its_data_is_refused_as_damaged() -> None:
    # pyarrow itself checks only the last offset.
    ends = pa.py_buffer(array("i", [0, 5, 99, 11]))
    column = pa.Array.from_buffers(pa.binary(), 3, [None, ends, pa.py_buffer(b"firstsecond")])
    records = ArrowRecords(pa.RecordBatch.from_arrays([column], names=["value"]))
    with pytest.raises(UnwritableRow, match="row 1, column value: the array is damaged"):
        records.check(2**20, 1)
    with pytest.raises(ValueError, match="changed while they were read"):
        records.encode(0, 3, 2**20, NOW, Codec.NONE)


SMALL = st.integers(-3, 40)
BUFFERS = st.none() | st.binary(max_size=40)
ENDS = st.none() | st.lists(SMALL, max_size=8).map(lambda ends: array("i", ends).tobytes())
WIDE_ENDS = st.none() | st.lists(SMALL, max_size=8).map(lambda ends: array("q", ends).tobytes())
PLACES = st.integers(0, 5)
CELLS = st.tuples(st.just(False), PLACES, BUFFERS, ENDS, BUFFERS) | st.tuples(
    st.just(True), PLACES, BUFFERS, WIDE_ENDS, BUFFERS
)
STAMPS = st.none() | st.lists(st.sampled_from([-2, -1, 0, NOW, 2**63 - 1]), max_size=6).map(
    lambda numbers: struct.pack(f"{len(numbers)}q", *numbers)
)


@given(
    st.integers(0, 6),
    st.none() | CELLS,
    st.none() | CELLS,
    st.none() | st.tuples(st.integers(0, 6), CELLS, CELLS, CELLS, CELLS),
    st.none() | st.tuples(st.just(True), PLACES, BUFFERS, st.none(), STAMPS),
    st.none() | st.tuples(st.just(False), PLACES, BUFFERS, st.none(), ENDS),
    st.integers(-1, 70) | st.just(2**31),
    st.integers(0, 5),
    st.none() | ENDS,
    SMALL,
    SMALL,
    st.sampled_from([-2, -1, NOW, 2**63 - 1]),
)
@settings(max_examples=budget.examples(600), deadline=None)
def test_both_twins_give_the_same_results_for_random_arrow_buffers(
    codec: str, count: int, key: Any, value: Any, headers: Any, timestamps: Any, partitions: Any,
    max_bytes: int, number: int, order: Any, start: int, end: int, now_ms: int,
) -> None:  # fmt: skip
    if codec == "pure":
        pytest.skip("one comparison is enough")
    columns = (count, key, value, headers, timestamps, partitions)
    compiled, pure = native.CODEC.Columns(*columns), PureColumns(*columns)
    assert compiled.check(max_bytes, number) == pure.check(max_bytes, number)
    assert compiled.place(number) == pure.place(number)
    arguments = (order, start, end, max_bytes, now_ms)
    assert compiled.encode(*arguments) == pure.encode(*arguments)


def test_the_compiled_columns_refuse_invalid_arguments(codec: str) -> None:
    if codec == "pure":
        pytest.skip("the compiled one's")
    columns = native.CODEC.Columns
    with pytest.raises(ValueError, match="number of rows"):
        columns(-1, None, None, None, None, None)
    with pytest.raises(ValueError, match="offset"):
        columns(1, (False, -1, None, None, None), None, None, None, None)
    with pytest.raises(TypeError):
        columns(1, (False, 0, "text", None, None), None, None, None, None)
    with pytest.raises(TypeError):
        columns(1, 7, None, None, None, None)
    with pytest.raises(ValueError, match="number of headers"):
        columns(1, None, None, (-1, *[(False, 0, None, None, None)] * 4), None, None)


def test_a_batch_takes_at_least_one_record_whatever_the_limit() -> None:
    records = ArrowRecords(pa.record_batch({"value": pa.array([b"v", b"w"])}))
    assert records.encode(0, 2, 0, NOW, Codec.NONE).record_count == 1
    both = records.encode(0, 2, 2**20, NOW, Codec.NONE)
    assert both.record_count == 2
    assert records.encode(0, 2, both.estimated_bytes, NOW, Codec.NONE).record_count == 2
    assert records.encode(0, 2, both.estimated_bytes - 1, NOW, Codec.NONE).record_count == 1
    assert both.estimated_bytes == HEADER_BYTES + len(both.build()) - HEADER_BYTES
