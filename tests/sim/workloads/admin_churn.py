"""Topics that are created, grown, reconfigured, deleted and created again, while clients use
them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_client.admin import Admin, ConfigResource, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.batch import Delivery
from odradek_client.producer.producer import Producer
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.world import World

_TOPICS = 2
_PARTITIONS_MAX = 4
_CHANGES_MAX = 12
_RECORDS_MAX = 15
_GROUP = "readers"
_SETTINGS = {
    ConfigResource.broker(1): ("message.max.bytes", range(100_000, 200_000)),
    ConfigResource.group(_GROUP): ("consumer.session.timeout.ms", range(45_000, 60_000)),
}


@dataclass(slots=True)
class _Topic:
    """The known state of a topic's name. `topic_id` is None while there is no such topic."""

    name: str
    topic_id: bytes | None = None
    partitions: int = 0
    retention_ms: str | None = None
    #: Records acknowledged in the present topic, by value: (partition, offset).
    acknowledged: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    #: Finished sends to any topic of this name, and those of them that a deletion removed.
    over: dict[bytes, None] = field(default_factory=dict)
    deleted: dict[bytes, None] = field(default_factory=dict)


class AdminChurnWorkload:
    """An administrator, a producer and a reader use topics that change.

    Only one change is made at a time. If its outcome is unknown, it may still take effect: the
    administrator stops using that topic and continues with another name.
    """

    name: ClassVar[str] = "admin-churn"
    settings: ClassVar[dict[str, object]] = {
        "auto.create.topics.enable": "false",
        "log.segment.delete.delay.ms": 500,
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS
    #: True if the administrator compares a topic with its known state before changing it.
    looks_first: ClassVar[bool] = True

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._topics = [_Topic(f"t{number}") for number in range(_TOPICS)]
        self._names = _TOPICS
        self._ids: dict[bytes, None] = {}
        self._set: dict[ConfigResource, str] = {}
        self._unsure: dict[ConfigResource, None] = {}
        #: The topic that the administrator is changing.
        self._changing: _Topic | ConfigResource | None = None
        self._problems: list[str] = []

    async def prepare(self) -> None:
        """Prepare nothing: the administrator creates the topics."""

    async def work(self) -> None:
        """Run all clients at the same time."""
        await asyncio.gather(
            keep_running(self._world, "admin", 1, self._administer),
            keep_running(self._world, "producer", 1, self._produce),
            keep_running(self._world, "reader", 1, self._read),
        )
        self._leave_alone()

    # --- The administrator ---

    def _leave_alone(self) -> None:
        """Stop using a topic whose last change has an unknown outcome."""
        changing, self._changing = self._changing, None
        if isinstance(changing, ConfigResource):
            self._unsure[changing] = None
        elif changing is not None:
            self._topics[self._topics.index(changing)] = _Topic(f"t{self._names}")
            self._names += 1

    async def _administer(self, name: str) -> None:
        self._leave_alone()
        random = self._random
        async with Admin(
            bootstrap_servers=self._world.broker.bootstrap, request_timeout_ms=2_000
        ) as admin:
            for _ in range(random.randint(1, _CHANGES_MAX)):
                try:
                    await self.change(admin, name)
                    self._changing = None
                except OdradekError as problem:
                    self._world.note(name, f"does not know what became of it: {problem}")
                    self._leave_alone()
                await self._world.sleep(random.choice((1, 50, 200, 400)))

    async def change(self, admin: Admin, name: str) -> None:
        random = self._random
        if random.random() < 0.15:
            await self._change_setting(admin)
            return
        topic = random.choice(self._topics)
        if self.looks_first and random.random() < 0.5:
            self._problems += await self._check_description(admin, topic)
        self._changing = topic
        kind = "create" if topic.topic_id is None else random.choice(("delete", "grow", "set"))
        self._world.note(name, f"{kind} {topic.name}")
        if kind == "create":
            new = NewTopic(topic.name, random.randint(1, 2))
            created = (await admin.create_topics([new]))[topic.name]
            topic.topic_id, topic.partitions = created.topic_id, created.partitions
            if created.topic_id in self._ids:
                self._problems.append(f"{topic.name} has an id that was used before")
            self._ids[created.topic_id] = None
        elif kind == "delete":
            topic.topic_id = None
            topic.acknowledged.clear()
            await admin.delete_topics([topic.name])
            topic.retention_ms = None
            topic.deleted.update(topic.over)
        elif kind == "grow":
            count = min(topic.partitions + 1, _PARTITIONS_MAX)
            if count > topic.partitions:
                await admin.create_partitions({topic.name: count})
                topic.partitions = count
        else:
            value = str(random.randrange(100_000_000, 200_000_000))
            await admin.alter_configs({ConfigResource.topic(topic.name): {"retention.ms": value}})
            topic.retention_ms = value

    async def _change_setting(self, admin: Admin) -> None:
        resource = self._random.choice(list(_SETTINGS))
        setting, values = _SETTINGS[resource]
        value = str(self._random.choice(values))
        self._changing = resource
        await admin.alter_configs({resource: {setting: value}})
        self._set[resource] = value

    # --- The others ---

    async def _produce(self, name: str) -> None:
        world, random = self._world, self._random
        waiting: list[asyncio.Task[None]] = []
        async with Producer(
            bootstrap_servers=world.broker.bootstrap,
            request_timeout_ms=2_000,
            delivery_timeout_ms=10_000,
            max_block_ms=1_000,
            client_id=name,
        ) as producer:
            for number in range(random.randint(1, _RECORDS_MAX)):
                topic = random.choice(self._topics)
                topic_id = topic.topic_id
                value = f"{name}/{number}".encode()
                try:
                    delivery = await producer.send(topic.name, value)
                except OdradekError:
                    continue
                waiting.append(asyncio.ensure_future(self._wait(topic, topic_id, value, delivery)))
                await world.sleep(random.choice((1, 50, 200)))
            await asyncio.gather(*waiting)

    async def _wait(
        self, topic: _Topic, topic_id: bytes | None, value: bytes, delivery: Delivery
    ) -> None:
        try:
            where = await delivery
        except OdradekError as problem:
            topic.over[value] = None
            if problem.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                self._problems.append(f"{value!r} for {topic.name}: {problem}")
            return
        topic.over[value] = None
        if topic_id is not None and topic.topic_id == topic_id:
            topic.acknowledged[value] = (where.partition, where.offset)

    async def _read(self, name: str) -> None:
        world, random = self._world, self._random
        async with Consumer(
            bootstrap_servers=world.broker.bootstrap,
            group_id=_GROUP,
            group_protocol=random.choice(("classic", "consumer")),
            auto_offset_reset="earliest",
            request_timeout_ms=2_000,
            client_id=name,
        ) as consumer:
            consumer.subscribe([topic.name for topic in self._topics])
            for _ in range(random.randint(1, 6)):
                try:
                    records = await consumer.poll(timeout_ms=300)
                    world.note(name, f"reads {len(records)} records")
                except OdradekError as problem:
                    world.note(name, f"cannot read: {problem}")
                await world.sleep(random.choice((1, 100, 300)))

    # --- The end ---

    async def check(self) -> Iterator[str]:
        """Check that topics have their acknowledged state, and only their own records."""
        problems = self._problems
        bootstrap = self._world.broker.bootstrap
        async with Admin(bootstrap_servers=bootstrap) as admin:
            for topic in self._topics:
                problems += await self._check_description(admin, topic)
                if topic.topic_id is not None:
                    problems += await self._check_records(topic)
            for resource, value in self._set.items():
                setting, _ = _SETTINGS[resource]
                entries = (await admin.describe_configs([resource]))[resource]
                if resource not in self._unsure and entries[setting].value != value:
                    found = entries[setting].value
                    problems.append(f"{setting} was set to {value}, and is {found}")
        return iter(problems)

    async def _check_description(self, admin: Admin, topic: _Topic) -> list[str]:
        is_there = topic.name in await admin.list_topics()
        if is_there != (topic.topic_id is not None):
            there = "there" if is_there else "not there"
            return [f"{topic.name} is {there}, with the id {topic.topic_id!r}"]
        if not is_there:
            return []
        problems = []
        described = (await admin.describe_topics([topic.name]))[topic.name]
        found = (described.topic_id, len(described.partitions))
        if found != (topic.topic_id, topic.partitions):
            wanted = (topic.topic_id, topic.partitions)
            problems.append(f"{topic.name} has id and partitions {found} instead of {wanted}")
        resource = ConfigResource.topic(topic.name)
        entry = (await admin.describe_configs([resource]))[resource]["retention.ms"]
        own = None if entry.is_default else entry.value
        if own != topic.retention_ms:
            problems.append(f"{topic.name} has retention.ms {own} instead of {topic.retention_ms}")
        return problems

    async def _check_records(self, topic: _Topic) -> list[str]:
        problems = []
        logs = await read_all(self._world.broker.bootstrap, topic.name, topic.partitions)
        for place, records in logs.items():
            for expected, (offset, value) in enumerate(records):
                if value in topic.deleted:
                    problems.append(f"{place}: {value!r} at {offset} is of a deleted topic")
                if offset != expected:
                    problems.append(f"{place}: offset {offset} where {expected} was due")
        for value, (partition, offset) in topic.acknowledged.items():
            if (offset, value) not in logs.get(f"{topic.name}-{partition}", []):
                problems.append(f"{topic.name}-{partition}: {value!r} at {offset} is not there")
        return problems
