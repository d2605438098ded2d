"""Writing through a real Spark session; foreign clients read the records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import kafka
import pytest
from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NewTopic = Callable[..., str]
HEADERS = "array<struct<key:string,value:binary>>"


def write(frame: DataFrame, broker: str, mode: str = "append", **options: str) -> None:
    """Write a frame with the code that users would write."""
    (
        frame.write.format("odradek")
        .mode(mode)
        .option("kafka.bootstrap.servers", broker)
        .options(**options)
        .save()
    )


def consume(broker: str, topic: str, partitions: int = 1) -> list[Any]:
    """Read everything in the topic with kafka-python."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker)
    try:
        assigned = [kafka.TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        consumer.seek_to_beginning()
        records: list[Any] = []
        while any(consumer.position(each) < ends[each] for each in assigned):
            for some in consumer.poll(timeout_ms=500).values():
                records += some
        return sorted(records, key=lambda record: (record.partition, record.offset))
    finally:
        consumer.close()


def test_every_column_of_a_row_is_written(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    one, two = new_topic(3), new_topic(3)
    frame = spark.createDataFrame(
        [
            (one, 2, bytearray(b"k"), "text", [("h", bytearray(b"1")), ("h", None)], 1),
            (one, 1, None, None, None, 2),
            (two, 0, bytearray(b""), "", [], 3),
        ],
        f"topic string, partition int, key binary, value string, headers {HEADERS}, ignored int",
    )
    write(frame, spark_broker)
    null, full = consume(spark_broker, one, 3)
    assert (full.partition, full.key, full.value) == (2, b"k", b"text")
    assert list(full.headers) == [("h", b"1"), ("h", None)]
    assert (null.partition, null.key, null.value, list(null.headers)) == (1, None, None, [])
    (empty,) = consume(spark_broker, two, 3)
    assert (empty.key, empty.value, empty.partition) == (b"", b"", 0)


def test_the_option_topic_overrides_the_column_topic(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    column, option = new_topic(), new_topic()
    frame = spark.createDataFrame([(column, "v"), (None, "w")], "topic string, value string")
    write(frame, spark_broker, topic=option)
    assert sorted(record.value for record in consume(spark_broker, option)) == [b"v", b"w"]
    assert consume(spark_broker, column) == []


def test_many_rows_are_written_once_and_to_the_partitions_of_the_java_client(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    topic, by_librdkafka = new_topic(4), new_topic(4)
    frame = spark.range(30_000).selectExpr(
        "CAST(id % 100 AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
    write(frame, spark_broker, topic=topic, **{"kafka.compression.type": "lz4"})
    records = consume(spark_broker, topic, 4)
    assert sorted(int(record.value) for record in records) == list(range(30_000))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": spark_broker, "partitioner": "murmur2_random"}
    )
    for n in range(100):
        producer.produce(by_librdkafka, key=str(n))
    assert producer.flush(20) == 0
    expected = {record.key: record.partition for record in consume(spark_broker, by_librdkafka, 4)}
    assert {record.key: record.partition for record in records} == expected


@pytest.mark.full
def test_written_rows_are_read_by_spark_again(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    write(frame, spark_broker, topic=topic)
    back = (
        spark.read.format("odradek")
        .options(**{"kafka.bootstrap.servers": spark_broker, "subscribe": topic})
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    assert back.exceptAll(frame).count() == 0
    assert back.count() == 100


def test_an_empty_frame_writes_no_records(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    write(spark.createDataFrame([], "value string"), spark_broker, topic=topic)
    assert consume(spark_broker, topic) == []


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("'x' AS key", "there is no column `value`"),
        ("1 AS value", "column value is int but must be string or binary"),
        ("'x' AS value, 5L AS partition", "column partition is bigint"),
    ],
)
def test_columns_of_wrong_names_and_types_are_refused_before_a_write(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic, columns: str, told: str
) -> None:
    topic = new_topic()
    with pytest.raises(Exception, match=told):
        write(spark.sql(f"SELECT {columns}"), spark_broker, topic=topic)
    assert consume(spark_broker, topic) == []


@pytest.mark.full
def test_unwritable_rows_fail_the_job_with_the_reason(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    for columns, told in (
        ("'x' AS value, CAST(NULL AS STRING) AS topic", "a row has no topic"),
        (f"'x' AS value, '{topic}' AS topic, 7 AS partition", "has the partitions 0 to 1, not 7"),
        (f"repeat('x', 2000000) AS value, '{topic}' AS topic", "max_request_size"),
    ):
        options = {"kafka.max.block.ms": "1500"}
        with pytest.raises(Exception, match=told):
            write(spark.sql(f"SELECT {columns}"), spark_broker, **options)
    assert consume(spark_broker, topic, 2) == []


@pytest.mark.full
def test_only_the_save_mode_append_is_accepted(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    """The mode has to be given: Spark requires one for every source written in Python."""
    frame = spark.sql("SELECT 'x' AS value")
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        write(frame, spark_broker, "overwrite", topic=new_topic())
    with pytest.raises(Exception, match="Append"):
        write(frame, spark_broker, "errorifexists", topic=new_topic())
    with pytest.raises(Exception, match="nothing says which topic"):
        write(frame, spark_broker)


@pytest.mark.full
def test_librdkafkas_mock_cluster_is_written_and_read(spark: SparkSession) -> None:
    """The mock cluster has three nodes, which lead different partitions, and contains no code of
    Odradek."""
    mock = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = mock.list_topics(timeout=20).brokers.values()
    address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    frame = spark.range(2_000).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
    write(frame, address, topic="elsewhere")
    loaded = (
        spark.read.format("odradek")
        .options(**{"kafka.bootstrap.servers": address, "subscribe": "elsewhere"})
        # The mock broker's control batches have no checksum.
        .option("kafka.check.crcs", "false")
        .load()
    )
    row = loaded.selectExpr(
        "count(DISTINCT value) AS n", "count(*) AS m", "count(DISTINCT partition) AS p"
    ).first()
    assert row is not None
    assert (row.n, row.m) == (2_000, 2_000)
    assert row.p > 1
