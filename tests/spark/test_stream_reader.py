"""The driver's part of a stream, with a broker and without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from odradek import sync
from odradek_client.admin import NewTopic
from pyspark_odradek.errors import DataLoss
from pyspark_odradek.options import Query, columns_of, parse_source
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
    return StreamReader(parse_source(given, Query.STREAM), schema_of(columns_of(given)))


def put(produce: Produce, topic: str, count: int) -> None:
    produce(topic, [(0, None, b"%d" % number, 1_700_000_000_000, None) for number in range(count)])


def at(topic: str, offset: int) -> dict[str, dict[str, int]]:
    return {topic: {"0": offset}}


@pytest.mark.parametrize("left", [3, 5, 8])
def test_available_now_detects_a_topic_recreated_before_its_end_is_known(
    spark_broker: str, topic: str, produce: Produce, left: int
) -> None:
    """The topic is created again after the reader knows the first offset, and before it knows the
    end offset of the run. The offsets of its records alone do not show that it is a new topic."""
    put(produce, topic, 5)
    stream = reader(spark_broker, topic, startingOffsets="latest")
    assert stream.initialOffset() == at(topic, 5)
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
    assert stream.initialOffset() == at(topic, 0)
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
    assert stream.initialOffset() == at(topic, 0)
    assert stream.latestOffset(at(topic, 0), ALL) == at(topic, 3)


def test_records_after_the_end_of_available_now_are_no_data_loss(
    spark_broker: str, topic: str, produce: Produce
) -> None:
    """With availableNow, Spark asks for the end offsets of a run first, and then for its start
    offsets."""
    put(produce, topic, 5)
    stream = reader(spark_broker, topic, startingOffsets="latest")
    stream.prepareForTriggerAvailableNow()
    put(produce, topic, 2)
    assert stream.initialOffset() == at(topic, 7)
    put(produce, topic, 2)
    assert stream.latestOffset(at(topic, 7), ALL) == at(topic, 7)
