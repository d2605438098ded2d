"""Groups of all four kinds in a running broker, each with one member, during a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from odradek import Consumer, ShareConsumer
from odradek_client.admin import Admin, ConfigResource, NewTopic
from odradek_client.admin.history import Subject
from odradek_client.errors import NothingKnown
from odradek_protocol.common_structs import StreamsSubtopology, StreamsTaskIds
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsTopology,
)
from raw_client import RawClient
from waiting import DEADLINE_S

PARTITIONS = 3


@asynccontextmanager
async def groups_of_all_kinds(bootstrap: str, topic: str) -> AsyncIterator[None]:
    """A group of each kind that reads a new topic: `TOPIC-classic`, `-consumer`, `-share` and
    `-streams`.

    Each group has one member; the block begins when each member has all partitions or tasks.
    """
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(bootstrap_servers=bootstrap))
        await admin.create_topics(NewTopic(topic, partitions=PARTITIONS))
        for protocol in ("classic", "consumer"):
            consumer = Consumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=f"{topic}-{protocol}",
                client_id=f"{protocol}-app",
                group_protocol=protocol,
                auto_offset_reset="earliest",
            )
            await stack.enter_async_context(consumer)
            await _until(_has_all(consumer))
        share_group = f"{topic}-share"
        await admin.alter_configs(
            {ConfigResource.group(share_group): {"share.auto.offset.reset": "earliest"}}
        )
        share = ShareConsumer(
            topic, bootstrap_servers=bootstrap, group_id=share_group, client_id="share-app"
        )
        await stack.enter_async_context(share)
        await _until(_shares(admin, share, share_group))
        await stack.enter_async_context(_streams_group(admin, bootstrap, topic))
        yield


async def _until(step: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await step():
            pass


def _has_all(consumer: Consumer) -> Callable[[], Awaitable[bool]]:
    async def step() -> bool:
        await consumer.poll(50)
        return len(consumer.assignment()) == PARTITIONS

    return step


def _shares(admin: Admin, share: ShareConsumer, group: str) -> Callable[[], Awaitable[bool]]:
    async def step() -> bool:
        await share.poll(50)
        try:
            (history,) = await admin.describe_history(Subject.GROUP, group, limit=0)
        except NothingKnown:
            return False  # The member has not joined yet.
        # The member has the partitions, and fetches from them.
        fetched = [state for state in history.states if state.name == "now_share_partition"]
        return len(fetched) == PARTITIONS

    return step


@asynccontextmanager
async def _streams_group(admin: Admin, bootstrap: str, topic: str) -> AsyncIterator[None]:
    """A streams group with one member, which runs the tasks of the only subtopology, "words"."""
    group = f"{topic}-streams"
    await admin.alter_configs(
        {ConfigResource.group(group): {"streams.initial.rebalance.delay.ms": "0"}}
    )
    host, _, port = bootstrap.rpartition(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    epoch = 0
    has: list[StreamsTaskIds] = []

    async def beat() -> bool:
        nonlocal epoch, has
        request = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="streams-member",
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            process_id="process-1" if epoch == 0 else None,
            topology=StreamsTopology(
                epoch=0,
                subtopologies=[StreamsSubtopology(subtopology_id="words", source_topics=[topic])],
            )
            if epoch == 0
            else None,
            active_tasks=has,
            standby_tasks=[],
            warmup_tasks=[],
        )
        answer = await client.call(request)
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        if answer.active_tasks is not None:
            has = answer.active_tasks
        return [len(each.partitions) for each in has] == [PARTITIONS]

    try:
        await _until(beat)
        yield
    finally:
        client.close()
