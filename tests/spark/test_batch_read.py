"""Reading through a real Spark session, as a user would."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from odradek.broker import SubprocessBroker
from pyspark_odradek.schema import row_schema

pytestmark = pytest.mark.spark

Records = list[tuple[Any, ...]]
Produce = Callable[[str, Records], None]
NewTopic = Callable[..., str]
T0 = 1_700_000_000_000


@pytest.fixture
def read(spark: SparkSession, spark_broker: str) -> Callable[..., DataFrame]:
    """Return a function `read(subscribe=..., ...)` that reads with these options into a
    DataFrame."""

    def load(**options: str) -> DataFrame:
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", spark_broker)
        return reader.options(**options).load()

    return load


def numbered(partition: int, count: int, start: int = 0) -> Records:
    """Records for `produce`. The value of each record is its offset; the timestamps are one second
    apart."""
    return [(partition, None, b"%d" % n, T0 + n * 1000, []) for n in range(start, start + count)]


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def test_c3_rows_are_read_as_by_the_kafka_format_without_registration(
    read: Callable[..., DataFrame], new_topic: NewTopic, produce: Produce
) -> None:
    topic, other = new_topic(2), new_topic()
    produce(topic, [(0, b"k", b"v", T0, [("h", b"1"), ("h", None)]), (1, None, None, T0 + 1, [])])
    produce(other, [(0, b"", b"", T0 + 2, [])])
    frame = read(subscribe=f"{topic},{other}", includeHeaders="true")
    assert frame.schema == row_schema(True)
    rows = {(row.topic, row.partition): row for row in frame.collect()}
    assert len(rows) == 3
    first = rows[topic, 0]
    assert (first.key, first.value, first.offset, first.timestampType) == (b"k", b"v", 0, 0)
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(T0 / 1000, UTC)
    assert [tuple(header) for header in first.headers] == [("h", b"1"), ("h", None)]
    second = rows[topic, 1]
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert (rows[other, 0].key, rows[other, 0].value) == (b"", b"")
    assert read(subscribe=topic).schema == row_schema(False)


def test_offsets_are_read_exactly_from_start_to_end(
    read: Callable[..., DataFrame], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 500) + numbered(1, 300))
    frame = read(
        assign=json.dumps({topic: [0, 1]}),
        startingOffsets=json.dumps({topic: {"0": 17, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 403, "1": -1}}),
    )
    rows = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect()
    assert all(row.value == str(row.offset) for row in rows)
    expected = [(0, n) for n in range(17, 403)] + [(1, n) for n in range(300)]
    assert sorted((row.partition, row.offset) for row in rows) == expected
    only = read(assign=json.dumps({topic: [1]}), endingOffsets=json.dumps({topic: {"1": 5}}))
    assert places(only) == [(1, n) for n in range(5)]


def test_the_number_of_spark_partitions_follows_the_options(
    read: Callable[..., DataFrame], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(3)
    produce(topic, numbered(0, 200) + numbered(1, 100))
    assert read(subscribe=topic).rdd.getNumPartitions() == 2
    many = read(subscribe=topic, minPartitions="6")
    assert many.rdd.getNumPartitions() == 6
    assert places(many) == [(0, n) for n in range(200)] + [(1, n) for n in range(100)]
    assert read(subscribe=topic, maxRecordsPerPartition="30").rdd.getNumPartitions() == 7 + 4


@pytest.mark.full
def test_timestamps_select_the_first_record_at_or_after_them(
    read: Callable[..., DataFrame], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 10) + numbered(1, 5))
    middle = read(
        subscribe=topic, startingTimestamp=str(T0 + 2_500), endingTimestamp=str(T0 + 4_000)
    )
    assert places(middle) == [(0, 3), (1, 3)]
    per_partition = read(
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": T0 + 8_000, "1": T0}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": T0 + 90_000, "1": T0 + 1_000}}),
    )
    assert places(per_partition) == [(0, 8), (0, 9), (1, 0)]
    late = {"subscribe": topic, "startingTimestamp": str(T0 + 7_000)}
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy"):
        read(**late).collect()
    latest = read(**late, startingOffsetsByTimestampStrategy="latest")
    assert places(latest) == [(0, 7), (0, 8), (0, 9)]


@pytest.mark.full
def test_a_pattern_matches_anywhere_in_topic_names(
    read: Callable[..., DataFrame], new_topic: NewTopic, produce: Produce
) -> None:
    """Spark's own format also matches anywhere in a name; with anchors the pattern must match the
    whole name."""
    one, two = new_topic(prefix="pattern-a"), new_topic(prefix="pattern-b")
    longer = new_topic(prefix="not-pattern-a")
    for topic in (one, two, longer):
        produce(topic, numbered(0, 1))

    def found(pattern: str) -> list[str]:
        rows = read(subscribePattern=pattern).select("topic").collect()
        return sorted(row.topic for row in rows)

    assert found("pattern-[ab]") == [longer, one, two]
    assert found("^pattern-[ab]-") == [one, two]
    assert found(f"^{one}$") == [one]
    assert found("no-such-.*") == []


@pytest.mark.full
def test_an_empty_topic_has_no_rows(read: Callable[..., DataFrame], new_topic: NewTopic) -> None:
    assert read(subscribe=new_topic(3)).count() == 0


@pytest.mark.full
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_compressed_by_librdkafka_are_read(
    codec: str, read: Callable[..., DataFrame], new_topic: NewTopic, spark_broker: str
) -> None:
    topic = new_topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": spark_broker, "compression.type": codec, "linger.ms": 50}
    )
    for n in range(1_000):
        producer.produce(topic, b"%0100d" % n)
    assert producer.flush(20) == 0
    row = read(subscribe=topic).selectExpr("count(DISTINCT value) AS n", "max(offset) AS o").first()
    assert row is not None
    assert (row.n, row.o) == (1_000, 999)


@pytest.mark.full
def test_records_larger_than_the_fetch_limit_are_read_one_by_one(
    read: Callable[..., DataFrame], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, [(0, None, bytes([n]) * 700_000, T0, []) for n in range(5)])
    frame = read(subscribe=topic, **{"kafka.max.partition.fetch.bytes": "1000"})
    found = frame.selectExpr("length(value) AS n", "offset").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [(700_000, n) for n in range(5)]


# --- data loss ------------------------------------------------------------------------------------


@pytest.mark.full
def test_an_end_beyond_the_log_fails_unless_data_loss_is_allowed(
    read: Callable[..., DataFrame], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 10))
    beyond = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 11}})}
    with pytest.raises(Exception, match="the log ends at 10"):
        read(**beyond).collect()
    assert len(places(read(**beyond, failOnDataLoss="false"))) == 10


@pytest.mark.full
def test_records_deleted_by_retention_are_data_loss(
    spark: SparkSession, odradek_broker: SubprocessBroker
) -> None:
    address: dict[str, Any] = {"bootstrap.servers": odradek_broker.bootstrap}
    admin = confluent_kafka.admin.AdminClient(address)
    topic = confluent_kafka.admin.NewTopic("old", 1, 1, config={"segment.bytes": "10000"})  # type: ignore[attr-defined]
    admin.create_topics([topic])["old"].result(20)
    producer = confluent_kafka.Producer(address)
    for _ in range(6):
        for _ in range(10):
            producer.produce("old", b"x" * 900)
        assert producer.flush(20) == 0
    odradek_broker.stop()
    start = _drop_first_segment(odradek_broker.data_dir / "old-0")
    odradek_broker.start()
    reader = spark.read.format("odradek").options(
        **{"kafka.bootstrap.servers": odradek_broker.bootstrap, "subscribe": "old"}
    )
    reader = reader.option("startingOffsets", json.dumps({"old": {"0": 1}}))
    with pytest.raises(Exception, match=f"the log starts at {start}"):
        reader.load().collect()
    found = places(reader.option("failOnDataLoss", "false").load())
    assert found == [(0, n) for n in range(start, 60)]


def _drop_first_segment(folder: Path) -> int:
    """Delete the first segment, as retention does. Returns the new log start."""
    first, second = sorted(folder.glob("*.log"))[:2]
    for file in folder.glob(f"{first.stem}.*"):
        file.unlink()
    return int(second.stem)


# --- errors of users ------------------------------------------------------------------------------


def test_load_reports_all_invalid_options_at_once(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("odradek").option("subscrib", "t").load()
    text = str(caught.value)
    assert "did you mean subscribe?" in text
    assert "kafka.bootstrap.servers is missing" in text
    assert "nothing says what to read" in text


@pytest.mark.full
def test_a_read_of_an_unknown_topic_or_partition_names_it(
    read: Callable[..., DataFrame], new_topic: NewTopic
) -> None:
    with pytest.raises(Exception, match="there is no topic 'no-such-topic'"):
        read(subscribe="no-such-topic").collect()
    topic = new_topic(2)
    with pytest.raises(Exception, match=f"there is no {topic}-2; '{topic}' has 2 partitions"):
        read(assign=json.dumps({topic: [0, 2]})).collect()
    with pytest.raises(Exception, match=f"does not name {topic}-1"):
        read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}})).collect()


@pytest.mark.full
def test_a_read_fails_within_the_time_limit_if_no_broker_is_reachable(spark: SparkSession) -> None:
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", "127.0.0.1:1")
    frame = reader.options(subscribe="t", **{"kafka.default.api.timeout.ms": "1500"}).load()
    with pytest.raises(Exception, match=r"no broker of 127\.0\.0\.1:1 could be reached"):
        frame.collect()


@pytest.mark.full
def test_a_read_with_another_schema_is_refused(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", spark_broker)
    with pytest.raises(Exception, match="schema of a read is fixed"):
        reader.option("subscribe", new_topic()).schema("value STRING").load().collect()
