"""A share group that begins at the end of its topic, to which partitions are added."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_client.admin import Admin, ConfigResource, NewTopic
from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer
from odradek_client.share.consumer import ShareConsumer
from odradek_testkit.simulation.world import World

_TOPIC, _GROUP = "jobs", "workers"
_PARTITIONS_MAX = 4
#: Polls of 200 ms at the end: states that could not be made are requested again after 30 s (H-22).
_POLLS_MAX = 300
_CLIENT = {"request_timeout_ms": 1_500, "default_api_timeout_ms": 4_000}


class ShareAddedWorkload:
    """Partitions get records as soon as they are added, mostly before the group has heard of them.
    Members accept all that they get."""

    name: ClassVar[str] = "share-added"
    settings: ClassVar[dict[str, object]] = {
        "group.share.min.session.timeout.ms": 100,
        "group.share.session.timeout.ms": 1_000,
        "group.share.min.heartbeat.interval.ms": 10,
        "group.share.heartbeat.interval.ms": 200,
        "group.share.assignment.interval.ms": 100,
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.record.lock.duration.ms": 1_000,
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        #: The values of records that were acknowledged to their producer, and those that members
        #: have got.
        self._sent: set[bytes] = set()
        self._got: set[bytes] = set()
        self._partitions = 1

    async def prepare(self) -> None:
        """Create the topic, and wait until the group has noted its partition."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(_TOPIC, 1)])
            latest = {
                "share.auto.offset.reset": "latest",
                # No record is given up, however often members die with it.
                "share.delivery.count.limit": "10",
            }
            await admin.alter_configs({ConfigResource.group(_GROUP): latest})
            async with self._consumer("first") as consumer:
                await consumer.poll(timeout_ms=500)
                while not await admin.list_share_group_offsets(_GROUP):
                    await consumer.poll(timeout_ms=100)

    async def work(self) -> None:
        """Add partitions while members come and go; then let a member read the rest."""
        await asyncio.gather(
            keep_running(self._world, "member", 2, self._live), self._grow_and_produce()
        )
        async with self._consumer("last") as consumer:
            for _ in range(_POLLS_MAX):
                if self._sent <= self._got:
                    break
                await self._take(consumer)

    def _consumer(self, name: str) -> ShareConsumer:
        return ShareConsumer(
            _TOPIC,
            bootstrap_servers=self._world.broker.bootstrap,
            group_id=_GROUP,
            client_id=name,
            share_acknowledgement_mode="explicit",
            metadata_max_age_ms=700,
            **_CLIENT,  # type: ignore[arg-type]
        )

    async def _live(self, name: str) -> None:
        async with self._consumer(name) as consumer:
            for _ in range(self._random.randint(1, 20)):
                if not self._world.faults_over.is_set():
                    await self._take(consumer)

    async def _take(self, consumer: ShareConsumer) -> None:
        try:
            for record in await consumer.poll(timeout_ms=200):
                self._got.add(record.value)
                record.accept()
        except OdradekError as problem:
            self._world.note("member", f"poll: {problem}")
            await self._world.sleep(50)

    async def _grow_and_produce(self) -> None:
        bootstrap = self._world.broker.bootstrap
        async with Admin(bootstrap_servers=bootstrap, **_CLIENT) as admin:  # type: ignore[arg-type]
            while self._partitions < _PARTITIONS_MAX and not self._world.faults_over.is_set():
                await self._world.sleep(self._random.choice((100, 500, 1_500)))
                try:
                    await admin.create_partitions({_TOPIC: self._partitions + 1})
                except OdradekError as problem:
                    self._world.note("owner", f"{problem}")
                    described = await self._described(admin)
                    if described == self._partitions:
                        continue
                self._partitions += 1
                await self._produce(self._partitions - 1)

    async def _described(self, admin: Admin) -> int:
        """The number of partitions, asked until there is an answer."""
        while True:
            try:
                return len((await admin.describe_topics(_TOPIC))[_TOPIC].partitions)
            except OdradekError:
                await self._world.sleep(50)

    async def _produce(self, partition: int) -> None:
        async with Producer(
            bootstrap_servers=self._world.broker.bootstrap,
            request_timeout_ms=1_500,
            delivery_timeout_ms=30_000,
            metadata_max_age_ms=100,
        ) as producer:
            for number in range(self._random.randint(1, 4)):
                value = b"%d/%d" % (partition, number)
                try:
                    await (await producer.send(_TOPIC, value, partition=partition))
                except OdradekError as problem:
                    self._world.note("producer", f"{value!r} was not taken: {problem}")
                else:
                    self._sent.add(value)

    async def check(self) -> Iterator[str]:
        """Check that each record was delivered, although the group begins at the end."""
        missing = sorted(self._sent - self._got)
        return iter([f"added: {missing} were never delivered"] if missing else [])
