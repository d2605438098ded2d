"""Application code that raises in a poll: the poll raises the exception, and the next polls
continue (K-33)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from live_consumers import DEADLINE_S, produce, values
from odradek import Assignor
from odradek.broker import SubprocessBroker
from odradek_client.consumer.assignors.range import RangeAssignor
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.errors import DeserializationFailed
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.structs import TopicPartition

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 50},
    "cooperative": {
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 50,
    },
    "next": {"group_protocol": "consumer"},
}
FROM_THE_START = {"auto_offset_reset": "earliest", "retry_backoff_ms": 10}


class HookError(Exception):
    """The exception that the hooks of these tests raise."""


class FailingHook:
    """Raises in the first call of the method with the given name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0

    def __call__(self, name: str) -> None:
        if name == self.name:
            self.calls += 1
            if self.calls == 1:
                raise HookError(name)


class FailingAssignor(Assignor):
    """The assignor "range". Its methods call `fail_once`, which may raise."""

    name = "failing"

    def __init__(self, fail_once: FailingHook) -> None:
        self._fail_once = fail_once
        self._inner = RangeAssignor()

    def assign(self, partition_counts: Any, members: Any) -> Any:
        self._fail_once("assign")
        return self._inner.assign(partition_counts, members)

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        self._fail_once("user_data")
        return None

    def on_assignment(self, *_: Any) -> None:
        self._fail_once("on_assignment")


class FailingListener(RebalanceListener):
    """Records which partitions the consumer owns. Each method calls `fail_once`, which may
    raise."""

    def __init__(self, fail_once: FailingHook) -> None:
        self._fail_once = fail_once
        self.held: set[TopicPartition] = set()

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.held -= partitions
        self._fail_once("revoked")

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.held |= partitions
        self._fail_once("assigned")

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.held -= partitions
        self._fail_once("lost")


async def poll_until(
    condition: Callable[[], bool], seen: list[int], *polled: Consumer
) -> list[HookError]:
    """Poll until the condition holds. Returns the raised exceptions; `seen` gets the values of
    records."""
    raised: list[HookError] = []
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            for answer in await asyncio.gather(
                *(each.poll(50) for each in polled), return_exceptions=True
            ):
                if isinstance(answer, HookError):
                    raised.append(answer)
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    seen += values(answer)
    return raised


@pytest.mark.parametrize("hook", ["assign", "user_data", "on_assignment"])
async def test_k33_an_assignor_that_raises_is_called_again(
    broker: SubprocessBroker, topic: str, consumers: Any, hook: str
) -> None:
    produce(broker, topic, 30)
    fail_once = FailingHook(hook)
    strategy: dict[str, Any] = {
        "partition_assignment_strategy": [FailingAssignor(fail_once)],
        "heartbeat_interval_ms": 50,
    }
    consumer = await consumers(topic, group_id=topic, **FROM_THE_START, **strategy)
    seen: list[int] = []
    raised = await poll_until(lambda: len(seen) == 30, seen, consumer)
    assert [str(each) for each in raised] == [hook]
    assert sorted(seen) == list(range(30))
    # The group still works: another member gets partitions.
    other = await consumers(topic, group_id=topic, **FROM_THE_START, **strategy)
    again = await poll_until(
        lambda: (
            len(consumer.assignment()) + len(other.assignment()) == 3 and bool(other.assignment())
        ),
        seen,
        consumer,
        other,
    )
    assert again == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("hook", ["revoked", "assigned"])
async def test_k33_a_listener_that_raises_gets_its_remaining_calls(
    broker: SubprocessBroker, topic: str, consumers: Any, protocol: str, hook: str
) -> None:
    produce(broker, topic, 30)
    fail_once = FailingHook(hook)
    listener = FailingListener(fail_once)
    settings = FROM_THE_START | PROTOCOLS[protocol]
    consumer = await consumers(group_id=topic, **settings)
    consumer.subscribe([topic], listener=listener)
    seen: list[int] = []
    raised = await poll_until(lambda: len(seen) == 30, seen, consumer)
    assert sorted(seen) == list(range(30))
    other = await consumers(topic, group_id=topic, **settings)
    raised += await poll_until(
        lambda: (
            len(consumer.assignment()) < 3
            and len(other.assignment()) > 0
            and len(consumer.assignment() | other.assignment()) == 3
        ),
        seen,
        consumer,
        other,
    )
    assert [str(each) for each in raised] == [hook]
    assert listener.held == consumer.assignment()
    produce(broker, topic, 30, start=30)
    await poll_until(lambda: len(seen) >= 60, seen, consumer, other)
    assert sorted(seen) == list(range(60)), "nothing comes again: positions were committed"


@pytest.mark.parametrize("protocol", ["eager", "next"])
async def test_k33_a_member_whose_listener_raises_on_lost_partitions_joins_again(
    broker: SubprocessBroker, topic: str, consumers: Any, protocol: str
) -> None:
    produce(broker, topic, 30)
    listener = FailingListener(FailingHook("lost"))
    settings = FROM_THE_START | PROTOCOLS[protocol] | {"max_poll_interval_ms": 300}
    consumer = await consumers(group_id=topic, enable_auto_commit=False, **settings)
    consumer.subscribe([topic], listener=listener)
    # During this wait, a busy machine may already lose the partitions, and the listener may raise.
    raised = await poll_until(lambda: len(consumer.assignment()) == 3, [], consumer)
    async with asyncio.timeout(DEADLINE_S):
        await consumer.membership_lost.wait()
    async with asyncio.timeout(DEADLINE_S):
        while not (raised and consumer.is_member and len(consumer.assignment()) == 3):
            try:
                await consumer.poll(20)
            except HookError as error:
                raised.append(error)
    assert len(raised) == 1
    assert listener.held == consumer.assignment()


async def test_k15_a_failing_deserializer_loses_no_record_and_stops_the_position(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)

    def value(content: bytes) -> int:
        if int(content) == 13:
            raise HookError("unlucky")
        return int(content)

    consumer = await consumers(
        topic, group_id=topic, value_deserializer=value, **FROM_THE_START, enable_auto_commit=False
    )
    unlucky = TopicPartition(topic, 1)
    seen: list[int] = []
    failures: list[DeserializationFailed] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(seen) < 29:
            try:
                seen += [record.value for record in await consumer.poll(100)]
            except DeserializationFailed as error:
                failures.append(error)
                await consumer.commit()
                committed = await consumer.committed(unlucky)
                assert committed is not None
                assert committed.offset <= 4
                if len(failures) == 3:
                    consumer.seek(unlucky, error.offset + 1)
    assert sorted(seen) == [n for n in range(30) if n != 13]
    assert {(each.partition, each.offset) for each in failures} == {(unlucky, 4)}
