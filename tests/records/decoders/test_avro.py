"""Avro without a registry: the product's reader, compared with fastavro, and with hostile bytes."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import decimal
import io
import json
import uuid
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.decoders import CannotDecode, Limits
from odradek_records.decoders.avro import AvroSchemaError, parse_schema, read_container

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "before", "type": "State"},
        {"name": "hash", "type": {"type": "fixed", "name": "other.Hash", "size": 2}},
        {"name": "again", "type": "other.Hash"},
        {"name": "tags", "type": {"type": "map", "values": "float"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "n", "type": "int"},
                        {"name": "order", "type": ["null", "Order"]},
                    ],
                },
            },
        },
        {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "weight", "type": {"type": "double"}},
    ],
}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(schema: Any, data: bytes, limits: Limits | None = None) -> Any:
    return parse_schema(json.dumps(schema)).decode(data, limits or Limits())


def order(**more: Any) -> dict[str, Any]:
    return {
        "id": -(2**63), "name": "Äpfel", "state": "SENT", "before": "NEW", "hash": b"\x01\xff",
        "again": b"ab", "tags": {"a": 0.5}, "lines": [], "ok": True, "raw": b"\x00", "weight": 1e9,
    } | more  # fmt: skip


def test_a_record_with_every_type_is_read() -> None:
    inner = order(name=None, ok=False)
    value = order(lines=[{"n": -1, "order": None}, {"n": 2**31 - 1, "order": inner}])
    shown = order(hash={"base64": "Af8="}, again={"base64": "YWI="}, raw={"base64": "AA=="})
    assert read(ORDER, written(ORDER, value)) == shown | {
        "lines": [
            {"n": -1, "order": None},
            {"n": 2**31 - 1, "order": shown | {"name": None, "ok": False}},
        ]
    }


def _logical(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


MOMENT = dt.datetime(2024, 5, 1, 12, 30, 0, 123456, dt.UTC)


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        (_logical("int", "date"), dt.date(1969, 12, 31), "1969-12-31"),
        (_logical("int", "time-millis"), dt.time(1, 2, 3, 4000), "01:02:03.004"),
        (_logical("long", "time-micros"), dt.time(1, 2, 3, 4), "01:02:03.000004"),
        (_logical("long", "timestamp-millis"), MOMENT, "2024-05-01T12:30:00.123Z"),
        (_logical("long", "timestamp-micros"), MOMENT, "2024-05-01T12:30:00.123456Z"),
        (_logical("long", "local-timestamp-millis"), MOMENT.replace(tzinfo=None), "2024-05-01T12:30:00.123"),
        (_logical("bytes", "decimal", precision=40, scale=2), decimal.Decimal("-123456789012345678901234567890.45"), "-123456789012345678901234567890.45"),
        (_logical("fixed", "decimal", name="D", size=4, precision=6, scale=3), decimal.Decimal("0.001"), "0.001"),
        (_logical("string", "uuid"), uuid.UUID(int=7), str(uuid.UUID(int=7))),
        ("double", float("inf"), "inf"),
        (_logical("long", "no-such-type"), 7, 7),
    ],
)  # fmt: skip
def test_logical_types_are_shown_as_dates_times_and_decimals(
    schema: Any, value: Any, shown: Any
) -> None:
    assert read(schema, written(schema, value)) == shown


def test_logical_types_unknown_to_fastavro_are_shown() -> None:
    duration = _logical("fixed", "duration", name="D", size=12)
    assert read(duration, b"\1\0\0\0\2\0\0\0\3\0\0\0") == {
        "months": 1,
        "days": 2,
        "milliseconds": 3,
    }
    assert read(_logical("fixed", "uuid", name="U", size=16), bytes(16)) == str(uuid.UUID(int=0))
    nanos = _logical("long", "timestamp-nanos")
    assert read(nanos, written("long", 1)) == "1970-01-01T00:00:00.000000001Z"
    # A time beyond the calendar is shown as its number.
    assert read(_logical("long", "timestamp-millis"), written("long", 2**62)) == 2**62
    assert read(_logical("int", "date"), written("long", 2**40)) == 2**40
    assert read(_logical("int", "time-millis"), written("int", -1)) == -1


# --- Against fastavro -----------------------------------------------------------------------------

_names = iter(range(10**9))


def _record(types: list[Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": f"R{next(_names)}",
        "fields": [{"name": f"f{at}", "type": each} for at, each in enumerate(types)],
    }


_SCHEMAS = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "double", "bytes", "string"]),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda values: {"type": "map", "values": values}, inner)
        | st.builds(lambda inner: ["null", inner], inner.filter(lambda s: isinstance(s, dict)))
        | st.lists(inner, max_size=3).map(_record)
    ),
    max_leaves=6,
)


def _values(schema: Any) -> st.SearchStrategy[Any]:
    plain: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=20),
        "string": st.text(max_size=20),
    }
    if isinstance(schema, str):
        return plain[schema]
    if isinstance(schema, list):
        return st.one_of(*map(_values, schema))
    if schema["type"] == "array":
        return st.lists(_values(schema["items"]), max_size=4)
    if schema["type"] == "map":
        return st.dictionaries(st.text(max_size=5), _values(schema["values"]), max_size=4)
    return st.fixed_dictionaries({f["name"]: _values(f["type"]) for f in schema["fields"]})


def _as_shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, dict):
        return {name: _as_shown(each) for name, each in value.items()}
    return [_as_shown(each) for each in value] if isinstance(value, list) else value


@pytest.mark.full
@given(st.data())
def test_values_written_by_fastavro_are_read(data: st.DataObject) -> None:
    schema = data.draw(_SCHEMAS)
    value = data.draw(_values(schema))
    assert read(schema, written(schema, value)) == _as_shown(value)


@given(st.binary(max_size=60))
def test_random_bytes_are_refused_or_read_as_by_fastavro(data: bytes) -> None:
    try:
        found = read(ORDER, data)
    except CannotDecode:
        return
    source = io.BytesIO(data)
    assert _as_shown(fastavro.schemaless_reader(source, fastavro.parse_schema(ORDER))) == found


# --- Harm -----------------------------------------------------------------------------------------


def test_recursive_records_have_a_depth_limit() -> None:
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    assert read(node, b"\x02\x00") == {"next": {"next": None}}
    with pytest.raises(CannotDecode, match="nested more than 64 deep"):
        read(node, b"\x02" * 1_000_000)


@pytest.mark.full
def test_items_of_zero_bytes_count_towards_the_limit() -> None:
    for items in ("null", {"type": "fixed", "name": "F", "size": 0}, _record([])):
        data = written("long", 2**60)
        with pytest.raises(CannotDecode, match="more than 500000 values"):
            read({"type": "array", "items": items}, data)


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        ("long", "", "no integer at 0"),
        ("long", "ff" * 10, "no integer at 0"),
        ("long", "ff" * 9 + "02", "no integer at 0"),
        ("string", "0a61", "5 bytes are wanted at 1, and 1 are left"),
        ("string", "01", "-1 bytes are wanted at 1"),
        ("string", "02ff", "the string at 0 is no UTF-8"),
        ("boolean", "02", "byte 2 at 0 is no boolean"),
        (["null", "long"], "04", "branch 2 at 0 of a union of 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "02", "symbol 1 at 0 of an enum of 1"),
        ("null", "00", "1 bytes are left behind the record"),
    ],
)
def test_bytes_that_do_not_fit_the_schema_name_the_place(schema: Any, data: str, why: str) -> None:
    with pytest.raises(CannotDecode) as refused:
        read(schema, bytes.fromhex(data))
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no JSON"),
        ('"nosuch"', 'there is no Avro type "nosuch"'),
        ("7", "no Avro type: 7"),
        ('{"type": "record", "name": "R"}', "'fields' is missing"),
        ('{"type": "record", "name": "R", "fields": 1}', "the fields of record R are no list"),
        ('{"type": "record", "fields": []}', "'name' is missing"),
        ('{"type": "array"}', "'items' is missing"),
        ('{"type": "enum", "name": "E", "symbols": "A"}', "the symbols of enum E"),
        ('{"type": "fixed", "name": "F", "size": "1"}', "the size of fixed F is no number"),
        ('{"type": "record", "name": 7, "fields": []}', "7 is no name"),
        ("[" * 100_000, "nested too deeply"),
        ('["' + "x" * 1_000_001 + '"]', "at most 1000000 characters"),
    ],
)
def test_invalid_schemas_name_the_place(text: str, why: str) -> None:
    with pytest.raises(AvroSchemaError) as refused:
        parse_schema(text)
    assert why in str(refused.value)


def test_named_types_of_other_schemas_are_resolved() -> None:
    line = parse_schema(
        '{"type": "record", "name": "shop.Line", "fields": [{"name": "n", "type": "int"}]}'
    )
    both = parse_schema('{"type": "array", "items": "shop.Line"}', line.named)
    assert both.decode(b"\x02\x0e\x00", Limits()) == [{"n": 7}]


# --- Object containers ----------------------------------------------------------------------------


def container(codec: str, records: list[Any], schema: Any = ORDER) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec=codec, sync_interval=64)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_containers_with_every_codec_are_read(codec: str) -> None:
    data = container(codec, [order(id=each) for each in range(20)])
    assert [each["id"] for each in read_container(data, Limits())] == list(range(20))


@given(st.data())
def test_a_damaged_container_is_refused_or_read(data: st.DataObject) -> None:
    whole = container("deflate", [order(id=each) for each in range(8)])
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.integers(at + 1, len(whole)))
    damaged = whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + 1 : cut]
    with contextlib.suppress(CannotDecode):
        json.dumps(read_container(damaged, Limits()))


def test_containers_have_limits() -> None:
    with pytest.raises(CannotDecode, match="codec null or deflate, not bzip2"):
        read_container(container("bzip2", [1], "long"), Limits())
    bomb = container("deflate", ["a" * 100_000], "string")
    assert len(bomb) < 1000
    with pytest.raises(CannotDecode, match="a block has more than 5000 bytes"):
        read_container(bomb, Limits(data_bytes_max=5_000))
    nulls = container("null", [None] * 100, "null")
    with pytest.raises(CannotDecode, match="more than 50 values"):
        read_container(nulls, Limits(items_max=50))
