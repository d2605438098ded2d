"""Two clusters with a topic of the same name, and a mirror of each to the same broker, where the
topic is deleted again and again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import ClassVar

from tests.sim.checkers.one_source import check_one_source
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_client.admin import Admin, NewTopic
from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer
from odradek_mirror.plan import (
    MirrorOptions,
    Mode,
    TopicSelection,
    gather_both,
    make_plan,
    mirror_source,
)
from odradek_mirror.progress import Progress
from odradek_mirror.run import MirrorJob, run
from odradek_mirror.same_offsets import SameOffsetsCopier
from odradek_records.partition_fetch import FetchLimits
from odradek_testkit.simulation.broker import SimulatedBroker
from odradek_testkit.simulation.world import World

TOPIC = "orders"
_LIMITS = FetchLimits(max_bytes=4_000, partition_bytes=1_000, wait_ms=100)
_RECORDS_MAX = 60


class MirrorSourcesWorkload:
    """Whoever sees first that the topic is missing at the target makes it again, as the mirror of
    its source. The other mirror may be in the middle of an append at that time."""

    name: ClassVar[str] = "mirror-sources"
    settings: ClassVar[dict[str, object]] = {}
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._sources = [
            SimulatedBroker(world.network, world.chance(host), address=(host, 9092))
            for host in ("one", "two")
        ]

    async def prepare(self) -> None:
        """Start the sources, and write the first records."""
        for source in self._sources:
            await source.start()
            async with self._admin("founder", source) as admin:
                await admin.create_topics([NewTopic(TOPIC, 1)])
            for _ in range(self._random.randint(0, 6)):
                await self._write(source)

    async def work(self) -> None:
        """Follow both sources until the faults are over, then copy the rest of the source whose
        mirror the topic is."""
        world = self._world
        await asyncio.gather(
            self._write_all(),
            keep_running(world, "mirror-of-one", 1, partial(self._follow, self._sources[0])),
            keep_running(world, "mirror-of-two", 1, partial(self._follow, self._sources[1])),
            keep_running(world, "owner", 1, self._delete),
            self._look(),
        )
        node = world.broker.server.node
        named = self._by_name().get(node.metadata.mirror_sources.get(TOPIC, ""))
        await self._copy("last", named or self._sources[0], follow=False)

    def _admin(self, name: str, broker: SimulatedBroker) -> Admin:
        return Admin(bootstrap_servers=broker.bootstrap, request_timeout_ms=2_000, client_id=name)

    # --- The sources ---

    async def _write_all(self) -> None:
        """Append records, and sometimes delete the oldest ones."""
        for _ in range(_RECORDS_MAX):
            if self._world.faults_over.is_set():
                return
            await self._world.sleep(self._random.choice((20, 200)))
            source = self._random.choice(self._sources)
            await self._write(source)
            log = self._log(source)
            if self._random.random() < 0.1:
                start = self._random.randint(log.log_start_offset, log.high_watermark)
                source.server.node.logs.advance_log_starts([log], [start])

    async def _write(self, source: SimulatedBroker) -> None:
        async with Producer(bootstrap_servers=source.bootstrap) as producer:
            for _ in range(self._random.randint(1, 3)):
                value = f"{self._sources.index(source)}/{self._log(source).log_end_offset}"
                await (await producer.send(TOPIC, value.encode()))

    def _log(self, source: SimulatedBroker) -> PartitionLog:
        partition = source.server.node.partition(TOPIC, 0)
        assert partition is not None
        return partition.log

    def _by_name(self) -> dict[str, SimulatedBroker]:
        """The sources by the setting mirror.source of their copies."""
        found = {}
        for source in self._sources:
            node = source.server.node
            found[mirror_source(node.cluster_id, node.metadata.topic_id(TOPIC))] = source
        return found

    # --- The target ---

    async def _follow(self, source: SimulatedBroker, name: str) -> None:
        """Follow a source for some time, and at most until the faults are over."""
        copying = asyncio.ensure_future(self._copy(name, source, follow=True))
        over = asyncio.ensure_future(self._world.faults_over.wait())
        patience_s = self._random.choice((0.5, 2, 10))
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait([copying, over], timeout=patience_s, return_when=first)
        over.cancel()
        if not copying.done():
            copying.cancel()
            await asyncio.wait([copying])
        elif (error := copying.exception()) is not None:
            raise error

    async def _copy(self, name: str, source: SimulatedBroker, *, follow: bool) -> None:
        options = MirrorOptions(
            TopicSelection(topics=re.compile(TOPIC)),
            Mode.SAME_OFFSETS,
            follow=follow,
            refresh_s=self._random.choice((0.1, 0.5, 5.0)),
        )
        async with (
            self._admin(name, source) as there,
            self._admin(name, self._world.broker) as target,
        ):
            plan = make_plan(*await gather_both(there, target, options.selection), options)
            if plan.problems:
                self._world.note(name, f"has problems: {plan.problems}")
                await self._world.sleep(100)
                return
            job = MirrorJob(
                there,
                target,
                options,
                plan,
                Progress(there.network.loop.time()),
                {},
                lambda line: self._world.note(name, f"tells: {line}"),
                lambda _: None,
            )
            await run(job, SameOffsetsCopier(job, _LIMITS))

    async def _delete(self, name: str) -> None:
        """Delete the topic at the target, and leave both mirrors to it."""
        async with self._admin(name, self._world.broker) as admin:
            await self._world.sleep(self._random.choice((100, 500, 1_500)))
            with suppress(OdradekError):
                await admin.delete_topics([TOPIC])

    async def _look(self) -> None:
        """Check the topic while the mirrors run."""
        while not self._world.faults_over.is_set():
            await self._world.sleep(50)
            with suppress(StorageError):  # The disk may fail, whoever reads.
                for problem in self._problems():
                    self._world.violated("sources", problem)

    def _problems(self, *, is_whole: bool = False) -> Iterator[str]:
        broker = self._world.broker
        if not broker.running:
            return
        node = broker.server.node
        partition, named = node.partition(TOPIC, 0), node.metadata.mirror_sources.get(TOPIC)
        if partition is not None and named is not None and partition.log.loaded:
            source = self._by_name().get(named)
            if source is None:
                yield f"the topic names {named}, which is no source"
            else:
                yield from check_one_source(partition.log, self._log(source), is_whole=is_whole)

    async def check(self) -> Iterator[str]:
        """Check that the topic has all records of its source, and no others."""
        problems = [f"sources: {each}" for each in self._problems(is_whole=True)]
        for source in self._sources:
            await source.stop()
        return iter(problems)
