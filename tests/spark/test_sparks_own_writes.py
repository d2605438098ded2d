"""Writes with Spark's own `kafka` format and with ours, to our broker and to Apache Kafka.

pytest --kafka tests/spark/test_sparks_own_writes.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from foreign_topics import send_records
from odradek.testing import make_unique_topic
from spark_stream import numbered, run_to_end
from two_formats import COMMITTED, REFUSED, load, make_topic, of_both, outcome, rows_of, save

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 30_000
SHORT = {"kafka.max.block.ms": "3000"}
NewTopic = Callable[..., str]


@pytest.fixture
def new_topic(either_broker: str) -> NewTopic:
    """Return a function that creates a topic in the tested broker."""

    def make(partitions: int = 1) -> str:
        name = make_unique_topic()
        make_topic(either_broker, name, partitions)
        return name

    return make


@pytest.fixture
def read_back(spark: SparkSession, either_broker: str) -> Callable[[str], list[Any]]:
    """Return a function that reads committed records: (partition, key, value, timestampType,
    headers)."""

    def read(topic: str) -> list[Any]:
        options = {"subscribe": topic, "includeHeaders": "true"} | COMMITTED
        frame = load(spark, "kafka", either_broker, **options)
        return rows_of(frame.select("partition", "key", "value", "timestampType", "headers"))

    return read


HEADERS = "array(named_struct('key', 'a', 'value', cast({} as binary)))"
NAMELESS = HEADERS.format("1").replace("'a'", "cast(NULL AS string)")
#: (query, options) of writes to a topic with three partitions.
WRITES: list[tuple[str, dict[str, str]]] = [
    ("SELECT if(id % 7 = 0, '', concat('k', id)) key, string(id) value FROM range(60)", {}),
    ("SELECT 'k' key, cast(NULL AS string) value", {}),
    ("SELECT cast('k' AS binary) key, cast('v' AS binary) value", {}),
    (f"SELECT 'k' key, 'v' value, {HEADERS.format('1')} headers", {"includeHeaders": "true"}),
    (f"SELECT 'k' key, 'v' value, {HEADERS.format('1')} headers", {}),
    (f"SELECT 'k' key, 'v' value, {HEADERS.format('NULL')} headers", {"includeHeaders": "true"}),
    ("SELECT 'k' key, 'v' value, array() headers", {"includeHeaders": "true"}),
    (
        "SELECT 'k' key, 'v' value, cast(NULL AS array<struct<key:string,value:binary>>) headers",
        {"includeHeaders": "true"},
    ),
    (f"SELECT 'v' value, {NAMELESS} headers", {}),
    ("SELECT 'v' value, 2 partition", {}),
    ("SELECT 'k' key, 'v' value, cast(NULL AS int) partition", {}),
    ("SELECT 'v' value, 9 partition", SHORT),
    ("SELECT 'v' value, -1 partition", SHORT),
    ("SELECT 'v' value, 1L partition", {}),
    ("SELECT 1 value", {}),
    ("SELECT 'v' other", {}),
    ("SELECT 'v' VALUE", {}),
    ("SELECT 'k' key, 'v' value, 5 other", {}),
    ("SELECT 'k' key, 'v' value WHERE false", {}),
    ("SELECT 'k' key, cast('v' AS varchar(3)) value", {}),
    ("SELECT repeat('x', 1100000) value", {}),
    ("SELECT 'no-such' topic, 'k' key, 'v' value", {}),
]


@pytest.mark.parametrize(("query", "options"), WRITES, ids=str)
def test_both_formats_write_or_refuse_the_same_records(
    spark: SparkSession,
    either_broker: str,
    new_topic: NewTopic,
    read_back: Callable[[str], list[Any]],
    query: str,
    options: dict[str, str],
) -> None:
    def run(kind: str) -> Any:
        topic = new_topic(3)
        save(spark.sql(query), kind, either_broker, topic=topic, **options)
        return read_back(topic)

    theirs, ours = of_both(run)
    assert theirs == ours


@pytest.mark.parametrize(
    "topics", ["'ONE'", "'TWO'", "cast(NULL AS string)", "cast('ONE' AS binary)", None]
)
def test_both_formats_write_to_the_topics_of_the_column_topic(
    spark: SparkSession,
    either_broker: str,
    new_topic: NewTopic,
    read_back: Callable[[str], list[Any]],
    topics: str | None,
) -> None:
    def run(kind: str) -> Any:
        one, two = new_topic(), new_topic()
        column = "" if topics is None else f", {topics} topic"
        query = f"SELECT 'k' key, 'v' value{column}".replace("ONE", one).replace("TWO", two)
        save(spark.sql(query), kind, either_broker)
        return read_back(one), read_back(two)

    theirs, ours = of_both(run)
    assert theirs == ours


@pytest.mark.parametrize(
    ("mode", "differs"),
    [(None, True), ("error", True), ("ignore", False), ("overwrite", False), ("append", False)],
)
def test_save_modes_differ_in_the_default_only(
    spark: SparkSession, either_broker: str, new_topic: NewTopic, mode: str | None, differs: bool
) -> None:
    def run(kind: str) -> Any:
        writer = spark.sql("SELECT 'v' value").write.format(kind)
        if mode is not None:
            writer = writer.mode(mode)
        writer.options(**{"kafka.bootstrap.servers": either_broker, "topic": new_topic()}).save()
        return "written"

    theirs, ours = of_both(run)
    # Spark does not accept the default save mode for a source written in Python.
    assert (theirs, ours) == ("written", REFUSED) if differs else theirs == ours


def test_only_our_format_repeats_no_rows_of_a_failed_job(
    spark: SparkSession,
    either_broker: str,
    new_topic: NewTopic,
    read_back: Callable[[str], list[Any]],
    tmp_path: Path,
) -> None:
    """Spark's own format leaves the rows of the failed attempts in the topic; our format does
    not."""

    @udf("string")
    def fragile(number: int, mark: str) -> str:
        if number == 25_000 and not Path(mark).exists():
            Path(mark).touch()
            raise ValueError("this row fails once")
        return str(number)

    def run(kind: str) -> Any:
        topic = new_topic()
        # Spark passes 10,000 rows at a time to Python functions: some are in the sink before row
        # 25,000 fails.
        frame = spark.range(0, ROWS, 1, 1).selectExpr("id", f"'{tmp_path / kind}' mark")
        rows = frame.select(fragile("id", "mark").alias("value"))
        first = outcome(lambda: save(rows, kind, either_broker, topic=topic))
        save(rows, kind, either_broker, topic=topic)
        found = [row[2] for row in read_back(topic)]
        return first, len(set(found)), len(found)

    theirs, ours = of_both(run)
    assert ours == (REFUSED, ROWS, ROWS)
    assert theirs[:2] == (REFUSED, ROWS) and theirs[2] > ROWS


def test_only_our_format_repeats_no_rows_of_a_replayed_batch(
    spark: SparkSession,
    either_broker: str,
    new_topic: NewTopic,
    read_back: Callable[[str], list[Any]],
    tmp_path: Path,
) -> None:
    """Spark has ended after the sink has committed the batch, and before recording its own
    commit."""
    source = new_topic()
    send_records(either_broker, source, numbered(0, 50))

    def run(kind: str) -> Any:
        sink, checkpoint = new_topic(2), tmp_path / kind
        for attempt in range(2):
            reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", either_broker)
            frame = reader.options(subscribe=source, startingOffsets="earliest").load()
            writer = frame.select("value").writeStream.format(kind)
            writer = writer.option("kafka.bootstrap.servers", either_broker).option("topic", sink)
            writer = writer.option("checkpointLocation", str(checkpoint))
            run_to_end(writer.trigger(availableNow=True).start)
            if attempt == 0:
                (checkpoint / "commits" / "0").unlink()
                (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
        found = [row[2] for row in read_back(sink)]
        return len(set(found)), len(found)

    assert of_both(run) == ((50, 100), (50, 50))
