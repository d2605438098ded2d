"""The metadata log loses its end while the broker is down, and topics are made again under the same
names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

from tests.sim.reading import read_all
from tests.sim.workloads.clients import keep_running

from odradek_broker.metadata.cluster import METADATA_TOPIC
from odradek_client.admin import Admin, NewTopic
from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer
from odradek_protocol.records.batch import iter_batches
from odradek_testkit.simulation.world import World

_LOG = f"data/{METADATA_TOPIC}-0/{0:020}.log"
#: The names that are made again and again.
_NAMES = ("a", "b")
_LOST_BATCHES_MAX = 8
_LOSSES_MAX = 4


class LostMetadataWorkload:
    """An administrator makes and deletes topics under two names, and makes others, to which records
    are written. At times the broker is killed, and the last batches of its metadata log are cut
    off.

    The broker must always start. A topic that the metadata still have must have all its records,
    and only those that were written for its id.
    """

    name: ClassVar[str] = "lost-metadata"
    settings: ClassVar[dict[str, object]] = {"auto.create.topics.enable": "false"}
    faults: ClassVar[tuple[str, ...]] = (
        "kill-broker",
        "cut-power",
        "stop-broker",
        "cut-connections",
        "slow-disk",
    )

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._made = 0
        #: The acknowledged records of each topic id.
        self._written: dict[bytes, list[bytes]] = {}

    async def prepare(self) -> None:
        """Prepare nothing: the administrator makes the topics."""

    async def work(self) -> None:
        """Change topics and lose metadata until the faults are over."""
        await asyncio.gather(
            keep_running(self._world, "admin", 1, self._administer), self._lose_metadata()
        )

    async def _administer(self, name: str) -> None:
        world, random = self._world, self._random
        settings: dict[str, Any] = {
            "bootstrap_servers": world.broker.bootstrap,
            "request_timeout_ms": 2_000,
        }
        async with (
            Admin(**settings) as admin,
            Producer(**settings, delivery_timeout_ms=4_000) as producer,
        ):
            for _ in range(random.randint(1, 20)):
                try:
                    if random.random() < 0.7:
                        await self._make_again(admin, random.choice(_NAMES))
                    else:
                        await self._write(admin, producer)
                except OdradekError as problem:
                    world.note(name, f"{problem}")
                await world.sleep(random.choice((1, 20, 100)))

    async def _make_again(self, admin: Admin, topic: str) -> None:
        if topic in await admin.list_topics():
            await admin.delete_topics(topic)
        else:
            await admin.create_topics(NewTopic(topic, 1))

    async def _write(self, admin: Admin, producer: Producer) -> None:
        """Write records for the id of a new topic, or of one that is there already."""
        if not self._made or self._random.random() < 0.5:
            self._made += 1
            await admin.create_topics(NewTopic(_kept(self._made), 1))
        topic = _kept(self._random.randint(1, self._made))
        topic_id = (await admin.describe_topics(topic))[topic].topic_id
        written = self._written.setdefault(topic_id, [])
        value = b"%s %d" % (topic_id.hex().encode(), len(written))
        await producer.send_and_wait(topic, value)
        written.append(value)

    async def _lose_metadata(self) -> None:
        world, random = self._world, self._random
        for _ in range(random.randint(1, _LOSSES_MAX)):
            await world.sleep(random.randint(100, 1_500))
            if world.faults_over.is_set():
                return
            await world.kill_broker(
                power_lost=False, down_ms=20, meanwhile=lambda: self._cut(random)
            )

    def _cut(self, random: Random) -> None:
        """Cut off batches of the metadata log, or parts of batches."""
        disk = self._world.broker.disk
        if not disk.exists(_LOG):
            return
        content = bytes(disk.content(_LOG))
        begins = [position for position, _ in iter_batches(content)]
        lost = random.randint(0, max(min(_LOST_BATCHES_MAX, len(begins) - 1), 0))
        if lost:
            self._world.broker.cut_topics.add(METADATA_TOPIC)
            disk.put(_LOG, content[: begins[-lost] + random.choice((0, 0, 1, 70))])
            self._world.note("workload", f"{lost} batches of the metadata log are lost")

    async def check(self) -> Iterator[str]:
        """Check the records of every topic that is left."""
        problems: list[str] = []
        bootstrap = self._world.broker.bootstrap
        async with Admin(bootstrap_servers=bootstrap) as admin:
            described = await admin.describe_topics(
                [topic for topic in await admin.list_topics() if topic.startswith("kept")]
            )
        for topic, description in described.items():
            found = [value for _, value in (await read_all(bootstrap, topic, 1))[f"{topic}-0"]]
            own = description.topic_id.hex().encode()
            problems += [f"{topic} has {each!r}" for each in found if not each.startswith(own)]
            missing = set(self._written.get(description.topic_id, ())) - set(found)
            problems += [f"{topic} does not have {each!r}" for each in sorted(missing)]
        return iter(problems)


def _kept(number: int) -> str:
    return f"kept-{number}"
