"""The mirror out, from Odradek to Odradek: what arrives, and what stops it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import mirrored
from live_brokers import LiveBroker
from odradek import Admin, NewTopic
from odradek.broker import SubprocessBroker
from odradek.mirror.exactly_once import ExactlyOnceMirror, OutSettings, Step
from odradek.mirror.map_topic import read_map

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def source() -> Iterator[SubprocessBroker]:
    with SubprocessBroker(settings={"log.durability": "page-cache"}) as running:
        yield running


@pytest.fixture(scope="module")
def target() -> Iterator[SubprocessBroker]:
    with SubprocessBroker(settings={"log.durability": "page-cache"}) as running:
        yield running


class Mirror:
    """A mirror of one topic, which is made at the target."""

    def __init__(self, source: Admin, target: Admin, topic: str, **settings: Any) -> None:
        self.source, self.target, self.topic = source, target, topic
        given: dict[str, Any] = {"name": topic, "transaction_ms": 50, **settings}
        self.settings = OutSettings(**given)
        self.told: list[str] = []
        self.stop = asyncio.Event()

    async def topics(self) -> list[str]:
        found = await self.source.describe_topics(self.topic, raise_errors=False)
        if not found:
            return []
        count = len(found[self.topic].partitions)
        await self.target.create_topics(
            NewTopic(self.settings.target_topic(self.topic), count), raise_errors=False
        )
        return [self.topic]

    async def run(
        self,
        *,
        follow: bool = False,
        timeout_ms: float = 20_000,
        reached: Callable[[Step], None] = lambda _: None,
    ) -> ExactlyOnceMirror:
        made = ExactlyOnceMirror(
            self.source, self.target, self.settings, reached=reached, told=self.told.append
        )
        async with asyncio.timeout(DEADLINE_S):
            await made.run(self.topics, follow=follow, stop=self.stop, timeout_ms=timeout_ms)
        return made

    async def check(self, partitions: int = 2) -> None:
        """The copy has the same records, and the map translates every offset."""
        before = await mirrored.read_all(_bootstrap(self.source), self.topic, partitions)
        copy = self.settings.target_topic(self.topic)
        after = await mirrored.read_all(_bootstrap(self.target), copy, partitions)
        mirrored.check_rows(before, after)
        found = await read_map(self.target, self.settings.name)
        mirrored.check_translation(before, after, found.partitions, self.topic)


def _bootstrap(admin: Admin) -> str:
    return ",".join(admin.config.bootstrap_servers)


@asynccontextmanager
async def mirror(
    source: LiveBroker, target: LiveBroker, topic: str, **settings: Any
) -> AsyncIterator[Mirror]:
    async with (
        Admin(bootstrap_servers=source.bootstrap) as there,
        Admin(bootstrap_servers=target.bootstrap) as here,
    ):
        yield Mirror(there, here, topic, **settings)


async def test_everything_arrives_once_and_every_offset_is_translated(
    source: SubprocessBroker, target: SubprocessBroker, unique_topic: str
) -> None:
    await mirrored.make_topic(source.bootstrap, unique_topic)
    await mirrored.fill(source.bootstrap, unique_topic)
    async with mirror(source, target, unique_topic) as made:
        ran = await made.run()
        await made.check()
        assert ran.copied.untouched_batches > 0
        for tp, next_offset in ran.positions().items():
            assert ran.translate(tp, next_offset) == ran.maps[tp].position.target_end
        again = await made.run()
        assert again.copied.records == 0, "nothing is new"
        await mirrored.fill(source.bootstrap, unique_topic, first=1000, count=50)
        third = await made.run()
        assert 0 < third.copied.records < ran.copied.records
        await made.check()
