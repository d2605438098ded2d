"""The compiled record codec compared with the pure one: both give the same values, bytes and errors
for any input."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import budget
import record_codecs
from odradek_protocol.records import native, record
from odradek_protocol.records.arrow import PureRows, TimestampBeyondMicroseconds, _refuse
from odradek_protocol.records.batch import CorruptBatch
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.records.encoding import encode_headers, encode_rows
from odradek_protocol.records.place import PurePlace
from odradek_protocol.records.record import (
    RecordsScanned,
    parse_records,
    placed_columns,
    scan_records,
)
from odradek_protocol.records.varint import zigzag_encode
from odradek_protocol.records.writer import SLOW_PATH, BatchWriter, PureBatchWriter

NOW = 1_700_000_000_000
MAX_INT64 = 2**63 - 1

OCTETS = st.none() | st.binary(max_size=40) | st.integers(0, 9000).map(bytes)
NAMES = st.text(max_size=6) | st.sampled_from(["a", "trace", "\udcff", "naïve"])
HEADERS: Any = st.just([]) | st.lists(
    st.tuples(NAMES, st.none() | st.binary(max_size=9)), max_size=3
)
TIMES = st.integers(NOW - 20_000, NOW + 20_000) | st.sampled_from([NOW, -1, 0, 2**62, 2**63 - 2])
ROWS = st.lists(st.tuples(TIMES, OCTETS, OCTETS, HEADERS), min_size=1, max_size=12)
INT64 = st.integers(-(2**63), MAX_INT64) | st.sampled_from([0, NOW, MAX_INT64, -(2**63)])
DELTAS = st.integers(-2, 20) | st.integers(-(2**31), 2**31 - 1)


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    module = record_codecs.twin("compiled")
    assert module is not None
    return module


def with_twin(codec: ModuleType | None, call: Callable[[], Any]) -> Any:
    """The result of `call` with this codec (None: the pure one), or its error in a comparable
    form."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "CODEC", codec)
        try:
            return call()
        except CorruptBatch as error:
            return type(error), str(error)


def body_of(rows: list[Any]) -> bytes:
    """The records encoded by the pure codec."""
    blocks = {index: encode_headers(row[3]) for index, row in enumerate(rows) if row[3]}
    body = with_twin(None, lambda: encode_rows(rows, blocks, rows[0][0]))
    assert isinstance(body, bytes)
    return body


def parsed(data: bytes, count: int) -> tuple[Any, ...]:
    found = parse_records(data, count)
    return (
        found.timestamp_deltas,
        found.offset_deltas,
        found.keys,
        found.values,
        found.header_column(),
        found.in_order,
    )


def placement(draw: Callable[[Any], Any]) -> tuple[int, int, int, int | None]:
    """Draw (base offset, last offset delta, base timestamp, append time)."""
    return draw(INT64), draw(DELTAS), draw(INT64), draw(st.none() | INT64)


def gathered(
    rows: Any, data: bytes, count: int, place: tuple[int, int, int, int | None], window: Any
) -> Any:
    """The result of `add` or its error, and the number and size of the rows afterwards."""
    first, end, limit = window
    try:
        left = rows.add(data, count, *place, first, end, limit)
        if left is None:
            # The compiled codec leaves this kind of error to Python code, as in ArrowRows.
            _refuse(placed_columns(data, count, *place), first, end, limit)
            raise AssertionError("the compiled twin refused what the pure one takes")
    except CorruptBatch as error:
        left = type(error), str(error)
    return left, rows.count, rows.size_bytes


def agree(
    compiled: ModuleType,
    data: bytes,
    count: int,
    place: tuple[int, int, int, int | None],
    window: tuple[int, int, int],
    wanted: int,
) -> None:
    """Check that both codecs read `data` with the same result, as Python objects and as Arrow
    buffers."""
    reads = [with_twin(codec, lambda: parsed(data, count)) for codec in (compiled, None)]
    assert reads[0] == reads[1]
    scans = [with_twin(codec, lambda: scan_records(data, count)) for codec in (compiled, None)]
    assert scans[0] == scans[1]
    assert isinstance(scans[0], RecordsScanned) == (count > 0 and isinstance(reads[0][0], list))
    fast, plain = compiled.Rows(wanted), PureRows(wanted)
    sound = body_of([(NOW, b"k", None, [("a", b"1")]), (NOW, None, b"v", [])])
    for some, number in ((sound, 2), (data, count), (sound, 2)):
        where = place if some is data else (0, 1, NOW, None)
        ways = window if some is data else (0, MAX_INT64, 5)
        one = with_twin(compiled, lambda: gathered(fast, some, number, where, ways))  # noqa: B023
        other = with_twin(None, lambda: gathered(plain, some, number, where, ways))  # noqa: B023
        assert one == other
    assert fast.take() == plain.take()
    assert fast.take() == plain.take() == (0, 0, (b"",) * 15)


def appended(
    writer: BatchWriter, rows: list[Any], limit_bytes: int = MAX_INT64
) -> tuple[list[Any], bytes, bytes]:
    """Append all rows. Returns the results of `append`, the timestamps, and the encoded records."""
    told = []
    for timestamp, key, value, headers in rows:
        block = encode_headers(headers) if headers else None
        index = writer.append(timestamp, key, value, block, limit_bytes)
        told.append((index, writer.count, writer.estimated_bytes, writer.max_timestamp))
    timestamps = writer.timestamps()
    body = writer.body()
    assert writer.seal() == body
    assert writer.append(NOW, None, None, None, limit_bytes) == SLOW_PATH
    return told, timestamps, body


@given(rows=ROWS, limit_bytes=st.just(MAX_INT64) | st.integers(0, 30_000))
def test_both_twins_write_the_same_bytes(
    compiled: ModuleType, rows: list[Any], limit_bytes: int
) -> None:
    """Both codecs also refuse the same rows for lack of room, and accept the same rows
    afterwards."""
    fast, plain = compiled.BatchWriter(), PureBatchWriter()
    assert appended(fast, rows, limit_bytes) == appended(plain, rows, limit_bytes)
    assert fast.base_timestamp == plain.base_timestamp


@pytest.mark.parametrize("count", budget.of_which([1, 63, 64, 65, 8191, 8193], [1, 64, 65]))
@pytest.mark.parametrize("value", [None, b"", b"v" * 63, b"v" * 64, b"v" * 8192])
def test_both_twins_write_the_same_bytes_at_every_width(
    compiled: ModuleType, count: int, value: bytes | None
) -> None:
    rows: list[Any] = [(NOW + n % 3 * 100, None, value, ()) for n in range(count)]
    told, _, body = appended(compiled.BatchWriter(), rows)
    assert (told, body) == (appended(PureBatchWriter(), rows)[0], body_of(rows))
    agree(compiled, body, count, (7, count - 1, NOW, None), (7, MAX_INT64, count), 15)


class _Number(int):
    pass


class _Octets(bytes):
    pass


@pytest.mark.parametrize(
    "row",
    [
        (float(NOW), None, b"v", None, MAX_INT64),
        (_Number(NOW), None, b"v", None, MAX_INT64),
        (True, None, b"v", None, MAX_INT64),
        (2**63 - 1, None, b"v", None, MAX_INT64),
        (2**64, None, b"v", None, MAX_INT64),
        (-2, None, b"v", None, MAX_INT64),
        (NOW, "k", b"v", None, MAX_INT64),
        (NOW, _Octets(b"k"), b"v", None, MAX_INT64),
        (NOW, None, bytearray(b"v"), None, MAX_INT64),
        (NOW, None, memoryview(b"v"), None, MAX_INT64),
    ],
)
def test_both_twins_leave_rows_of_other_types_to_the_builder(
    compiled: ModuleType, row: tuple[Any, ...]
) -> None:
    for writer in (compiled.BatchWriter(), PureBatchWriter()):
        for count in range(2):
            before = writer.estimated_bytes
            assert writer.append(*row) == SLOW_PATH
            assert (writer.count, writer.estimated_bytes) == (count, before)
            writer.append(NOW, b"k", b"v", None, MAX_INT64)


def test_the_objects_of_a_written_row_are_released(compiled: ModuleType) -> None:
    value = b"v" * 100
    references = sys.getrefcount(value)
    writer = compiled.BatchWriter()
    for _ in range(50):
        assert writer.append(NOW, value, value, value, 100) == -1
        writer.append(NOW, value, value, None, MAX_INT64)
    assert sys.getrefcount(value) == references


def test_places_are_kept_from_the_garbage_collector_until_they_are_tracked(
    compiled: ModuleType,
) -> None:
    class Delivery(compiled.Place):  # type: ignore[name-defined,misc]
        __slots__ = ()

    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    for make in (Delivery, Delivery.at):
        made = make(owner, 7)
        assert (type(made), made.owner, made.index) == (Delivery, owner, 7)
        assert not gc.is_tracked(made)
    made.track()
    made.track()
    assert gc.is_tracked(made)
    owner.kept = made  # type: ignore[attr-defined]
    del owner, made
    gc.collect()
    assert gone() is None
    for place in (compiled.Place(None, 3), PurePlace(None, 3), PurePlace.at(None, 3)):
        place.track()
        assert (place.owner, place.index) == (None, 3)


@given(rows=ROWS, draw=st.data())
def test_both_twins_read_sound_records_alike(
    compiled: ModuleType, rows: list[Any], draw: Any
) -> None:
    first = draw.draw(st.integers(0, 20))
    window = (first, draw.draw(st.integers(0, 30)), draw.draw(st.integers(0, 15)))
    place = (draw.draw(st.integers(0, 12)), len(rows) - 1, rows[0][0], draw.draw(st.none() | TIMES))
    data = body_of(rows)
    agree(compiled, data, len(rows), place, window, draw.draw(st.integers(0, 15)))
    count = len(rows) + draw.draw(st.integers(-1, 1))
    agree(compiled, data, count, place, window, 15)


@settings(max_examples=budget.examples(300))
@given(rows=ROWS, draw=st.data())
def test_both_twins_read_damaged_records_alike(
    compiled: ModuleType, rows: list[Any], draw: Any
) -> None:
    data = bytearray(body_of(rows))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(data)))
        how = draw.draw(st.sampled_from(["set", "cut", "insert", "delete"]))
        octets = draw.draw(st.binary(min_size=1, max_size=3))
        if how == "set":
            data[at : at + len(octets)] = octets
        elif how == "cut":
            del data[at:]
        elif how == "insert":
            data[at:at] = octets
        else:
            del data[at : at + len(octets)]
    place = placement(draw.draw)
    if draw.draw(st.booleans()):
        place = (5, len(rows) + 2, NOW, None)
    window = (draw.draw(INT64), draw.draw(INT64), draw.draw(st.integers(0, 15)))
    agree(compiled, bytes(data), len(rows), place, window, 15)


@settings(max_examples=budget.examples(300))
@given(
    data=st.binary(max_size=60),
    count=st.integers(-1, 8),
    place=st.tuples(INT64, DELTAS, INT64, st.none() | INT64),
    window=st.tuples(INT64, INT64, st.integers(0, 9)),
)
@example(b"", 0, (MAX_INT64, 1, 0, None), (0, 0, 0))
@example(b"", 200_000, (0, 1, 0, None), (0, 0, 0))
@example(b"", 0, (MAX_INT64, -5, 0, MAX_INT64), (0, 0, 0))
def test_both_twins_read_any_bytes_alike(
    compiled: ModuleType,
    data: bytes,
    count: int,
    place: tuple[int, int, int, int | None],
    window: tuple[int, int, int],
) -> None:
    agree(compiled, data, count, place, window, 15)


NUMBERS = st.sampled_from(
    [
        0,
        1,
        2,
        3,
        5,
        0x7E,
        0x7F,
        0x80,
        0xFFFE,
        2**31 - 1,
        2**32 - 2,
        2**32 - 1,
        2**32,
        2**64 - 1,
        2**64,
    ]
)


def raw_varint(number: int, padding: int) -> bytes:
    """A varint that may be longer than necessary, or out of range."""
    octets = bytearray()
    while number > 0x7F or padding > 0:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
        padding -= 1
    octets.append(number)
    return bytes(octets)


@settings(max_examples=budget.examples(300))
@given(
    numbers=st.lists(st.tuples(NUMBERS, st.integers(0, 11)), min_size=6, max_size=9),
    octets=st.binary(max_size=4),
    honest=st.booleans(),
)
def test_both_twins_read_unusual_varints_alike(
    compiled: ModuleType, numbers: list[tuple[int, int]], octets: bytes, honest: bool
) -> None:
    length, *fields = (raw_varint(*number) for number in numbers)
    rest = b"\0" + b"".join(fields) + octets
    data = (zigzag_encode(len(rest)) if honest else length) + rest
    for count in (1, 2):
        agree(compiled, data, count, (0, 2**31 - 1, 0, None), (0, MAX_INT64, 9), 15)


def test_both_twins_refuse_timestamps_beyond_microseconds(compiled: ModuleType) -> None:
    data = body_of([(0, b"k", b"v", [])])
    for time, fits in ((MAX_INT64 // 1000, True), (MAX_INT64 // 1000 + 1, False)):
        for place in ((0, 0, time, None), (0, 0, 0, time), (0, 0, -time, None)):
            agree(compiled, data, 1, place, (0, 9, 9), 15)
            answer = with_twin(None, lambda: gathered(PureRows(15), data, 1, place, (0, 9, 9)))  # noqa: B023
            assert (answer[0] == -1) is fits
            assert fits or answer[0][0] is TimestampBeyondMicroseconds
            agree(compiled, data, 1, place, (0, 9, 9), 7)
            assert gathered(PureRows(7), data, 1, place, (0, 9, 9))[:2] == (-1, 1)


def test_a_time_beyond_microseconds_is_named_with_its_offset(compiled: ModuleType) -> None:
    times = (NOW, MAX_INT64 // 1000 + 1, NOW)
    data = body_of([(time, b"k", b"v", []) for time in times])
    for window in ((0, 99, 9), (10, 99, 9), (12, 99, 9), (0, 11, 9), (0, 99, 1)):
        agree(compiled, data, 3, (10, 2, NOW, None), window, 15)
    answer = gathered(PureRows(15), data, 3, (10, 2, NOW, None), (10, 99, 9))
    assert answer[0][0] is TimestampBeyondMicroseconds
    assert "of the record at offset 11 " in answer[0][1]
    assert gathered(PureRows(15), data, 3, (10, 2, NOW, None), (12, 99, 9))[:2] == (-1, 1)


def test_both_twins_gather_more_rows_than_a_first_buffer_holds(compiled: ModuleType) -> None:
    rows: list[Any] = [
        (NOW, b"k%d" % n if n % 3 else None, b"v" * (n % 300), [("a", b"1")] * (n % 4))
        for n in range(3000)
    ]
    fast, plain = compiled.Rows(15), PureRows(15)
    data = body_of(rows)
    for base in (0, 3000, 6000):
        place = (base, 2999, NOW, None)
        ways = (base + 11, base + 2990, 2000)
        assert gathered(fast, data, 3000, place, ways) == gathered(plain, data, 3000, place, ways)
        assert fast.count == base // 3000 * 2000 + 2000
    assert fast.take() == plain.take()


def test_the_compiled_twin_refuses_arguments_of_wrong_types(compiled: ModuleType) -> None:
    for call, arguments in (
        (compiled.parse, ("text", 1)),
        (compiled.parse, (bytearray(9), 1)),
        (compiled.scan, ("text", 1)),
        (compiled.scan, (b"", None)),
        (compiled.BatchWriter, (1,)),
        (compiled.BatchWriter().append, (NOW, None, None, None)),
        (compiled.Place, ()),
        (compiled.Place, (None, "first")),
        (compiled.Place.at, (None,)),
        (compiled.Place.at, (None, "first")),
        (compiled.Rows, ("all",)),
        (compiled.Rows(15).add, (b"",)),
    ):
        with pytest.raises(TypeError):
            call(*arguments)
    with pytest.raises(OverflowError):
        compiled.Rows(15).add(b"", 0, 2**63, 0, 0, None, 0, 0, 0)
    with pytest.raises(TypeError):
        compiled.Rows(15).add(b"", 0, 0, 0, 0, "now", 0, 0, 0)


def test_records_are_scanned_in_any_buffer(compiled: ModuleType) -> None:
    """The input may be a part of a receive buffer; it is neither copied nor kept."""
    body = body_of([(NOW, b"k", b"v", []), (NOW + 9, None, b"v", [])])
    buffer = bytearray(b"##" + body + b"##")
    for codec in (compiled, None):
        with memoryview(buffer) as view:
            assert with_twin(codec, lambda: scan_records(view[2:-2], 2)) == (0, 1, True, 0, 9, True)
        buffer += b"#"
        del buffer[-1]


def test_each_twin_reads_batches_of_the_other(compiled: ModuleType) -> None:
    """Each of the two codecs writes a batch, which the other one reads."""
    for writer, reader in ((compiled, None), (None, compiled)):
        builder = BatchBuilder()
        for n in range(100):
            builder.append(NOW + n, b"k%d" % n, None if n % 7 == 0 else b"v" * n, [("h", b"1")])
        batch = with_twin(writer, builder.build)
        found = with_twin(reader, lambda: parsed(bytes(batch[61:]), 100))  # noqa: B023
        assert found[2] == [b"k%d" % n for n in range(100)]
        assert found[5]


def test_the_damaged_one_of_very_many_records_is_not_searched(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search with the pure codec would take almost a microsecond for each record."""
    body = body_of([(NOW, b"k", b"v", []), (NOW + 9, None, b"v", [])])
    damaged = body[:-1] + b"\x03"
    told = with_twin(compiled, lambda: scan_records(damaged, 2))
    assert told == with_twin(None, lambda: scan_records(damaged, 2))
    monkeypatch.setattr(record, "MAX_RECORDS_READ_AGAIN", 1)
    monkeypatch.setattr(record, "parse_records", None)
    assert with_twin(compiled, lambda: scan_records(body, 2)) == (0, 1, True, 0, 9, True)
    assert with_twin(compiled, lambda: scan_records(damaged, 2))[0] is CorruptBatch
