"""Columns. A read has the columns of Spark's own Kafka format, and the columns of a write are
checked."""

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
def test_c3_arrow_batches_have_exactly_the_schema_that_spark_expects(
    include_headers: bool,
) -> None:
    expected = to_arrow_schema(row_schema(include_headers), timezone="UTC")
    assert expected.equals(arrow_schema(chosen_columns(None, include_headers)))


def test_c1_a_row_has_the_schema_of_sparks_kafka_format() -> None:
    assert row_schema(True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert row_schema(False) == StructType(row_schema(True).fields[:-1])


def test_a_read_refuses_another_schema() -> None:
    columns = row_schema(False).fieldNames()
    check_read_schema(row_schema(False), columns)
    with pytest.raises(SchemaError, match="fixed"):
        check_read_schema(row_schema(True), columns)


def test_a_read_of_some_columns_keeps_their_order() -> None:
    assert schema_of(["headers", "key"]).fieldNames() == ["key", "headers"]


def schema(ddl: str) -> StructType:
    """A schema from a text such as `name type, ...`, without a session."""
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


def test_a_write_finds_its_columns_and_ignores_others() -> None:
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
def test_missing_columns_and_columns_of_wrong_types_are_refused(
    ddl: str, topic: str | None, told: str
) -> None:
    with pytest.raises(SchemaError, match=told):
        check_write_schema(schema(ddl), topic)


def test_all_problems_of_columns_are_reported_at_once() -> None:
    with pytest.raises(SchemaError) as caught:
        check_write_schema(schema("key int,partition text"), None)
    assert str(caught.value).count(";") >= 3


def test_rows_are_divided_by_topic_and_keep_their_order() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    batch = pa.record_batch(
        {
            "other": pa.array([1, 2, 3, 4, 5]),
            "value": pa.array(["a", None, "c", "d", "e"]),
            "topic": pa.array(["u", "t", "u", "u", "t"]),
            "partition": pa.array([1, None, 2, 3, 4], pa.int32()),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}], None, [], [], []], pa.list_(header)
            ),
        }
    )
    places = {"value": 1, "topic": 2, "partition": 3, "headers": 4}
    found = {topic: rows.to_pydict() for topic, rows in rows_of(batch, None, places)}
    assert {topic: rows["value"] for topic, rows in found.items()} == {
        "u": ["a", "c", "d"],
        "t": [None, "e"],
    }
    assert found["u"]["headers"][0] == [{"key": "h", "value": b"1"}]
    assert found["t"]["partition"] == [None, 4]
    ((topic, rows),) = rows_of(batch, "option", places)
    assert (topic, rows.num_rows) == ("option", 5)
    assert rows.schema.names == ["value", "headers", "partition"]
    ((topic, rows),) = rows_of(batch.slice(2, 2), None, places)
    assert (topic, rows.column("value").to_pylist()) == ("u", ["c", "d"])
    assert rows_of(batch.slice(0, 0), None, places) == []


def test_a_row_without_a_topic_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array(["a", "b"]), "topic": pa.array(["t", None])})
    with pytest.raises(SinkError, match="a row has no topic"):
        rows_of(batch, None, {"value": 0, "topic": 1})
