"""Calls about groups by foreign admin clients (O-14, A-16; KIP-496, KIP-518), and
delete_records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import kafka.structs
import pytest

from foreign_clients import CLIENTS, Client, Member
from waiting import wait_until

NewTopic = Callable[..., str]
DEADLINE_S = 20.0


@pytest.fixture
def librdkafka(address: str) -> Any:
    """confluent-kafka's admin client."""
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": address, "log_level": 0})


@pytest.fixture
def kafka_python(address: str) -> Iterator[Any]:
    """kafka-python's admin client."""
    client = kafka.KafkaAdminClient(bootstrap_servers=address)
    yield client
    client.close()


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def member(request: pytest.FixtureRequest, address: str, new_topic: NewTopic) -> Iterator[Member]:
    """The only member of a new group, which owns both partitions of a topic."""
    client: Client = request.param
    topic = new_topic(2)
    member = Member(client, address, f"admin-{topic}", topic)
    member.start()
    wait_until(lambda: len(member.partitions) == 2, "it has its partitions")
    yield member
    member.leave()


def _committed(admin: Any, group: str) -> dict[tuple[str, int], int]:
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S)
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions}


def _commit(admin: Any, group: str, topic: str, *offsets: int) -> None:
    places = [
        confluent_kafka.TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)
    ]
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, places)
    done = admin.alter_consumer_group_offsets([wanted])[group].result(DEADLINE_S)
    assert all(each.error is None for each in done.topic_partitions)


def test_every_admin_client_describes_groups_of_every_library(
    member: Member, librdkafka: Any, kafka_python: Any, address: str
) -> None:
    group, topic = member.group, member.topic
    listed = librdkafka.list_consumer_groups(states={confluent_kafka.ConsumerGroupState.STABLE})
    assert group in {each.group_id for each in listed.result(DEADLINE_S).valid}
    seen = librdkafka.describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert seen.state is confluent_kafka.ConsumerGroupState.STABLE
    assert (seen.partition_assignor, len(seen.members)) == ("range", 1)
    (one,) = seen.members
    assert one.host == "/127.0.0.1"
    assert {(tp.topic, tp.partition) for tp in one.assignment.topic_partitions} == {
        (topic, 0),
        (topic, 1),
    }

    states = {each["group_id"]: each["group_state"] for each in kafka_python.list_groups()}
    assert states[group] == "Stable"
    described = kafka_python.describe_groups([group])[group]
    (one,) = described["members"]
    assert one["member_assignment"]["assigned_partitions"] == [
        {"topic": topic, "partitions": [0, 1]}
    ]

    async def with_aiokafka() -> None:
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=address)
        await client.start()
        try:
            assert (group, "consumer") in await client.list_consumer_groups()
            (response,) = await client.describe_consumer_groups([group])
            ((error, name, state, *_),) = response.groups
            assert (error, name, state) == (0, group, "Stable")
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(with_aiokafka(), DEADLINE_S))


def test_o14_a_group_with_members_is_neither_deleted_nor_reset(
    member: Member, librdkafka: Any, kafka_python: Any
) -> None:
    group, topic = member.group, member.topic
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        librdkafka.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    place = kafka.TopicPartition(topic, 0)
    told = kafka_python.delete_group_offsets(group, [place])
    assert told == {place: kafka.errors.GroupSubscribedToTopicError}
    position = kafka.structs.OffsetAndMetadata(1, "", -1)
    assert kafka_python.alter_group_offsets(group, {place: position}) == {
        place: kafka.errors.UnknownMemberIdError
    }


def test_confluent_kafka_alters_offsets_and_deletes_a_group(
    librdkafka: Any, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    group = f"moved-{topic}"
    _commit(librdkafka, group, topic, 5, 7)
    assert _committed(librdkafka, group) == {(topic, 0): 5, (topic, 1): 7}
    _commit(librdkafka, group, topic, 3)
    assert _committed(librdkafka, group) == {(topic, 0): 3, (topic, 1): 7}
    librdkafka.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert _committed(librdkafka, group) == {}
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        librdkafka.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND


def test_kafka_python_alters_offsets_and_deletes_a_group(
    kafka_python: Any, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    group = f"by-kafka-python-{topic}"
    first, second = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 1)
    offsets = {
        place: kafka.structs.OffsetAndMetadata(offset, "note", -1)
        for place, offset in ((first, 5), (second, 7))
    }
    told = kafka_python.alter_group_offsets(group, offsets)
    assert set(told.values()) == {kafka.errors.NoError}
    assert kafka_python.list_group_offsets([group])[group] == offsets
    assert kafka_python.delete_group_offsets(group, [first]) == {first: kafka.errors.NoError}
    assert kafka_python.list_group_offsets([group])[group] == {second: offsets[second]}
    ((name, error),) = kafka_python.delete_groups([group]).items()
    assert (name, error) == (group, "OK")


def test_aiokafka_lists_the_offsets_of_a_group(
    librdkafka: Any, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    group = f"for-aiokafka-{topic}"
    _commit(librdkafka, group, topic, 5, 7)

    async def run() -> dict[Any, Any]:
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=address)
        await client.start()
        try:
            return dict(await client.list_consumer_group_offsets(group))
        finally:
            await client.close()

    found = asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert {(tp.topic, tp.partition): at.offset for tp, at in found.items()} == {
        (topic, 0): 5,
        (topic, 1): 7,
    }


def test_l11_confluent_kafka_deletes_records(
    librdkafka: Any, address: str, new_topic: NewTopic
) -> None:
    place = (new_topic(1), 0)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "log_level": 0})
    for number in range(5):
        producer.produce(place[0], b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0

    def delete(offset: int) -> int:
        wanted = confluent_kafka.TopicPartition(*place, offset)
        (done,) = librdkafka.delete_records([wanted]).values()
        return int(done.result(DEADLINE_S).low_watermark)

    assert delete(3) == 3
    assert delete(confluent_kafka.OFFSET_END) == 5
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        delete(6)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE
