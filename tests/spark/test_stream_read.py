"""Streams through a real Spark session, as a user would."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_odradek.schema import row_schema, schema_of
from spark_stream import PATIENCE_S, T0, Records, Stream, numbered, until

pytestmark = pytest.mark.spark

Produce = Callable[[str, Records], None]
NewTopic = Callable[..., str]


@pytest.mark.full
def test_c3_every_record_is_read_once_across_restarts(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 30) + numbered(1, 20))
    query = stream(subscribe=topic)
    query.run()
    assert query.places == [(0, n) for n in range(30)] + [(1, n) for n in range(20)]
    end = query.progress[0]["sources"][0]["endOffset"]
    assert end.pop(topic) == {"0": 30, "1": 20}
    ((name, nothing),) = end.items()
    assert (name.split(":")[0], nothing) == (topic, {}), "the topic's id"
    assert query.progress[0]["sources"][0]["latestOffset"] == {topic: {"0": 30, "1": 20}}
    query.batches.clear()
    query.run()
    assert query.places == []
    produce(topic, numbered(1, 5, start=20))
    query.run()
    assert query.places == [(1, n) for n in range(20, 25)]


@pytest.mark.full
def test_c1_max_offsets_is_split_by_backlog_and_available_now_ends(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 75) + numbered(1, 25))
    query = stream(subscribe=topic, maxOffsetsPerTrigger="40")
    query.run()
    assert query.sizes == [40, 40, 20]
    assert query.batches[0][1] == [(0, n) for n in range(30)] + [(1, n) for n in range(10)]
    assert query.places == [(0, n) for n in range(75)] + [(1, n) for n in range(25)]


@pytest.mark.full
def test_trigger_once_reads_all_records_in_a_batch_despite_limits(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 50))
    query = stream(subscribe=topic, maxOffsetsPerTrigger="10")
    query.run(once=True)
    assert query.sizes == [50]


@pytest.mark.full
def test_max_bytes_per_trigger_limits_a_batch_approximately(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    for _ in range(6):
        produce(topic, [(0, None, bytes(1000), T0, [])] * 10)
    query = stream(subscribe=topic, maxBytesPerTrigger="20500")
    query.run()
    # The topic has six batches of ten records, of about 10,100 bytes each.
    assert query.sizes == [20, 20, 20]


@pytest.mark.full
def test_c1_a_batch_waits_for_its_minimum(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 5))
    query = stream(subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    running = query.start(processingTime="0 seconds")
    try:
        until(lambda: query.sizes == [5], running)  # The first batch is not delayed.
        produce(topic, numbered(0, 4, start=5))
        seen = len(running.recentProgress)
        time.sleep(1)
        assert query.sizes == [5], seen
        produce(topic, numbered(0, 6, start=9))
        until(lambda: query.sizes == [5, 10], running)
    finally:
        running.stop()


@pytest.mark.full
def test_new_partitions_and_topics_are_read_from_their_beginning(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce, spark_broker: str
) -> None:
    topic = new_topic(prefix="growing")
    produce(topic, numbered(0, 3))
    query = stream(subscribePattern=f"{topic}.*")
    running = query.start(processingTime="0 seconds")
    try:
        until(lambda: len(query.places) == 3, running)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": spark_broker})
        grown = confluent_kafka.admin.NewPartitions(topic, 2)  # type: ignore[attr-defined]
        admin.create_partitions([grown])[topic].result(20)
        other = confluent_kafka.admin.NewTopic(f"{topic}-b", 1, 1)  # type: ignore[attr-defined]
        admin.create_topics([other])[f"{topic}-b"].result(20)
        produce(topic, numbered(1, 4))
        produce(f"{topic}-b", numbered(0, 2))
        until(lambda: len(query.places) == 9, running)
        assert query.places == sorted(
            [(0, n) for n in range(3)] + [(1, n) for n in range(4)] + [(0, 0), (0, 1)]
        )
    finally:
        running.stop()


@pytest.mark.full
def test_a_stream_begins_at_the_latest_offsets(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 5))
    query = stream(subscribe=topic, startingOffsets="latest")
    query.run()
    produce(topic, numbered(0, 2, start=5))
    query.run()
    assert query.places == [(0, 5), (0, 6)]


@pytest.mark.full
def test_a_stream_begins_at_a_timestamp(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 5))
    query = stream(subscribe=topic, startingTimestamp=str(T0 + 3000))
    query.run()
    assert query.places == [(0, 3), (0, 4)]


@pytest.mark.full
def test_c1_offset_gaps_of_transactions_are_no_data_loss(
    stream: Callable[..., Stream], new_topic: NewTopic, spark_broker: str
) -> None:
    topic = new_topic()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": spark_broker,
            "transactional.id": topic,
            "transaction.timeout.ms": 30_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(20)
    for commit in (True, False, True):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"v", partition=0)
        producer.flush(20)
        (producer.commit_transaction if commit else producer.abort_transaction)(20)
    query = stream({"kafka.isolation.level": "read_committed"}, subscribe=topic)
    query.run()
    # Offsets 3, 7 and 11 are markers; the records 4 to 6 are aborted.
    assert query.places == [(0, n) for n in (0, 1, 2, 8, 9, 10)]


@pytest.mark.full
def test_progress_is_committed_for_a_group_up_to_the_last_batch(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce, spark_broker: str
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 30) + numbered(1, 10))
    query = stream(subscribe=topic, maxOffsetsPerTrigger="20", groupId=f"{topic}-lag")
    query.run()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": spark_broker, "group.id": f"{topic}-lag"}
    )
    parts = [confluent_kafka.TopicPartition(topic, number) for number in (0, 1)]
    try:
        assert [each.offset for each in consumer.committed(parts, 20)] == [30, 10]
    finally:
        consumer.close()


@pytest.mark.full
def test_a_replayed_batch_reads_the_same_records(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 20) + numbered(1, 20))
    query = stream(subscribe=topic, maxOffsetsPerTrigger="15", minPartitions="5")
    query.run()
    last_id, last = query.batches[-1]
    assert query.forget_last_commit() == last_id
    produce(topic, numbered(0, 5, start=20))
    query.batches.clear()
    query.run()
    assert query.batches[0] == (last_id, last)
    assert query.batches[1][1] == [(0, n) for n in range(20, 25)]


@pytest.mark.full
def test_a_stream_has_the_columns_of_a_batch_or_the_chosen_ones(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, [(0, b"k", b"v", T0, [("h", b"1")])])
    assert stream(subscribe=topic).frame().schema == row_schema(False)
    some = stream(subscribe=topic, columns="value, headers,partition,offset")
    assert some.frame().schema == schema_of(["value", "partition", "offset", "headers"])
    found: list[Any] = []
    query = (
        some.frame()
        .writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
        .option("checkpointLocation", str(some.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    (row,) = found
    assert (row.value, row.partition, row.offset) == (b"v", 0, 0)
    assert [tuple(each) for each in row.headers] == [("h", b"1")]


def deleted(spark_broker: str, topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": spark_broker})
    admin.delete_topics([topic])[topic].result(20)


@pytest.mark.full
def test_a_deleted_topic_fails_the_query_with_its_name(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce, spark_broker: str
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 3))
    query = stream(subscribe=topic)
    query.run()
    deleted(spark_broker, topic)
    with pytest.raises(StreamingQueryException, match=f"there is no topic '{topic}'"):
        query.run()


@pytest.mark.full
def test_a_deleted_topic_is_dropped_without_fail_on_data_loss(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce, spark_broker: str
) -> None:
    gone, stays = new_topic(), new_topic()
    produce(gone, numbered(0, 3))
    produce(stays, numbered(0, 2))
    query = stream(subscribe=f"{gone},{stays}", failOnDataLoss="false")
    query.run()
    deleted(spark_broker, gone)
    produce(stays, numbered(0, 4, start=2))
    query.batches.clear()
    query.run()
    assert query.places == [(0, n) for n in range(2, 6)]


@pytest.mark.full
def test_c1_a_topic_recreated_with_a_longer_log_is_data_loss(
    stream: Callable[..., Stream], new_topic: NewTopic, produce: Produce, spark_broker: str
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 10))
    query = stream(subscribe=topic)
    query.run()
    deleted(spark_broker, topic)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": spark_broker})
    anew = confluent_kafka.admin.NewTopic(topic, 1, 1)  # type: ignore[attr-defined]
    admin.create_topics([anew])[topic].result(20)
    produce(topic, numbered(0, 12))
    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        query.run()


@pytest.mark.full
def test_the_checkpoint_of_another_source_is_refused(
    spark: SparkSession, stream: Callable[..., Stream], new_topic: NewTopic
) -> None:
    query = stream(subscribe=new_topic())
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    other = (
        rate.writeStream.format("noop")
        .option("checkpointLocation", str(query.checkpoint))
        .trigger(once=True)
        .start()
    )
    assert other.awaitTermination(PATIENCE_S)
    with pytest.raises(StreamingQueryException, match="checkpointLocation"):
        query.run()


@pytest.mark.full
def test_a_stream_refuses_ending_offsets(
    stream: Callable[..., Stream], new_topic: NewTopic
) -> None:
    query = stream(subscribe=new_topic(), endingOffsets="latest")
    with pytest.raises(Exception, match="endingOffsets is for batch queries"):
        query.run()
