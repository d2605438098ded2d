"""The consumer against a running broker (a subprocess)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer as ForeignProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from live_consumers import (
    DEADLINE_S,
    Diary,
    all_of,
    make_topic,
    produce,
    read,
    until,
    values,
)
from odradek.broker import SubprocessBroker
from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.errors import (
    CommitFailed,
    DeserializationFailed,
    NoOffset,
    NotAssigned,
    PositionOutOfRange,
)
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.errors import (
    Closed,
    ConfigError,
    IllegalState,
    InvalidTopic,
    MetadataTimeout,
    RebalanceInProgress,
)
from odradek_client.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition

# --- without a group ------------------------------------------------------------------------------


async def test_assigned_partitions_are_read_in_order(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 3_000, key=b"k", headers={"h": b"x"})
    consumer = await consumers()
    consumer.assign(all_of(topic))
    records = await read(consumer, 3_000)
    assert values(records) == list(range(3_000))
    for partition in all_of(topic):
        offsets = [r.offset for r in records if (r.topic, r.partition) == partition]
        assert offsets == list(range(1_000))
        assert await consumer.position(partition) == 1_000
        assert await consumer.lag(partition) == 0
    assert (records[0].key, records[0].headers) == (b"k", (("h", b"x"),))
    assert abs(records[0].timestamp - time.time() * 1000) < 3_600_000
    assert await consumer.poll(50) == []


async def test_k07_a_poll_returns_at_most_max_poll_records(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 100)
    consumer = await consumers(max_poll_records=7)
    consumer.assign(all_of(topic))
    assert 0 < len(await consumer.poll(5_000)) <= 7
    assert 0 < len(await consumer.poll(5_000, max_records=3)) <= 3


async def test_a_consumer_without_a_group_reads_all_partitions(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    consumer = await consumers(topic)
    assert values(await read(consumer, 30)) == list(range(30))
    assert consumer.assignment() == set(all_of(topic))
    assert consumer.subscription() == {topic}


async def test_getmany_of_chosen_partitions_leaves_the_others(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    consumer = await consumers()
    consumer.assign(all_of(topic))
    first, second, _ = all_of(topic)
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < 10:
            some = await consumer.getmany(second, timeout_ms=500)
            assert set(some) <= {second}
            found += some.get(second, [])
    assert values(found) == list(range(1, 30, 3))
    assert await consumer.position(first) == 0
    assert len(await read(consumer, 20)) == 20


async def test_iteration_gives_every_record_and_moves_the_position(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 300)
    consumer = await consumers(topic)
    seen = []
    async with asyncio.timeout(DEADLINE_S):
        async for record in consumer:
            seen.append(record)
            partition = TopicPartition(record.topic, record.partition)
            assert await consumer.position(partition) == record.offset + 1
            if len(seen) == 300:
                break
    assert values(seen) == list(range(300))


async def test_getone_waits_for_a_record(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    consumer = await consumers(topic, auto_offset_reset="latest")
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    await asyncio.gather(*(consumer.position(each) for each in all_of(topic)))
    waiting = asyncio.create_task(consumer.getone())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    produce(broker, topic, 1)
    assert (await asyncio.wait_for(waiting, DEADLINE_S)).value == b"0"


async def test_iteration_ends_when_the_consumer_is_closed(topic: str, consumers: Any) -> None:
    consumer = await consumers(topic)

    async def count() -> int:
        return len([record async for record in consumer])

    counting = asyncio.create_task(count())
    await asyncio.sleep(0.1)
    await consumer.close()
    assert await asyncio.wait_for(counting, DEADLINE_S) == 0


async def test_a_cancelled_poll_loses_nothing(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    consumer = await consumers(topic)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.getone(), 0.02)
    produce(broker, topic, 9)
    assert values(await read(consumer, 9)) == list(range(9))


# --- positions ------------------------------------------------------------------------------------


async def test_o16_auto_offset_reset_decides_the_first_position(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 9)
    latest = await consumers(auto_offset_reset="latest")
    latest.assign(all_of(topic))
    assert [await latest.position(each) for each in all_of(topic)] == [3, 3, 3]
    none = await consumers(auto_offset_reset="none")
    none.assign(all_of(topic)[:1])
    with pytest.raises(NoOffset, match='auto_offset_reset is "none"'):
        await none.poll(5_000)
    none.seek((topic, 0), 99)
    with pytest.raises(PositionOutOfRange, match="offset 99"):
        await none.poll(5_000)
    none.seek((topic, 0), 1)
    assert [record.offset for record in await read(none, 2)] == [1, 2]


async def test_k14_a_position_outside_the_log_is_reset(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 9)
    consumer = await consumers()
    consumer.assign([(topic, 0)])
    consumer.seek((topic, 0), 99)
    assert [record.offset for record in await read(consumer, 3)] == [0, 1, 2]


async def test_a_consumer_seeks_to_the_beginning_the_end_and_times(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 9, timestamp=1_000)
    produce(broker, topic, 9, start=9, timestamp=5_000)
    consumer = await consumers()
    consumer.assign(all_of(topic))
    first = TopicPartition(topic, 0)
    await consumer.seek_to_end()
    assert await consumer.position(first) == 6
    await consumer.seek_to_beginning(first)
    assert await consumer.position(first) == 0
    consumer.seek(first, OffsetAndMetadata(4))
    assert await consumer.position(first) == 4
    assert await consumer.beginning_offsets(first) == {first: 0}
    assert await consumer.end_offsets() == dict.fromkeys(all_of(topic), 6)
    times = await consumer.offsets_for_times({first: 2_000, (topic, 1): 9_000})
    assert times[TopicPartition(topic, 1)] is None
    found = times[first]
    assert found is not None
    assert (found.offset, found.timestamp) == (3, 5_000)
    with pytest.raises(ValueError, match="must not be negative"):
        await consumer.offsets_for_times({first: -1})


async def test_a_paused_partition_is_not_read_until_it_is_resumed(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    consumer = await consumers()
    consumer.assign(all_of(topic))
    consumer.pause((topic, 0))
    produce(broker, topic, 9)
    records = await read(consumer, 6)
    assert {record.partition for record in records} == {1, 2}
    assert await consumer.poll(50) == []
    assert consumer.paused() == {TopicPartition(topic, 0)}
    consumer.resume((topic, 0))
    assert values(await read(consumer, 3)) == [0, 3, 6]


async def test_lag_is_the_number_of_records_not_read_yet(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    consumer = await consumers()
    consumer.assign([(topic, 0)])
    assert await consumer.lag((topic, 0)) == 10
    await read(consumer, 4, max_records=4)
    assert await consumer.lag((topic, 0)) == 6


async def test_k15_a_consumer_can_seek_past_a_record_that_does_not_deserialize(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 9)

    def no_threes(data: bytes) -> int:
        if data == b"3":
            raise ValueError("three")
        return int(data)

    consumer = await consumers(value_deserializer=no_threes)
    consumer.assign([(topic, 0)])
    assert [record.value for record in await read(consumer, 1)] == [0]
    with pytest.raises(DeserializationFailed, match="offset 1") as caught:
        await consumer.poll(5_000)
    assert await consumer.position((topic, 0)) == 1
    consumer.seek(caught.value.partition, caught.value.offset + 1)
    assert [record.value for record in await read(consumer, 1)] == [6]


async def test_times_are_datetimes_or_milliseconds(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    at_ms = int(moment.timestamp() * 1000)
    for n in range(3):
        produce(broker, topic, 1, timestamp=at_ms + n)
    consumer = await consumers()
    for at in (moment + timedelta(milliseconds=1), at_ms + 1):
        found = await consumer.offsets_for_times({(topic, 0): at})
        assert found[TopicPartition(topic, 0)].offset == 1
    with pytest.raises(TypeError, match=r"the time for .* is float; give a datetime"):
        await consumer.offsets_for_times({(topic, 0): 1.5})
    with pytest.raises(ValueError, match="before 1970"):
        await consumer.offsets_for_times({(topic, 0): datetime(1960, 1, 1, tzinfo=UTC)})


async def test_wrong_types_are_named(topic: str, consumers: Any) -> None:
    consumer = await consumers(group_id=topic)
    for wrong in (None, "t", ("t",), (0, "t"), ("t", "0"), ("t", 0, 0), 5):
        for call in (
            lambda given: consumer.assign([given]),
            consumer.pause,
            consumer.committed,
            consumer.beginning_offsets,
            lambda given: consumer.seek(given, 0),
            lambda given: consumer.commit({given: 0}),
        ):
            with pytest.raises(TypeError, match=r"a partition is a .topic, number. pair"):
                answer = call(wrong)
                if answer is not None:
                    await answer
    consumer.assign([(topic, 0)])
    for offset in (1.5, "5", None, (5, "")):
        with pytest.raises(TypeError, match="an offset is a number"):
            consumer.seek((topic, 0), offset)
        with pytest.raises(TypeError, match="an offset is a number"):
            await consumer.commit({(topic, 0): offset})
    consumer = await consumers()
    for names in ([None], [b"t"], [("t", 0)], [""]):
        with pytest.raises(TypeError, match="a topic is a name"):
            consumer.subscribe(names)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_records_of_every_codec_are_read(
    broker: SubprocessBroker, topic: str, consumers: Any, codec: str
) -> None:
    producer = ForeignProducer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 50}
    )
    for n in range(300):
        producer.produce(topic, str(n).encode() * 20, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = await consumers()
    consumer.assign([(topic, 0)])
    records = await read(consumer, 300)
    assert [record.value for record in records] == [str(n).encode() * 20 for n in range(300)]


# --- in a group -----------------------------------------------------------------------------------


async def test_k25_a_group_continues_at_its_committed_offsets(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    consumer = await consumers(topic, group_id=topic, enable_auto_commit=False)
    await read(consumer, 30)
    await consumer.commit({(topic, 0): 4, (topic, 1): OffsetAndMetadata(5, "note")})
    assert await consumer.committed((topic, 0)) == OffsetAndMetadata(4)
    assert await consumer.committed((topic, 1)) == OffsetAndMetadata(5, "note")
    assert await consumer.committed((topic, 2)) is None
    await consumer.close()
    again = await consumers(topic, group_id=topic)
    records = await read(again, 6 + 5 + 10)
    firsts = {n: min(r.offset for r in records if r.partition == n) for n in range(3)}
    assert firsts == {0: 4, 1: 5, 2: 0}


async def test_k40_commit_without_offsets_commits_the_position(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    consumer = await consumers(group_id=topic)
    consumer.assign([(topic, 0)])
    await read(consumer, 4, max_records=4)
    await consumer.commit()
    committed = await consumer.committed((topic, 0))
    assert committed is not None
    assert committed.offset == 4


async def test_k40_commits_of_commit_soon_are_sent_in_order_and_before_close(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    consumer = await consumers(topic, group_id=topic, enable_auto_commit=False)
    await read(consumer, 30)
    first = consumer.commit_soon({(topic, 0): 7, (topic, 1): 3})
    second = consumer.commit_soon({(topic, 0): 8})
    await asyncio.gather(first, second)
    assert await consumer.committed((topic, 0)) == OffsetAndMetadata(8)
    assert await consumer.committed((topic, 1)) == OffsetAndMetadata(3)
    third = consumer.commit_soon()
    await consumer.close()
    assert third.done()
    assert third.exception() is None
    other = await consumers(group_id=topic)
    for number in range(3):
        assert await other.committed((topic, number)) == OffsetAndMetadata(10, "", 0)


async def test_k38_commit_soon_before_the_first_poll_fails(topic: str, consumers: Any) -> None:
    consumer = await consumers(topic, group_id=topic)
    with pytest.raises(RebalanceInProgress, match="poll first"):
        await consumer.commit_soon({(topic, 0): 7})


async def test_k39_offsets_are_auto_committed_on_close_and_in_the_background(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    consumer = await consumers(topic, group_id=topic, auto_commit_interval_ms=10)
    await read(consumer, 30)
    watcher = await consumers(group_id=topic)
    async with asyncio.timeout(DEADLINE_S):
        while await watcher.committed((topic, 0)) != OffsetAndMetadata(10, "", 0):
            await consumer.poll(20)
    produce(broker, topic, 3, start=30)
    await read(consumer, 3)
    await consumer.close()
    assert await watcher.committed((topic, 0)) == OffsetAndMetadata(11, "", 0)


async def test_k33_three_members_share_partitions_and_hand_them_over(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    diaries = [Diary() for _ in range(3)]
    group = []
    for n, diary in enumerate(diaries):
        member = await consumers(
            group_id=topic, heartbeat_interval_ms=50, session_timeout_ms=10_000
        )
        member.subscribe([topic], listener=diary)
        group.append(member)
        await until(
            lambda n=n: all(
                len(each.assignment()) == 3 // (n + 1) + (i < 3 % (n + 1))  # type: ignore[misc]
                for i, each in enumerate(sorted(group, key=lambda c: -len(c.assignment())))
            ),
            *group,
        )
    held = [partition for member in group for partition in member.assignment()]
    assert sorted(held) == all_of(topic)
    assert diaries[0].entries[0] == ("assigned", {0, 1, 2})
    assert diaries[0].entries[1] == ("revoked", {0, 1, 2})
    for diary in diaries:
        kinds = [kind for kind, _ in diary.entries]
        assert kinds == ["assigned", "revoked"] * (len(kinds) // 2) + ["assigned"]
    await group[2].close()
    assert diaries[2].entries[-1][0] == "revoked"
    await until(lambda: sum(len(each.assignment()) for each in group[:2]) == 3, *group[:2])


async def test_k41_a_group_is_assigned_new_partitions(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    consumer = await consumers(
        topic, group_id=topic, heartbeat_interval_ms=50, metadata_max_age_ms=200
    )
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_S)
    await until(lambda: len(consumer.assignment()) == 5, consumer)


async def test_a_pattern_subscription_includes_topics_created_later(
    broker: SubprocessBroker, consumers: Any
) -> None:
    first = make_topic(broker, 1)
    consumer = await consumers(group_id=first, metadata_max_age_ms=200)
    consumer.subscribe(pattern=f"{first}.*")
    await until(lambda: consumer.assignment() == {TopicPartition(first, 0)}, consumer)
    second = f"{first}-more"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(second, 1, 1)])[second].result(DEADLINE_S)
    await until(lambda: len(consumer.assignment()) == 2, consumer)
    assert consumer.subscription() == {first, second}


async def test_k35_a_member_that_does_not_poll_leaves_and_finds_its_partitions_lost(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    diary = Diary()
    slow = await consumers(
        group_id=topic,
        max_poll_interval_ms=300,
        heartbeat_interval_ms=20,
        session_timeout_ms=10_000,
        enable_auto_commit=False,
    )
    slow.subscribe([topic], listener=diary)
    await until(lambda: len(slow.assignment()) == 3, slow)
    other = await consumers(topic, group_id=topic, heartbeat_interval_ms=50)
    # `slow` does not poll again, so that after 300 ms the other member gets all partitions.
    await until(lambda: len(other.assignment()) == 3, other)
    await other.close()
    await slow.poll(2_000)
    assert ("lost", {0, 1, 2}) in diary.entries


async def test_k38_a_commit_of_a_removed_member_fails(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 3)
    consumer = await consumers(
        topic, group_id=topic, enable_auto_commit=False, heartbeat_interval_ms=20_000
    )
    await read(consumer, 3)
    # Let the member find itself removed, as after a removal by an admin.
    member = consumer._group.membership
    await consumer._group._leave("test")
    member.state, member.member_id, member.generation = type(member.state).STABLE, "gone", 1
    member.lost, member.rejoin_reason = False, None
    with pytest.raises(CommitFailed, match="given the partitions to others"):
        await consumer.commit()
    assert member.lost
    assert await consumer.poll(5_000) is not None
    await until(lambda: len(consumer.assignment()) == 3, consumer)


async def test_k33_an_exception_of_a_listener_is_raised_by_the_poll(
    topic: str, consumers: Any
) -> None:
    class Grumpy(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            raise LookupError("no")

    consumer = await consumers(group_id=topic)
    consumer.subscribe([topic], listener=Grumpy())
    with pytest.raises(LookupError):
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await consumer.poll(500)
    assert len(consumer.assignment()) == 3  # the assignment is complete nevertheless
    await consumer.poll(50)


async def test_a_listener_may_seek_and_commit(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    consumer = await consumers(group_id=topic, enable_auto_commit=False)

    class Careful(RebalanceListener):
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 8)

        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            await consumer.commit()

    consumer.subscribe([topic], listener=Careful())
    assert len(await read(consumer, 6)) == 6
    await consumer.unsubscribe()
    assert consumer.assignment() == set()
    committed = await consumer.committed((topic, 0))
    assert committed is not None
    assert committed.offset == 10


async def test_a_new_subscription_replaces_the_assignment(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    other = make_topic(broker, 1)
    consumer = await consumers(topic, group_id=topic)
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    consumer.subscribe([other])
    await until(lambda: consumer.assignment() == {TopicPartition(other, 0)}, consumer)


# --- misuse ---------------------------------------------------------------------------------------


async def test_illegal_consumer_calls_raise_clear_errors(topic: str, consumers: Any) -> None:
    consumer = await consumers(topic)
    with pytest.raises(IllegalState, match="set group_id"):
        await consumer.commit()
    with pytest.raises(IllegalState, match="unsubscribe"):
        consumer.assign([(topic, 0)])
    with pytest.raises(ValueError, match="give one of them"):
        consumer.subscribe()
    with pytest.raises(ValueError, match="at least 1"):
        await consumer.poll(0, max_records=0)
    with pytest.raises(NotAssigned):
        await consumer.position(("elsewhere", 0))
    with pytest.raises(MetadataTimeout, match="not found"):
        short = await consumers(default_api_timeout_ms=300, allow_auto_create_topics=False)
        await short.end_offsets(("no-such-topic", 0))
    await consumer.close()
    await consumer.close()
    with pytest.raises(Closed):
        await consumer.poll(0)
    with pytest.raises(Closed):
        await consumer.start()


async def test_a_consumer_that_was_not_started_says_so() -> None:
    consumer = Consumer("t", bootstrap_servers="127.0.0.1:1")
    with pytest.raises(Closed, match="was not started"):
        await consumer.poll(0)
    await consumer.close()


async def test_an_illegal_topic_name_is_refused(consumers: Any) -> None:
    consumer = await consumers("no/slashes")
    with pytest.raises(InvalidTopic, match="no/slashes"):
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await consumer.poll(100)


def test_wrong_consumer_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean auto_offset_reset"):
        Consumer(auto_offset_rest="latest")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="must be one of earliest, latest, none"):
        Consumer(auto_offset_reset="newest")
    with pytest.raises(ConfigError, match="a third of it is usual"):
        Consumer(heartbeat_interval_ms=50_000)
    defaults = ConsumerConfig.from_settings({})
    assert (defaults.max_poll_records, defaults.auto_offset_reset) == (500, "latest")
