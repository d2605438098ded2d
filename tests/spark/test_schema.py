"""Columns: what a read gives is Spark's own, what a write takes is checked."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek_protocol.records.arrow import arrow_schema, chosen_columns
from pyspark_odradek.errors import SchemaError, SinkError
from pyspark_odradek.schema import (
    check_read_schema,
    check_write_schema,
    row_schema,
    schema_of,
)
from pyspark_odradek.writer import rows_of


@pytest.mark.parametrize("include_headers", [False, True])
def test_c3_arrow_batches_have_exactly_the_schema_that_spark_compares_with(
    include_headers: bool,
) -> None:
    expected = to_arrow_schema(row_schema(include_headers), timezone="UTC")
    assert expected.equals(arrow_schema(chosen_columns(None, include_headers)))


def test_c1_the_row_is_that_of_sparks_kafka_format() -> None:
    assert row_schema(True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert row_schema(False) == StructType(row_schema(True).fields[:-1])


def test_a_read_takes_no_other_schema() -> None:
    columns = row_schema(False).fieldNames()
    check_read_schema(row_schema(False), columns)
    with pytest.raises(SchemaError, match="fixed"):
        check_read_schema(row_schema(True), columns)


def test_a_read_of_some_columns_keeps_their_order() -> None:
    assert schema_of(["headers", "key"]).fieldNames() == ["key", "headers"]


def schema(ddl: str) -> StructType:
    """Of `name type, ...`, without a session."""
    from pyspark.sql.types import _parse_datatype_json_string

    simple = {"text": '"string"', "bytes": '"binary"', "int": '"integer"', "long": '"long"'}
    simple["headers"] = (
        '{"type":"array","containsNull":true,"elementType":{"type":"struct","fields":['
        '{"name":"key","type":"string","nullable":true,"metadata":{}},'
        '{"name":"value","type":"binary","nullable":true,"metadata":{}}]}}'
    )
    fields = ",".join(
        f'{{"name":"{name}","type":{simple[kind]},"nullable":true,"metadata":{{}}}}'
        for name, kind in (column.split() for column in ddl.split(","))
    )
    found = _parse_datatype_json_string(f'{{"type":"struct","fields":[{fields}]}}')
    assert isinstance(found, StructType)
    return found


def test_the_columns_of_a_write_and_others_are_ignored() -> None:
    every = schema("other long,headers headers,partition int,topic text,key bytes,value text")
    assert check_write_schema(every, None) == {
        "key": 4,
        "value": 5,
        "topic": 3,
        "partition": 2,
        "headers": 1,
    }
    assert check_write_schema(schema("value bytes"), "t") == {"value": 0}


@pytest.mark.parametrize(
    ("ddl", "topic", "told"),
    [
        ("key text", "t", "there is no column `value`; the columns are key"),
        ("Value text", "t", "there is 'Value'; case matters"),
        ("value text", None, "nothing says which topic"),
        ("value long", "t", "column value is bigint but must be string or binary"),
        ("value text,key int", "t", "column key is int"),
        ("value text,topic long", "t", "column topic is bigint but must be string"),
        ("value text,partition long", "t", "column partition is bigint but must be int"),
        ("value text,headers text", "t", "column headers is string"),
    ],
)
def test_columns_that_cannot_be_written(ddl: str, topic: str | None, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        check_write_schema(schema(ddl), topic)


def test_all_that_is_wrong_with_columns_is_told_at_once() -> None:
    with pytest.raises(SchemaError) as caught:
        check_write_schema(schema("key int,partition text"), None)
    assert str(caught.value).count(";") >= 3


@pytest.mark.parametrize("text_type", [pa.string(), pa.large_string()])
def test_rows_of_arrow_columns(text_type: pa.DataType) -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    batch = pa.record_batch(
        {
            "value": pa.array(["ä", None], text_type),
            "key": pa.array([b"k", None], pa.binary()),
            "topic": pa.array(["t", "u"]),
            "partition": pa.array([1, None], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], pa.list_(header)),
        }
    )
    places = {"value": 0, "key": 1, "topic": 2, "partition": 3, "headers": 4}
    assert list(rows_of(batch, places)) == [
        (b"k", "ä".encode(), [("h", b"1")], "t", 1),
        (None, None, (), "u", None),
    ]
    assert next(iter(rows_of(batch, {"value": 0}))) == (None, "ä".encode(), (), None, None)


def test_a_header_without_a_key_is_refused() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    column = pa.array([[{"key": None, "value": b"1"}]], pa.list_(header))
    with pytest.raises(SinkError, match="a header has no key"):
        rows_of(
            pa.record_batch({"value": pa.array([b""]), "headers": column}),
            {"value": 0, "headers": 1},
        )
