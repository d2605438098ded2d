"""The driver's part of a stream, with a broker and without Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from odradek import sync
from odradek_client.admin import NewTopic
from pyspark_odradek.errors import DataLoss
from pyspark_odradek.options import QueryKind, columns_of, parse_source
from pyspark_odradek.schema import schema_of
from pyspark_odradek.stream_reader import StreamReader

Produce = Callable[..., None]
ALL = ReadAllAvailable()


@pytest.fixture
def topic(spark_broker: str) -> str:
    name = uuid.uuid4().hex
    make(spark_broker, name)
    return name


def make(broker: str, topic: str) -> None:
    with sync.Admin(bootstrap_servers=broker) as admin:
        admin.create_topics(NewTopic(topic, partitions=1))


def recreate_topic(broker: str, topic: str) -> None:
    with sync.Admin(bootstrap_servers=broker) as admin:
        admin.delete_topics(topic)
    make(broker, topic)


def reader(broker: str, topic: str, **options: str) -> StreamReader:
    given: dict[str, Any] = {"kafka.bootstrap.servers": broker, "subscribe": topic, **options}
    return StreamReader(parse_source(given, QueryKind.STREAM), schema_of(columns_of(given)))


def put(produce: Produce, topic: str, count: int) -> None:
    produce(topic, [(0, None, b"%d" % number, 1_700_000_000_000, None) for number in range(count)])


def at(topic: str, offset: int) -> dict[str, dict[str, int]]:
    return {topic: {"0": offset}}


def without_ids(offsets: dict[str, Any]) -> dict[str, Any]:
    """The offsets in the form of Spark's own format, and of checkpoints of earlier connectors."""
    return {topic: partitions for topic, partitions in offsets.items() if ":" not in topic}


@pytest.mark.parametrize("left", [3, 5, 8])
def test_available_now_detects_a_topic_recreated_before_its_end_is_known(
    spark_broker: str, topic: str, produce: Produce, left: int
) -> None:
    """The topic is created again after the reader knows the first offset, and before it knows the
    end offset of the run. The offsets of its records alone do not show that it is a new topic."""
    put(produce, topic, 5)
    stream = reader(spark_broker, topic, startingOffsets="latest")
    assert without_ids(stream.initialOffset()) == at(topic, 5)
    recreate_topic(spark_broker, topic)
    put(produce, topic, left)
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="was deleted and created again"):
        stream.latestOffset(at(topic, 5), ALL)


@pytest.mark.parametrize("left", [3, 5, 8])
def test_available_now_detects_a_topic_recreated_after_its_begin(
    spark_broker: str, topic: str, produce: Produce, left: int
) -> None:
    put(produce, topic, 5)
    stream = reader(spark_broker, topic, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    assert without_ids(stream.initialOffset()) == at(topic, 0)
    recreate_topic(spark_broker, topic)
    put(produce, topic, left)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        stream.latestOffset(at(topic, 0), ALL)


def test_a_topic_recreated_before_a_query_begins_is_no_data_loss(
    spark_broker: str, topic: str, produce: Produce
) -> None:
    put(produce, topic, 5)
    stream = reader(spark_broker, topic, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    recreate_topic(spark_broker, topic)
    put(produce, topic, 3)
    assert without_ids(stream.initialOffset()) == at(topic, 0)
    assert without_ids(stream.latestOffset(at(topic, 0), ALL)) == at(topic, 3)


def test_records_after_the_end_of_available_now_are_no_data_loss(
    spark_broker: str, topic: str, produce: Produce
) -> None:
    """With availableNow, Spark asks for the end offsets of a run first, and then for its start
    offsets."""
    put(produce, topic, 5)
    stream = reader(spark_broker, topic, startingOffsets="latest")
    stream.prepareForTriggerAvailableNow()
    put(produce, topic, 2)
    assert without_ids(stream.initialOffset()) == at(topic, 7)
    put(produce, topic, 2)
    assert stream.latestOffset(at(topic, 7), ALL) == at(topic, 7)


# --- topics that are created again while the query is stopped -------------------------------------


def checkpointed(
    produce: Produce, broker: str, topic: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The offsets of a first batch of five records, as the checkpoint has them."""
    put(produce, topic, 5)
    stream = reader(broker, topic, startingOffsets="earliest")
    begin = stream.initialOffset()
    return begin, stream.latestOffset(begin, ALL)


@pytest.mark.parametrize("left", [3, 5, 8])
def test_a_topic_recreated_while_the_query_is_stopped_is_data_loss(
    spark_broker: str, topic: str, produce: Produce, left: int
) -> None:
    _, done = checkpointed(produce, spark_broker, topic)
    recreate_topic(spark_broker, topic)
    put(produce, topic, left)
    for _ in range(2):  # Each restart fails, until the user decides.
        stream = reader(spark_broker, topic)
        stream.prepareForTriggerAvailableNow()
        with pytest.raises(DataLoss, match="was deleted and created again"):
            stream.latestOffset(done, ALL)
    lenient = reader(spark_broker, topic, failOnDataLoss="false")
    found = lenient.latestOffset(done, ALL)
    assert lenient.partitions(done, found) == []
    assert without_ids(found) == at(topic, 0)
    again = lenient.latestOffset(found, ALL)
    assert without_ids(again) == at(topic, left)
    rows = [row for part in lenient.partitions(found, again) for row in lenient.read(part)]
    assert sum(each.num_rows for each in rows) == left


def test_a_planned_batch_is_not_read_from_a_recreated_topic(
    spark_broker: str, topic: str, produce: Produce
) -> None:
    begin, end = checkpointed(produce, spark_broker, topic)
    recreate_topic(spark_broker, topic)
    put(produce, topic, 8)
    stream = reader(spark_broker, topic, **{"fetchOffset.numRetries": "0"})
    stream.prepareForTriggerAvailableNow()  # The metadata has the id of the new topic.
    (part,) = stream.partitions(begin, end)
    with pytest.raises(DataLoss, match="its topic was created again"):
        list(stream.read(part))


def test_a_checkpoint_without_topic_ids_continues(
    spark_broker: str, topic: str, produce: Produce
) -> None:
    """Without new records the offsets stay as they are, because Spark would take others for a new
    batch."""
    _, done = checkpointed(produce, spark_broker, topic)
    stream = reader(spark_broker, topic)
    assert stream.latestOffset(at(topic, 5), ALL) == at(topic, 5)
    put(produce, topic, 2)
    end = stream.latestOffset(at(topic, 5), ALL)
    assert (without_ids(end), end.keys()) == (at(topic, 7), done.keys())
    (part,) = stream.partitions(at(topic, 5), end)
    assert sum(each.num_rows for each in stream.read(part)) == 2


def test_topic_ids_of_another_cluster_do_not_count(
    spark_broker: str, topic: str, produce: Produce
) -> None:
    """A query may continue in a mirror of its topic, which has another id."""
    begin, end = checkpointed(produce, spark_broker, topic)
    moved = [{name + "x" * (":" in name): each[name] for name in each} for each in (begin, end)]
    recreate_topic(spark_broker, topic)
    put(produce, topic, 8)
    stream = reader(spark_broker, topic)
    stream.prepareForTriggerAvailableNow()
    (part,) = stream.partitions(*moved)
    assert sum(each.num_rows for each in stream.read(part)) == 5
    assert without_ids(stream.latestOffset(moved[1], ALL)) == at(topic, 8)


def test_offsets_with_topic_ids_are_accepted_as_starting_offsets(
    spark_broker: str, topic: str, produce: Produce
) -> None:
    _, end = checkpointed(produce, spark_broker, topic)
    stream = reader(spark_broker, topic, startingOffsets=json.dumps(end))
    assert stream.initialOffset() == end
