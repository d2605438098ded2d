"""Deleting records, bytes on disk, and offsets by time, against a broker; and errors for wrong
types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from odradek import Admin, ConfigResource, NewTopic, Producer, TopicPartition, sync
from odradek_client.admin import EARLIEST, LATEST
from odradek_client.errors import OffsetOutOfRange, Refused, UnknownTopicOrPartition

START = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture
async def admin(live_bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=live_bootstrap) as running:
        yield running


@pytest.fixture
async def topic(admin: Admin, live_bootstrap: str, unique_topic: str) -> str:
    """A topic with ten records, a minute apart, in each of two partitions."""
    await admin.create_topics(NewTopic(unique_topic, 2))
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        for minute in range(10):
            at_ms = round((START + timedelta(minutes=minute)).timestamp() * 1000)
            for partition in range(2):
                await producer.send(unique_topic, b"x", partition=partition, timestamp_ms=at_ms)
    return unique_topic


async def starts(admin: Admin, topic: str) -> list[int]:
    places = [TopicPartition(topic, partition) for partition in range(2)]
    found = await admin.list_offsets(dict.fromkeys(places, EARLIEST))
    return [-1 if (at := found[place]) is None else at.offset for place in places]


async def test_records_are_deleted_up_to_offsets_times_and_the_end(
    admin: Admin, topic: str
) -> None:
    done = await admin.delete_records({(topic, 0): 3, (topic, 1): START + timedelta(minutes=7)})
    assert done == {(topic, 0): 3, (topic, 1): 7}
    assert await starts(admin, topic) == [3, 7]
    # Deleted records stay deleted; a time after the last record deletes all records.
    done = await admin.delete_records({(topic, 0): 1, (topic, 1): START + timedelta(days=1)})
    assert done == {(topic, 0): 3, (topic, 1): 10}
    assert await admin.delete_records({(topic, 0): LATEST}) == {(topic, 0): 10}


@pytest.mark.full
async def test_delete_records_reports_its_errors_by_partition(
    live_bootstrap: str, topic: str
) -> None:
    # A missing partition may be created later, so the call retries until its time-out.
    async with Admin(bootstrap_servers=live_bootstrap, default_api_timeout_ms=3_000) as admin:
        done = await admin.delete_records(
            {(topic, 0): 11, (topic, 1): 2, (topic, 9): 1}, raise_errors=False
        )
        assert done == {(topic, 1): 2}
        assert isinstance(done.errors[TopicPartition(topic, 0)], OffsetOutOfRange)
        assert isinstance(done.errors[TopicPartition(topic, 9)], UnknownTopicOrPartition)
        with pytest.raises(OffsetOutOfRange, match=f"{topic}-0"):
            await admin.delete_records({(topic, 0): 11})


async def test_offsets_are_found_by_datetime(admin: Admin, topic: str) -> None:
    found = await admin.list_offsets({(topic, 0): START + timedelta(minutes=4, seconds=1)})
    at = found[TopicPartition(topic, 0)]
    assert at is not None and at.offset == 5


async def test_describe_log_dirs_gives_the_size_of_each_partition(admin: Admin, topic: str) -> None:
    (directory,) = (await admin.describe_log_dirs())[1]
    assert directory.error is None
    assert directory.replicas[TopicPartition(topic, 1)].size_bytes > 0
    assert directory.size_bytes >= directory.replicas[TopicPartition(topic, 1)].size_bytes
    assert directory.total_bytes is not None and directory.usable_bytes is not None
    assert 0 < directory.usable_bytes <= directory.total_bytes
    assert (await admin.describe_log_dirs(1)).keys() == {1}
    nobody = await admin.describe_log_dirs([1, 77], raise_errors=False)
    assert nobody.keys() == {1} and isinstance(nobody.errors[77], Refused)


async def test_describe_broker_lists_its_apis_and_features(admin: Admin) -> None:
    found = await admin.describe_broker(1)
    low, high = found.apis["Produce"]
    assert low <= 3 <= high
    assert found.finalized_features.keys() <= found.supported_features.keys()


@pytest.mark.full
def test_the_blocking_admin_has_the_same_calls(live_bootstrap: str) -> None:
    with sync.Admin(bootstrap_servers=live_bootstrap, default_api_timeout_ms=3_000) as admin:
        assert admin.describe_log_dirs().keys() == {1}
        assert "Fetch" in admin.describe_broker(1).apis
        with pytest.raises(UnknownTopicOrPartition):
            admin.delete_records({("nobody", 0): 1})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda a: a.create_topics("t"), r"topics: 't' is str; give NewTopic\(name, partitions\)"),
        (lambda a: a.create_topics([NewTopic("t"), 3]), r"topics: 3 is int; give NewTopic"),
        (lambda a: a.create_topics(NewTopic("t", "3")), r"partitions of topic 't' is str"),  # type: ignore[arg-type]
        (
            lambda a: a.create_topics(NewTopic("t", configs={"retention.ms": 5})),  # type: ignore[dict-item]
            r"retention.ms of topic 't' is int; give a string, as '5'",
        ),
        (lambda a: a.create_partitions({"t": "6"}), r"the count of 't' is str"),
        (lambda a: a.describe_topics(5), r"topics: 5 is int; give the names of topics"),
        (lambda a: a.delete_topics([b"t"]), r"topics: b't' is bytes; give the names"),
        (lambda a: a.describe_configs("t"), r"""give ConfigResource.topic\("name"\)"""),
        (
            lambda a: a.alter_configs({ConfigResource.topic("t"): {"retention.ms": 5}}),
            r"retention.ms of topic 't' is int; give a string, as '5'",
        ),
        (lambda a: a.alter_configs({"t": {}}), r"changes: 't' is str; give ConfigResource"),
        (lambda a: a.list_offsets({("t", 0): "now"}), r"the time for t-0 is str; give a datetime"),
        (lambda a: a.delete_records({("t", 0): "1"}), r"the end for t-0 is str; give a datetime"),
        (lambda a: a.delete_records({("t", 0): True}), r"the end for t-0 is bool"),
    ],
)
async def test_wrong_types_are_named(admin: Admin, call: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        await call(admin)


async def test_list_offsets_takes_earliest_and_latest_as_words(admin: Admin, topic: str) -> None:
    found = await admin.list_offsets({(topic, 0): "earliest", (topic, 1): "latest"})
    assert [at and at.offset for at in found.values()] == [0, 10]
    with pytest.raises(TypeError, match="'earliest' or 'latest', not 'newest'"):
        await admin.list_offsets({(topic, 0): "newest"})  # type: ignore[dict-item]


async def test_create_and_delete_topics_take_topics_as_separate_arguments(
    admin: Admin, unique_topic: str
) -> None:
    names = [f"{unique_topic}-{number}" for number in range(3)]
    made = await admin.create_topics(*map(NewTopic, names))
    assert list(made) == names
    assert list(await admin.delete_topics(*names)) == names
    with pytest.raises(TypeError, match=r"give NewTopic\(name, partitions\)"):
        await admin.create_topics(NewTopic(names[0]), names[1])  # type: ignore[arg-type]
