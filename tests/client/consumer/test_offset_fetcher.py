"""The initial position of a consumer whose partitions move while the position is fetched (K-25,
O-16)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.list_offsets import FoundOffsets
from odradek_client.consumer.offset_reset import parse_reset
from odradek_client.consumer.poll_loop import PollLoop
from odradek_client.consumer.subscription_state import FetchState, SubscriptionState
from odradek_client.network.cluster import ClusterView
from odradek_client.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from odradek_protocol.constants import EARLIEST_TIMESTAMP
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek_testkit.simulation.simulate import run

P = TopicPartition("t", 0)


class SlowGroup:
    """A group whose committed offsets arrive only when the test sends them."""

    def __init__(self) -> None:
        self.offsets = self
        self.asked: list[asyncio.Future[dict[TopicPartition, OffsetAndMetadata | None]]] = []

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append(answer)
        return dict(await answer)


def a_loop(group: Any) -> tuple[PollLoop, SubscriptionState]:
    config = ConsumerConfig.from_settings({"group_id": "g"})
    subscription = SubscriptionState()
    subscription.subscribe_topics(["t"])
    subscription.assign_by_group([P])
    loop = asyncio.get_running_loop()
    cluster = ClusterView(300_000)
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=-1)
    topic = MetadataResponseTopic(name="t", partitions=[partition])
    cluster.update(MetadataResponse(topics=[topic]), 0)
    network: Any = SimpleNamespace(
        loop=loop,
        cluster=cluster,
        now_ms=lambda: loop.time() * 1000,
        refresh_metadata=None,
        add_listener=lambda listener: None,
    )
    fetcher: Any = None
    reset = parse_reset("earliest")
    return PollLoop(config, network, subscription, fetcher, group, reset), subscription


async def ask(loop: PollLoop) -> asyncio.Task[None]:
    task = asyncio.ensure_future(loop.offsets.find_positions(10_000))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


def back_and_forth(subscription: SubscriptionState) -> None:
    """Two rebalances: the partition is assigned to another member, then to this member again."""
    subscription.assign_by_group([])
    subscription.assign_by_group([P])


async def test_k25_a_committed_offset_fetched_before_two_rebalances_is_not_used() -> None:
    group = SlowGroup()
    loop, subscription = a_loop(group)
    task = await ask(loop)
    back_and_forth(subscription)
    group.asked[0].set_result({P: OffsetAndMetadata(5)})
    while len(group.asked) < 2:
        await asyncio.sleep(0)
        state = subscription.state(P)
        assert state.fetch_state is FetchState.INITIALIZING
    group.asked[1].set_result({P: OffsetAndMetadata(90)})
    await task
    assert subscription.state(P).position == 90


async def test_k25_a_missing_offset_found_before_two_rebalances_resets_nothing() -> None:
    group = SlowGroup()
    loop, subscription = a_loop(group)
    task = await ask(loop)
    back_and_forth(subscription)
    group.asked[0].set_result({P: None})
    while len(group.asked) < 2:
        await asyncio.sleep(0)
        assert subscription.state(P).fetch_state is FetchState.INITIALIZING
    group.asked[1].set_result({P: OffsetAndMetadata(90)})
    await task
    assert subscription.state(P).position == 90


async def test_o16_a_log_start_found_before_two_rebalances_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = SlowGroup()
    loop, subscription = a_loop(group)
    subscription.reset(P, EARLIEST_TIMESTAMP)
    asked: list[asyncio.Future[FoundOffsets]] = []

    async def list_offsets_once(timestamps: Any) -> FoundOffsets:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    monkeypatch.setattr(loop.offsets, "list_offsets_once", list_offsets_once)
    task = await ask(loop)
    back_and_forth(subscription)
    subscription.reset(P, EARLIEST_TIMESTAMP)
    asked[0].set_result(FoundOffsets(found={P: OffsetAndTimestamp(3, -1, -1)}))
    while len(asked) < 2:
        await asyncio.sleep(0)
        assert subscription.state(P).fetch_state is FetchState.AWAIT_RESET
    asked[1].set_result(FoundOffsets(found={P: OffsetAndTimestamp(7, -1, -1)}))
    await task
    assert subscription.state(P).position == 7


# --- the first assignment -------------------------------------------------------------------------


class LateGroup:
    """A group that assigns its partitions `after_s` seconds after the start of the loop."""

    led_topics: frozenset[str] = frozenset()
    offsets = None

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s

    @property
    def awaits_first_assignment(self) -> bool:
        return asyncio.get_running_loop().time() < self._after_s

    async def poll(self) -> None: ...

    def next_poll_ms(self) -> float:
        return 100.0


async def empty_poll_s(after_s: float, timeout_ms: float, joining_ms: float) -> float:
    """The duration of a poll without records, in a group that assigns partitions after `after_s`
    seconds."""
    loop, subscription = a_loop(LateGroup(after_s))
    subscription.seek(P, 0)
    nothing = SimpleNamespace(count=0, advanced=False)
    loop._fetcher = SimpleNamespace(  # type: ignore[assignment]
        collect=lambda *_: nothing,
        next_fetches=lambda *_: [],
        metadata_wanted=False,
        retry_at_ms=None,
    )
    began_s = asyncio.get_running_loop().time()
    await loop.poll(1, (), timeout_ms, None, joining_ms)
    return asyncio.get_running_loop().time() - began_s


@pytest.mark.parametrize(
    ("after_s", "joining_ms", "expected_s"),
    [(3.0, 60_000, 4.0), (3.0, 0, 1.0), (0.0, 60_000, 1.0), (90.0, 60_000, 61.0)],
)
def test_the_timeout_of_a_poll_begins_at_the_first_assignment(
    after_s: float, joining_ms: float, expected_s: float
) -> None:
    async def story() -> None:
        assert await empty_poll_s(after_s, 1_000, joining_ms) == pytest.approx(expected_s, abs=0.15)

    run(story)
