"""Reading records: round trips, the bulk path against a plain reader, and damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from odradek_protocol.compression import Codec
from odradek_protocol.records import native
from odradek_protocol.records import record as record_module
from odradek_protocol.records import runs as bulk
from odradek_protocol.records.batch import CorruptBatch, read_header, update_crc, verify_crc
from odradek_protocol.records.builder import BatchBuilder, simple_batch
from odradek_protocol.records.layout import HEADER_BYTES
from odradek_protocol.records.record import (
    Record,
    TimestampType,
    iter_records,
    parse_records,
    read_columns,
    read_records,
    split_records,
)
from odradek_protocol.records.varint import (
    read_varint,
    read_varlong,
    zigzag_encode,
)

pytestmark = pytest.mark.usefixtures("codec_twin")

NOW = 1_700_000_000_000

OCTETS = st.none() | st.binary(max_size=80) | st.integers(0, 9000).map(bytes)
HEADER_LISTS = st.lists(
    st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=9)), max_size=3
)
ROWS = st.tuples(
    st.integers(NOW - 20_000, NOW + 20_000) | st.sampled_from([NOW, -1, 0, 2**62]),
    OCTETS,
    OCTETS,
    st.just([]) | HEADER_LISTS,
)


def build(rows: Any, codec: Codec = Codec.NONE, **stamped: Any) -> bytearray:
    builder = BatchBuilder(codec)
    for row in rows:
        builder.append(*row)
    return builder.build(**stamped)


def plain_parse(data: bytes, count: int) -> list[tuple[Any, ...]] | None:
    """A simple reader of the format. Returns None for data that is not exactly `count` records."""

    def number(at: int, size: int) -> tuple[int, int]:
        raw = 0
        for n in range(size):
            raw |= (data[at + n] & 0x7F) << 7 * n
            if data[at + n] < 0x80:
                if raw >= 1 << (32 if size == 5 else 64):
                    raise IndexError
                return (raw >> 1) ^ -(raw & 1), at + n + 1
        raise IndexError

    def octets(at: int, nullable: bool) -> tuple[bytes | None, int]:
        size, at = number(at, 5)
        if size < 0 and nullable:
            return None, at
        if size < 0 or at + size > len(data):
            raise IndexError
        return data[at : at + size], at + size

    rows: list[tuple[Any, ...]] = []
    at = 0
    try:
        for _ in range(count):
            length, at = number(at, 5)
            end = at + length
            timestamp, at = number(at + 1, 10)
            offset, at = number(at, 5)
            key, at = octets(at, True)
            value, at = octets(at, True)
            header_count, at = number(at, 5)
            if not 0 <= header_count <= len(data):
                return None
            headers = []
            for _ in range(header_count):
                name, at = octets(at, False)
                header_value, at = octets(at, True)
                assert name is not None
                headers.append((name.decode("utf-8", "surrogateescape"), header_value))
            if at != end:
                return None
            rows.append((timestamp, offset, key, value, tuple(headers)))
    except IndexError:
        return None
    return rows if at == len(data) else None


def bulk_parse(data: bytes, count: int) -> list[tuple[Any, ...]] | None:
    try:
        parsed = parse_records(data, count)
    except CorruptBatch:
        return None
    columns = (parsed.timestamp_deltas, parsed.offset_deltas, parsed.keys, parsed.values)
    return list(zip(*columns, parsed.header_column(), strict=True))


# --- varints ------------------------------------------------------------------------------------


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_survive_a_round_trip(number: int) -> None:
    encoded = zigzag_encode(number)
    assert len(encoded) <= 10
    assert read_varlong(b"~" + encoded + b"~", 1) == (number, 1 + len(encoded))


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_survive_a_round_trip(number: int) -> None:
    encoded = zigzag_encode(number)
    assert len(encoded) <= 5
    assert read_varint(encoded, 0) == (number, len(encoded))


def test_varints_have_the_known_bytes() -> None:
    known = {0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", 300: "d804"}
    for number, encoded in known.items():
        assert zigzag_encode(number).hex() == encoded


@pytest.mark.parametrize("encoded", ["808080808001", "ffffffffff01", "ffffffff10"])
def test_overlong_varints_are_rejected(encoded: str) -> None:
    with pytest.raises(CorruptBatch, match="varint"):
        read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["80" * 10 + "01", "ff" * 10 + "01", "ff" * 9 + "02"])
def test_overlong_varlongs_are_rejected(encoded: str) -> None:
    with pytest.raises(CorruptBatch, match="varint"):
        read_varlong(bytes.fromhex(encoded), 0)


# --- round trips --------------------------------------------------------------------------------


@given(st.lists(ROWS, min_size=1, max_size=30), st.sampled_from(Codec), st.integers(0, 2**40))
@settings(deadline=None)
def test_records_are_read_as_they_were_built(
    rows: list[Any], codec: Codec, base_offset: int
) -> None:
    batch = build(rows, codec, base_offset=base_offset)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert header.base_timestamp == rows[0][0]
    assert header.max_timestamp == max(row[0] for row in rows)
    assert (header.record_count, header.last_offset_delta) == (len(rows), len(rows) - 1)
    expected = [
        Record(base_offset + n, at, TimestampType.CREATE_TIME, key, value, tuple(headers))
        for n, (at, key, value, headers) in enumerate(rows)
    ]
    assert read_records(batch, 0, header) == expected
    assert read_records(b"##" + batch, 2, header) == expected
    assert read_records(memoryview(batch), 0, header) == expected


@pytest.mark.parametrize("count", [63, 64, 65, 129, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_offset_deltas_of_every_width_are_read(count: int, key: bytes | None) -> None:
    batch = build([(NOW + n // 100, key, b"%06d" % n) for n in range(count)], base_offset=7)
    columns = read_columns(batch, 0, read_header(batch))
    assert columns.offsets == range(7, 7 + count)
    assert columns.timestamps == [NOW + n // 100 for n in range(count)]
    assert columns.keys == [key] * count
    assert columns.values == [b"%06d" % n for n in range(count)]
    assert columns.headers == [()] * count


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 70_000, 1_048_576, 3_000_000])
def test_keys_and_values_of_every_length_are_read(size: int) -> None:
    rows = [(NOW, bytes(size), b"v"), (NOW, None, bytes(size)), (NOW, bytes(size), bytes(size))]
    batch = build(rows)
    found = read_records(batch, 0, read_header(batch))
    assert [(r.timestamp, r.key, r.value) for r in found] == rows


def test_header_keys_that_are_not_utf8_survive() -> None:
    data = bytes.fromhex("18 00 00 00 01 01 02 04 fffe 02 61")
    data = bytes([2 * (len(data) - 1)]) + data[1:]
    (headers,) = parse_records(data, 1).header_column()
    assert headers == (("\udcff\udcfe", b"a"),)
    batch = build([(NOW, None, None, headers)])
    assert bytes(batch[61:]) == data


def test_an_empty_batch_has_no_records() -> None:
    """Compaction leaves an empty batch in order to keep a producer's last sequence (R-19)."""
    batch = simple_batch([(None, b"x")], NOW)[:61]
    batch[8:12] = (49).to_bytes(4, "big")
    batch[57:61] = bytes(4)
    update_crc(batch, 0)
    assert read_records(batch, 0, read_header(batch)) == []
    assert read_columns(batch, 0, read_header(batch)).values == []


def test_r19_gaps_between_offsets_are_read() -> None:
    batch = simple_batch([(None, b"a"), (None, b"b")], NOW, base_offset=10)
    batch[26] = 8  # last offset delta
    batch[-5] = 2 * 5  # the second record's offset delta
    update_crc(batch, 0)
    header = read_header(batch)
    assert [record.offset for record in read_records(batch, 0, header)] == [10, 15]
    assert header.next_offset == 19


# --- the bulk path ------------------------------------------------------------------------------


RUNS = st.lists(
    st.tuples(
        st.integers(1, 90),  # records in this run
        st.sampled_from([0, 1, 70, 9000, 3_000_000, -1, -70]),  # first timestamp delta
        st.sampled_from([0, 1, 40]),  # timestamp step
        st.sampled_from([None, 0, 3, 70, 8200]),  # key length
        st.sampled_from([None, 0, 5, 100, 8200]),  # value length
        st.booleans(),  # with a header
    ),
    min_size=1,
    max_size=4,
)


def rows_of_runs(runs: Any) -> list[Any]:
    rows = []
    for count, first, step, key_length, value_length, with_header in runs:
        for n in range(count):
            key = None if key_length is None else (b"%d|" % n).ljust(key_length, b"k")[:key_length]
            value = None if value_length is None else (b"%d|" % n).ljust(value_length, b"v")
            value = None if value is None else value[:value_length]
            headers = [("h", b"%d" % n)] if with_header else []
            rows.append((NOW + first + step * n, key, value, headers))
    return rows


@given(RUNS)
@settings(deadline=None, max_examples=budget.examples(60))
def test_bulk_reading_equals_plain_reading(runs: Any) -> None:
    rows = rows_of_runs(runs)
    body = bytes(build(rows)[61:])
    assert bulk_parse(body, len(rows)) == plain_parse(body, len(rows))


@given(RUNS, st.data())
@settings(deadline=None, max_examples=budget.examples(400))
def test_bulk_reading_equals_plain_reading_of_damaged_records(runs: Any, data: Any) -> None:
    """Damaged structural bytes are the most likely to reveal an error of a bulk reader."""
    rows = rows_of_runs(
        [(n, t, s, k and min(k, 4), v and min(v, 9), h) for n, t, s, k, v, h in runs]
    )
    body = bytearray(build(rows)[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(
            st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]) | st.integers(0, 255)
        )
    assert bulk_parse(bytes(body), len(rows)) == plain_parse(bytes(body), len(rows))


def test_ordinary_records_are_read_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def counting(*args: Any) -> int:
        taken.append(original(*args))
        return taken[-1]

    monkeypatch.setattr(native, "CODEC", None)
    original = bulk.read_run
    monkeypatch.setattr(record_module, "read_run", counting)
    batch = build([(NOW + n, None, b"x" * 100) for n in range(5000)])
    assert len(read_records(batch, 0, read_header(batch))) == 5000
    assert sum(taken) > 4900


def test_bulk_reading_equals_plain_reading_after_a_change_of_any_byte() -> None:
    body = bytearray(build([(NOW + n, None, b"abc") for n in range(40)])[61:])
    for at in range(len(body)):
        kept = body[at]
        for value in (0, 1, 2, 6, 7, 0x7F, 0x80, 0xFF):
            body[at] = value
            assert bulk_parse(bytes(body), 40) == plain_parse(bytes(body), 40), (at, value)
        body[at] = kept


SHAPES: dict[str, Callable[[int], Any]] = {
    "null keys": lambda n: (NOW + n, None, b"ab"),
    "keys": lambda n: (NOW, b"k", b"ab"),
    "null values": lambda n: (NOW - n % 3, b"key", None),
    "nothing at all": lambda n: (NOW, None, None),
    "timestamps of two bytes": lambda n: (NOW + (200 + n if n else 0), None, b"a"),
    "timestamps of three bytes": lambda n: (NOW + (9000 if n else 0), None, b"a"),
    "timestamps of three bytes that vary": lambda n: (NOW + (9000 + n if n else 0), None, b"a"),
    "long timestamps": lambda n: (2**50 * (n > 0), b"k", b"a"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_bulk_reading_equals_plain_reading_for_changed_records_of_any_shape(shape: str) -> None:
    """The offset delta of the changed record has one byte or two."""
    rows = [SHAPES[shape](n) for n in range(120)]
    body = bytearray(build(rows)[61:])
    boundaries = [0]
    for _ in rows:
        length, start = read_varint(bytes(body), boundaries[-1])
        boundaries.append(start + length)
    assert bulk_parse(bytes(body), 120) == plain_parse(bytes(body), 120)
    for index in (40, 100):
        for at in range(boundaries[index], boundaries[index + 1]):
            kept = body[at]
            for value in {0, 1, 2, 3, 4, 0x7F, 0x80, 0x81, 0xFF, kept ^ 1, kept ^ 0x80}:
                body[at] = value
                assert bulk_parse(bytes(body), 120) == plain_parse(bytes(body), 120), (at, value)
            body[at] = kept


@pytest.mark.parametrize(
    "record",
    [
        "00 00 00 01 8080" + "00" * 8193,  # As two bytes, 0x80 0x80 would be a length of 8192.
        "00 00 00 8080" + "00" * 8193 + "01 00",
        "00 00 8080 00 01 01" + "00" * 20,
        "00 8080 00 00 01 01" + "00" * 20,
    ],
)
def test_a_number_of_three_bytes_is_not_taken_for_one_of_two(record: str) -> None:
    data = bytes.fromhex(record)
    data = zigzag_encode(len(data)) + data
    assert bulk_parse(data + bytes(12), 1) == plain_parse(data + bytes(12), 1) is None
    assert bulk_parse(data, 1) == plain_parse(data, 1)


def test_record_attributes_are_ignored() -> None:
    """The attributes byte 0xff would be the beginning of a longer field if it were read as a
    varint."""
    record = b"\xff" + zigzag_encode(2**62) + bytes.fromhex("00 01") + zigzag_encode(8200)
    record += bytes(8201)
    data = zigzag_encode(len(record)) + record
    assert bulk_parse(data, 1) == plain_parse(data, 1) == [(2**62, 0, None, bytes(8200), ())]


# --- damage -------------------------------------------------------------------------------------


def test_every_truncation_of_the_records_is_an_error() -> None:
    body = bytes(build([(NOW, b"k%d" % n, b"v", [("h", None)]) for n in range(20)])[61:])
    for end in range(len(body)):
        with pytest.raises(CorruptBatch):
            parse_records(body[:end], 20)
    distant = bytes(build([(-1, None, b"v"), (2**62, b"k", bytes(100))])[61:])
    for end in range(len(distant)):
        with pytest.raises(CorruptBatch):
            parse_records(distant[:end], 2)
    with pytest.raises(CorruptBatch, match="1 bytes behind the last of 20"):
        parse_records(body + b"\x00", 20)
    with pytest.raises(CorruptBatch, match="bytes behind the last of 19"):
        parse_records(body, 19)
    with pytest.raises(CorruptBatch, match="the records end within record 20 of 21"):
        parse_records(body, 21)


@pytest.mark.parametrize("count", [-1, -(2**31), 2**31 - 1])
def test_r12_an_impossible_record_count_is_refused(count: int) -> None:
    batch = simple_batch([(None, b"x")], NOW)
    header = read_header(batch)
    header.record_count = count
    with pytest.raises(CorruptBatch, match=f"{count} records cannot be in 8 bytes"):
        read_records(batch, 0, header)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("0e 00 00 00 01 02 61 01", "impossible number of headers"),
        ("0e 00 00 00 01 02 61 7e", "the records end within record 0 of 1"),
        ("10 00 00 00 01 02 61 fe 0f", "impossible number of headers"),
        ("12 00 00 00 01 02 61 02 01 01", "header without a key"),
        ("0c 00 00 00 01 02 61 00", "is said to end at byte 7 but its fields end at 8"),
        ("0e 00 00 00 01 04 61 00", "end"),
        ("0e 00 00 00 01 fe 61 00", "end"),
        ("0e 00 00 ff ff ff ff ff 01 01 02 61 00", "varint longer than 5 bytes"),
    ],
)
def test_an_impossible_record_is_refused(record: str, message: str) -> None:
    with pytest.raises(CorruptBatch, match=message):
        parse_records(bytes.fromhex(record), 1)


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ("0c 00 00 00 03 01 00", (None, None, ())),
        ("0c 00 00 00 01 13 00", (None, None, ())),
        ("14 00 00 00 01 01 02 02 61 03", None),
        ("12 00 00 00 01 01 02 02 61 03", (None, None, (("a", None),))),
        ("0e 00 00 00 01 85 00 00", (None, None, ())),
    ],
)
def test_r08_any_negative_length_is_null(record: str, found: Any) -> None:
    """Kafka's readers also take each negative length as null. The record is parsed alone, and as
    the last one after 30 others of the same shape."""
    data = bytes.fromhex(record)
    if found is None:
        with pytest.raises(CorruptBatch):
            parse_records(data, 1)
        return
    sound = bytes(simple_batch([(None, None)] * 30, NOW)[61:])
    for before, count in ((b"", 1), (sound, 31)):
        parsed = parse_records(before + data, count)
        assert (parsed.keys[-1], parsed.values[-1], parsed.header_column()[-1]) == found


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("22 00 00 00 03 6b 14 76767676767676767676 00", "within record 1 of 2"),
        ("20 00 00 00 01 15 76767676767676767676 00", "within record 1 of 2"),
        ("20 00 00 00 01 14 76767676767676767676 01", "impossible number of headers"),
        ("1e 00 00 00 01 14 76767676767676767676 00", "its fields end at"),
        ("22 00 00 00 01 14 76767676767676767676 00", "end"),
        ("21 00 00 00 01 14 76767676767676767676 00", "is said to end at"),
        ("29 00 00 00 01 14 76767676767676767676 02 02 68 02 61", "is said to end at"),
    ],
)
def test_an_impossible_record_of_ordinary_length_is_refused(record: str, message: str) -> None:
    """The records are long enough for the reader's fast path."""
    sound = simple_batch([(None, bytes(20))], NOW)[61:]
    with pytest.raises(CorruptBatch, match=message):
        parse_records(bytes(sound) + bytes.fromhex(record), 2)
    with pytest.raises(CorruptBatch):
        parse_records(bytes.fromhex(record) + bytes(sound), 2)


def test_more_records_than_offsets_are_refused() -> None:
    batch = simple_batch([(None, b"x")] * 3, NOW)
    header = read_header(batch)
    header.last_offset_delta = 1
    with pytest.raises(CorruptBatch, match=r"outside 0\.\.1"):
        read_records(batch, 0, header)


@pytest.mark.parametrize("delta", ["01", "08", "feffffff0f"])
def test_an_offset_delta_outside_the_batch_is_refused(delta: str) -> None:
    """The offset deltas are -1, one more than the last offset delta 3, and the largest possible
    one."""
    record = bytes.fromhex("00 00" + delta + "01 01 00")
    body = zigzag_encode(len(record)) + record
    batch = simple_batch([(None, b"x")], NOW)[:61] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[26] = 3
    with pytest.raises(CorruptBatch, match=r"an offset delta is outside 0\.\.3"):
        read_records(batch, 0, read_header(batch))


def test_offsets_and_timestamps_beyond_int64_are_refused() -> None:
    batch = simple_batch([(None, b"x"), (None, b"y")], NOW)
    header = read_header(batch)
    header.base_offset = 2**63 - 1
    with pytest.raises(CorruptBatch, match="beyond the last offset"):
        read_records(batch, 0, header)
    batch = build([(0, None, b"x"), (10, None, b"y")])
    header = read_header(batch)
    header.base_timestamp = 2**63 - 10
    with pytest.raises(CorruptBatch, match="too far from the base"):
        read_records(batch, 0, header)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_r12_a_body_that_decompresses_beyond_the_limit_is_refused(codec: Codec) -> None:
    batch = simple_batch([(None, bytes(100_000))], NOW, codec=codec)
    with pytest.raises(CorruptBatch, match="more than the limit of 50000 bytes"):
        read_records(batch, 0, read_header(batch), 50_000)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_body_that_does_not_decompress_is_refused(codec: Codec) -> None:
    batch = simple_batch([(None, b"x")], NOW)
    batch[22] = codec
    with pytest.raises(CorruptBatch, match="batch at offset 0: "):
        read_records(batch, 0, read_header(batch))


@given(st.binary(max_size=120), st.integers(0, 20))
@settings(max_examples=budget.examples(500))
def test_bulk_reading_equals_plain_reading_of_arbitrary_bytes(data: bytes, count: int) -> None:
    assert bulk_parse(data, count) == plain_parse(data, count)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
@pytest.mark.parametrize("count", [1, 9_999, 10_000, 10_001, 25_000])
def test_records_that_are_read_in_parts_are_the_same(codec: Codec, count: int) -> None:
    builder = BatchBuilder(codec)
    for index in range(count):
        value = bytes(200_000) if index % 5_000 == 7 else b"%d" % index
        builder.append(1_000 + index, None if index % 3 else b"key", value, [("h", b"1")])
    batch = builder.build(base_offset=70)
    header = read_header(batch)
    assert list(iter_records(batch, header)) == read_records(batch, 0, header)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda body: body + b"\0", "1 bytes behind the last of 3 records"),
        (lambda body: body[:-1], "bytes behind"),
        (lambda body: b"\1" + body, "has the length -1"),
        (lambda body: b"", "the records end within record 0 of 3"),
        (lambda body: b"\x80" * 9, "varint longer than 5 bytes"),
    ],
)
def test_damaged_records_cannot_be_split(damage: Callable[[bytes], bytes], text: str) -> None:
    builder = BatchBuilder()
    for _ in range(3):
        builder.append(0, b"key", b"value")
    body = bytes(builder.build())[HEADER_BYTES:]
    with pytest.raises(CorruptBatch, match=text):
        list(split_records(damage(body), 3))
