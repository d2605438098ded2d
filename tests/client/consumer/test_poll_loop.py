"""The consumer's pipeline as the broker sees it: the order of fetches, and the results of polls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.errors import LogTruncated
from odradek_client.consumer.offset_reset import parse_reset
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.errors import ConfigError
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_protocol.keys import ApiKey
from scripted_broker import SILENCE
from scripted_logs import START_MS, LogBroker
from waiting import until

DEADLINE_S = 5.0


@pytest.fixture
async def broker() -> AsyncIterator[LogBroker]:
    async with LogBroker(topics={"t": 10}) as running:
        yield running


def a_consumer(broker: LogBroker, *partitions: int, **settings: Any) -> Consumer:
    """A consumer that reads these partitions from their beginning."""
    settings.setdefault("auto_offset_reset", "earliest")
    settings.setdefault("metadata_max_age_ms", 50)
    settings.setdefault("retry_backoff_ms", 10)
    consumer = Consumer(bootstrap_servers=broker.address, **settings)
    consumer.assign([("t", number) for number in partitions or (0,)])
    return consumer


def places(records: list[ConsumerRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


async def poll(consumer: Consumer, **options: Any) -> list[ConsumerRecord]:
    """Poll until a poll returns records."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await consumer.poll(500, **options)
            if found:
                return found


async def test_k01_a_poll_sends_a_fetch_and_waits_for_records(broker: LogBroker) -> None:
    async with a_consumer(broker) as consumer:
        # Without records the poll waits until its timeout, with a single fetch.
        assert await consumer.poll(100) == []
        await until(lambda: bool(broker.fetched))  # on a busy machine the fetch may be late
        assert broker.fetched == [[(0, 0)]]
        waiting = asyncio.create_task(consumer.poll(10_000))
        broker.add("t", 0, 5)
        assert places(await waiting) == [(0, n) for n in range(5)]


async def test_k01_records_at_hand_are_returned_without_waiting(broker: LogBroker) -> None:
    broker.add("t", 0, 10)
    async with a_consumer(broker) as consumer:
        assert places(await poll(consumer, max_records=4)) == [(0, n) for n in range(4)]
        broker.open.clear()  # the broker answers no more
        assert places(await consumer.poll(0, max_records=4)) == [(0, n) for n in range(4, 8)]


async def test_k02_the_next_fetch_is_sent_before_records_are_returned(broker: LogBroker) -> None:
    broker.add("t", 0, 10)
    async with a_consumer(broker) as consumer:
        assert len(await poll(consumer)) == 10
        # The next records are fetched, although the application has not polled again.
        await until(lambda: broker.fetched == [[(0, 0)], [(0, 10)]])
        broker.add("t", 0, 3)
        await until(lambda: any(consumer._fetcher.buffered))
        assert places(await consumer.poll(0)) == [(0, 10), (0, 11), (0, 12)]


async def test_k04_a_late_fetch_response_is_returned_by_the_next_poll(broker: LogBroker) -> None:
    broker.add("t", 0, 2)
    async with a_consumer(broker) as consumer:
        first = await poll(consumer)
        broker.open.clear()
        broker.add("t", 0, 2)
        assert await consumer.poll(50) == []
        assert places(first) == [(0, 0), (0, 1)]
        broker.open.set()
        assert places(await poll(consumer)) == [(0, 2), (0, 3)]


async def test_k05_a_node_has_one_fetch_in_flight() -> None:
    one, two = LogBroker(node_id=1, topics={"t": 4}), LogBroker(node_id=2, topics={"t": 4})
    async with one, two:
        for broker in (one, two):
            broker.peers = [one, two]
            broker.leaders = {("t", n): 1 + n % 2 for n in range(4)}
        async with a_consumer(one, 0, 1, 2, 3) as consumer:
            for _ in range(5):
                await consumer.poll(10)
            assert one.fetched == [[(0, 0), (2, 0)]]
            assert two.fetched == [[(1, 0), (3, 0)]]


async def test_k09_the_whole_consumer_follows_the_worked_example(broker: LogBroker) -> None:
    """Ten partitions of 1,000 records, and at most 100 records a poll: the results, the fetches,
    and the order of the partitions in the buffer."""
    for number in range(10):
        broker.add("t", number, 600, 400)
    async with a_consumer(broker, *range(10), max_poll_records=100) as consumer:
        buffer = consumer._fetcher
        for turn in range(10):
            records = await poll(consumer)
            assert places(records) == [(0, n) for n in range(turn * 100, turn * 100 + 100)]
            assert broker.fetched[0] == [(n, 0) for n in range(10)]
            if turn < 9:
                assert len(broker.fetched) == 1
                assert [each.partition for each in buffer.buffered] == list(range(10))
        # The fetch that the tenth poll sent is for the one partition without buffered records.
        await until(lambda: len(broker.fetched) == 2)
        assert broker.fetched[1] == [(0, 1000)]
        assert [each.partition for each in buffer.buffered] == list(range(1, 10))
        broker.add("t", 0, 1_000)
        await until(lambda: len(list(buffer.buffered)) == 10)
        assert places(await consumer.poll(0)) == [(1, n) for n in range(100)]
        assert [each.partition for each in buffer.buffered] == [*range(1, 10), 0]
        for turn in range(11, 100):
            number, start = turn // 10, turn % 10 * 100
            assert places(await poll(consumer)) == [(number, n) for n in range(start, start + 100)]
        assert places(await poll(consumer)) == [(0, n) for n in range(1000, 1100)]


async def test_k10_polls_with_any_max_records_give_every_record_once(broker: LogBroker) -> None:
    for number in range(3):
        broker.add("t", number, 7, 1, 30, 12)
    async with a_consumer(broker, 0, 1, 2) as consumer:
        seen: list[tuple[int, int]] = []
        caps = [1, 2, 3, 5, 8, 13, 21]
        while len(seen) < 150:
            records = await poll(consumer, max_records=caps[len(seen) % len(caps)])
            assert len(records) <= max(caps)
            seen += places(records)
        for number in range(3):
            assert [n for p, n in seen if p == number] == list(range(50))
        assert await consumer.poll(20) == []


async def test_k19_lag_of_read_committed_ends_at_the_last_stable_offset(broker: LogBroker) -> None:
    broker.add("t", 0, 10)
    async with a_consumer(broker, isolation_level="read_committed") as consumer:
        await poll(consumer, max_records=4)
        state = consumer._subscription.state(TopicPartition("t", 0))
        state.high_watermark, state.last_stable_offset = 10, 7
        assert await consumer.lag(("t", 0)) == 3
    assert broker.received(ApiKey.FETCH)[0].isolation_level == 1


# --- K-26 -----------------------------------------------------------------------------------------


async def elect(broker: LogBroker, consumer: Consumer, epoch: int) -> None:
    """Elect a new leader, and let the client learn of it."""
    broker.leader_epochs["t", 0] = epoch
    await consumer.network.refresh_metadata()


async def test_k26_reading_continues_at_a_position_that_is_still_valid(broker: LogBroker) -> None:
    broker.add("t", 0, 10)
    async with a_consumer(broker) as consumer:
        assert len(await poll(consumer)) == 10
        assert broker.validations() == []
        broker.epoch_ends["t", 0] = (0, 10)
        await elect(broker, consumer, 3)
        broker.add("t", 0, 5, leader_epoch=3)
        assert places(await poll(consumer)) == [(0, n) for n in range(10, 15)]
        assert broker.validations() == [(0, 0, 3)]
        # The position is validated only once.
        for _ in range(3):
            await consumer.poll(20)
        assert len(broker.validations()) == 1


async def test_k26_a_truncated_log_is_read_from_the_diverging_offset(broker: LogBroker) -> None:
    broker.add("t", 0, 6, 4)
    async with a_consumer(broker) as consumer:
        assert len(await poll(consumer)) == 10
        broker.truncate("t", 0, 6)
        broker.epoch_ends["t", 0] = (0, 6)
        broker.add("t", 0, 9, leader_epoch=1)
        await elect(broker, consumer, 1)
        assert places(await poll(consumer)) == [(0, n) for n in range(6, 15)]


async def test_k26_a_truncation_without_a_reset_policy_is_raised(broker: LogBroker) -> None:
    broker.add("t", 0, 6, 4)
    async with a_consumer(broker, auto_offset_reset="none") as consumer:
        consumer.seek(("t", 0), 0)
        assert len(await poll(consumer)) == 10
        broker.truncate("t", 0, 6)
        broker.epoch_ends["t", 0] = (0, 6)
        await elect(broker, consumer, 1)
        with pytest.raises(LogTruncated, match="records from offset 6 on") as caught:
            await poll(consumer)
        assert (caught.value.offset, caught.value.divergent_offset) == (10, 6)
        consumer.seek(("t", 0), 6)
        broker.add("t", 0, 2, leader_epoch=1)
        assert places(await poll(consumer)) == [(0, 6), (0, 7)]


async def test_k26_a_leader_without_the_epoch_causes_a_reset(broker: LogBroker) -> None:
    broker.add("t", 0, 5)
    async with a_consumer(broker) as consumer:
        assert len(await poll(consumer)) == 5
        await elect(broker, consumer, 1)
        assert places(await poll(consumer)) == [(0, n) for n in range(5)]


async def test_k26_buffered_records_wait_until_the_position_is_validated(broker: LogBroker) -> None:
    broker.add("t", 0, 10)
    async with a_consumer(broker) as consumer:
        assert len(await poll(consumer, max_records=4)) == 4
        broker.epoch_ends["t", 0] = (0, 4)  # the records after offset 4 were replaced by others
        broker.truncate("t", 0, 0)
        broker.add("t", 0, 4, 3)
        verdict = asyncio.Event()

        async def slowly(request: Any, version: int) -> Any:
            await verdict.wait()
            return broker._offset_for_leader_epoch(request, version)

        broker.always(ApiKey.OFFSET_FOR_LEADER_EPOCH, slowly)
        await elect(broker, consumer, 1)
        assert await consumer.poll(50) == []
        verdict.set()
        assert places(await poll(consumer, max_records=2)) == [(0, 4), (0, 5)]


async def test_k26_positions_are_not_validated_at_brokers_without_the_api() -> None:
    async with LogBroker(topics={"t": 1}, versions={ApiKey.OFFSET_FOR_LEADER_EPOCH: None}) as old:
        old.add("t", 0, 5)
        async with a_consumer(old) as consumer:
            assert len(await poll(consumer)) == 5
            await elect(old, consumer, 1)
            old.add("t", 0, 1, leader_epoch=1)
            assert places(await poll(consumer)) == [(0, 5)]


async def test_k26_a_fenced_fetch_leads_to_new_metadata_and_validation(broker: LogBroker) -> None:
    broker.add("t", 0, 5)
    async with a_consumer(broker, metadata_max_age_ms=300_000) as consumer:
        assert len(await poll(consumer)) == 5
        broker.epoch_ends["t", 0] = (0, 5)
        broker.leader_epochs["t", 0] = 2  # the client does not know it yet
        broker.add("t", 0, 1, leader_epoch=2)
        assert places(await poll(consumer)) == [(0, 5)]
        assert broker.validations() == [(0, 0, 2)]


# --- O-16 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P7D", 604_800_000),
        ("BY_DURATION:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0S", 0),
        (timedelta(days=1, milliseconds=7), 86_400_007),
    ],
)
def test_o16_by_duration_takes_iso_durations(text: str | timedelta, duration_ms: int) -> None:
    assert parse_reset(text).duration_ms == duration_ms


@pytest.mark.parametrize(
    "text",
    ["by_duration:", "by_duration:1H", "by_duration:P", "by_duration:P1DT"],
)
def test_o16_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no duration"):
        ConsumerConfig.from_settings({"auto_offset_reset": text})


@pytest.mark.parametrize("value", [timedelta(-1), "by_duration:PT-1H", "by_duration:-P1D"])
def test_o16_a_negative_duration_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"auto_offset_reset=.* must not be negative"):
        ConsumerConfig.from_settings({"auto_offset_reset": value})


@pytest.mark.parametrize("value", [5, None])
def test_o16_an_unknown_auto_offset_reset_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        ConsumerConfig.from_settings({"auto_offset_reset": value})


async def test_o16_by_duration_begins_at_that_time_or_at_the_end(broker: LogBroker) -> None:
    broker.add("t", 0, 10)
    # The duration until now from a time between records 3 and 4.
    ago_s = time.time() - (START_MS / 1_000 + 3.5)
    async with a_consumer(broker, auto_offset_reset=f"by_duration:PT{ago_s:.3f}S") as consumer:
        first, *_ = await poll(consumer)
        assert first.offset in (4, 5)
    async with a_consumer(broker, auto_offset_reset="by_duration:PT1H") as consumer:
        assert await consumer.position(("t", 0)) == 10
    # The duration is longer than the time since 1970.
    async with a_consumer(broker, auto_offset_reset="by_duration:P99999D") as consumer:
        assert await consumer.position(("t", 0)) == 0
    assert broker.asked_ms[-1] == 0


# --- a group that does not answer -----------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_k31_a_poll_that_waits_for_the_coordinator_does_not_spin(
    broker: LogBroker, protocol: str
) -> None:
    """A commit that is due, but impossible while the consumer joins, must not wake the poll
    constantly."""
    for key in (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT):
        broker.on(key, SILENCE)
    settings: dict[str, Any] = {"group_protocol": protocol, "auto_commit_interval_ms": 1}
    consumer = Consumer("t", bootstrap_servers=broker.address, group_id="g", **settings)
    passes = 0
    look = consumer._loop._apply_metadata

    def counted() -> None:
        nonlocal passes
        passes += 1
        look()

    consumer._loop._apply_metadata = counted  # type: ignore[method-assign]
    async with consumer:
        assert await consumer.poll(400) == []
        assert passes < 20


async def test_k34_unsubscribing_while_a_listener_runs_leaves_no_assignment(
    broker: LogBroker,
) -> None:
    group: Any = Consumer(
        bootstrap_servers=broker.address, group_id="g", enable_auto_commit=False
    )._group
    subscription = group._subscription
    subscription.subscribe_topics(["t"])
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    subscription.assign_by_group([old])

    class Leaver(RebalanceListener):
        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            group._rebalance.assignment = None
            subscription.unsubscribe()

    group.listener = Leaver()
    group._rebalance.assignment = [new]
    assert not await group._take_over_assignment(incremental=True)
    assert subscription.assigned() == set()
