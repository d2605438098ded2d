"""The schemas of the rows of reads and writes, as in Spark's own `kafka` format."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_odradek.errors import SchemaError

HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField("headers", HEADERS_TYPE)


def row_schema(include_headers: bool) -> StructType:
    """The schema of a read."""
    return StructType([*_COLUMNS, _HEADERS] if include_headers else list(_COLUMNS))


def schema_of(columns: Sequence[str]) -> StructType:
    """The schema of a read of some columns."""
    return StructType([field for field in row_schema(True) if field.name in columns])


def check_read_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Check the schema that the user gave by `.schema(...)`. Raises SchemaError unless it is the
    schema of the rows."""
    expected = schema_of(columns)
    if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in expected]:
        raise SchemaError(
            "odradek: the schema of a read is fixed and cannot be given; leave out .schema(...) and "
            f"cast or parse the columns: {expected.simpleString()}"
        )


# --- writing --------------------------------------------------------------------------------------

_TEXT = (StringType, BinaryType)
_SINK_COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": (_TEXT, "string or binary"),
    "value": (_TEXT, "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType,), "int"),
}


def check_write_schema(schema: StructType, topic: str | None) -> dict[str, int]:
    """The positions of the columns to write, by name; other columns are ignored.

    SchemaError with all problems: no `value`, no topic, unsupported types.
    """
    places = {name: place for place, name in reversed(list(enumerate(schema.fieldNames())))}
    problems = []
    if "value" not in places:
        problems.append(_missing("value", places))
    if topic is None and "topic" not in places:
        problems.append(
            "nothing says which topic: set the option `topic`, or add a string column `topic`"
        )
    for name, (kinds, wanted) in _SINK_COLUMNS.items():
        if name in places and not isinstance(kind := schema[places[name]].dataType, kinds):
            hint = "; cast it, or make JSON of it by to_json" if kinds is _TEXT else "; cast it"
            problems.append(f"column {name} is {kind.simpleString()} but must be {wanted}{hint}")
    if "headers" in places and not _is_headers(schema[places["headers"]].dataType):
        kind = schema[places["headers"]].dataType
        problems.append(
            f"column headers is {kind.simpleString()} but must be {HEADERS_TYPE.simpleString()}"
        )
    if problems:
        raise SchemaError(f"odradek: these rows cannot be written: {'; '.join(problems)}")
    return {name: places[name] for name in (*_SINK_COLUMNS, "headers") if name in places}


def _missing(name: str, places: dict[str, int]) -> str:
    near = next((each for each in places if each.lower() == name), None)
    hint = f" (there is {near!r}; case matters)" if near else ""
    have = ", ".join(places) or "none"
    return f"there is no column `{name}`{hint}; the columns are {have}"


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, field.dataType) for field in kind.elementType]
    return fields == [("key", StringType()), ("value", BinaryType())]
