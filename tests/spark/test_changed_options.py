"""Streams that are restarted from their checkpoint with changed options."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from foreign_topics import open_transaction
from spark_stream import Records, Stream, numbered

pytestmark = pytest.mark.spark

NewStream = Callable[..., Stream]
NewTopic = Callable[..., str]
Produce = Callable[[str, Records], None]


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.full
def test_read_committed_waits_for_open_transactions_already_read(
    stream: NewStream,
    new_topic: NewTopic,
    produce: Produce,
    spark_broker: str,
    fail_on_data_loss: str,
) -> None:
    """The change of the isolation level loses no record, and repeats none."""
    topic = new_topic()
    produce(topic, numbered(0, 3))
    is_open = open_transaction(spark_broker, topic, 2)
    query = stream(subscribe=topic, failOnDataLoss=fail_on_data_loss)
    assert query.run_anew() == [(0, n) for n in range(5)]
    query.options["kafka.isolation.level"] = "read_committed"
    assert query.run_anew() == []
    is_open.commit_transaction(20)
    produce(topic, numbered(0, 2, start=6))
    assert query.run_anew() == [(0, 6), (0, 7)]


@pytest.mark.full
def test_a_recreated_topic_is_data_loss_with_read_committed_too(
    stream: NewStream, new_topic: NewTopic, produce: Produce, recreate_topic: Callable[[str], None]
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 5))
    query = stream({"kafka.isolation.level": "read_committed"}, subscribe=topic)
    query.run()
    recreate_topic(topic)
    produce(topic, numbered(0, 3))
    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        query.run()


@pytest.mark.full
def test_starting_offsets_are_ignored_with_a_checkpoint(
    stream: NewStream, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 5))
    query = stream(subscribe=topic)
    query.run()
    produce(topic, numbered(0, 2, start=5))
    # The changed option names a partition that the topic does not have; with a checkpoint the
    # option is ignored.
    query.options["startingOffsets"] = json.dumps({topic: {"7": 2}})
    assert query.run_anew() == [(0, 5), (0, 6)]


@pytest.mark.full
def test_changed_limits_do_not_apply_to_a_replayed_batch(
    stream: NewStream, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 10))
    query = stream(subscribe=topic, maxOffsetsPerTrigger="4")
    query.run()
    assert query.sizes == [4, 4, 2]
    query.forget_last_commit()
    produce(topic, numbered(0, 7, start=10))
    query.options |= {"maxOffsetsPerTrigger": "100", "minPartitions": "5"}
    assert query.run_anew() == [(0, n) for n in range(8, 17)]
    assert query.sizes == [2, 7]


@pytest.mark.full
def test_a_subscription_to_another_topic_is_data_loss(
    stream: NewStream, new_topic: NewTopic, produce: Produce
) -> None:
    one, two = new_topic(), new_topic()
    produce(one, numbered(0, 3))
    produce(two, numbered(0, 4))
    query = stream(subscribe=one)
    query.run()
    query.options["subscribe"] = two
    with pytest.raises(StreamingQueryException, match=f"{one}-0 is not there any more, or not"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    # The new topic is first added to the checkpoint with its first offset, and then read from that
    # offset.
    assert query.run_anew() == [(0, n) for n in range(4)]
    assert set(query.topics) == {two}


@pytest.mark.full
def test_an_added_topic_is_read_from_its_beginning(
    stream: NewStream, new_topic: NewTopic, produce: Produce
) -> None:
    one, two = new_topic(), new_topic()
    produce(one, numbered(0, 3))
    produce(two, numbered(0, 4))
    query = stream(subscribe=one)
    query.run()
    query.options["subscribe"] = f"{one},{two}"
    assert query.run_anew() == [(0, n) for n in range(4)]
    assert set(query.topics) == {two}


@pytest.mark.full
def test_a_removed_partition_is_data_loss_and_begins_anew_if_added_again(
    stream: NewStream, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 3) + numbered(1, 3))
    query = stream(assign=json.dumps({topic: [0, 1]}))
    query.run()
    produce(topic, numbered(0, 2, start=3) + numbered(1, 2, start=3))
    query.options["assign"] = json.dumps({topic: [0]})
    with pytest.raises(StreamingQueryException, match=f"{topic}-1 is not there any more, or not"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    assert query.run_anew() == [(0, 3), (0, 4)]
    query.options["assign"] = json.dumps({topic: [0, 1]})
    # A topic that is not in the checkpoint counts as new.
    assert query.run_anew() == [(1, n) for n in range(5)]
