"""Members of one group join, leave and are killed while its topic grows; they use one protocol, or
both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

from tests.sim.checkers.assignment import check_assignments, shards_of
from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.group_member import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    Checkers,
    Member,
    Plan,
)

from odradek_client.admin import Admin, NewTopic
from odradek_client.errors import InvalidGroup, OdradekError
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from odradek_protocol.constants import LATEST_TIMESTAMP, LEAVE_STATIC_EPOCH
from odradek_testkit.simulation.world import World

_TOPIC = "orders"
GROUP = "billing"
_PARTITIONS = 3
_PARTITIONS_MAX = 6
#: The time that the group may take to become stable, after the faults and the last kills.
_SETTLE_MS = 60_000
#: A static leader that was away while the topic grew learns of the new partitions only when the
#: topic grows again.
_GROW_AFTER_MS = 10_000
_OBSERVE_EVERY_MS = 120
_ASSIGNORS = (
    ("range",),
    ("roundrobin", "range"),
    ("sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("range", "cooperative-sticky"),
)


class GroupsWorkload:
    """The seed chooses protocols, assignors and kinds of members for the whole run."""

    name: ClassVar[str] = "groups"
    settings: ClassVar[dict[str, object]] = {
        "group.min.session.timeout.ms": 100,
        "group.consumer.min.session.timeout.ms": 100,
        "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
        "group.consumer.min.heartbeat.interval.ms": 10,
        "group.consumer.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        random = self._random = world.chance("workload")
        self._checkers = Checkers()
        self._protocols = random.choice(
            (("classic",), ("consumer",), ("classic", "consumer"), ("classic", "consumer"))
        )
        self._assignors = random.choice(_ASSIGNORS)
        self._slots = random.randint(1, 3)
        #: The number of static members.
        self._static = random.choice((0, 0, 1, self._slots))
        self._partitions = _PARTITIONS
        self._partitions_left_out = False
        #: True while no member may join, because an administrator wants to reset offsets.
        self._away = False
        self._members: dict[str, Member] = {}
        world.on_member_removed = self._removed
        self._all_sent = asyncio.Event()
        self._settled = asyncio.Event()
        self._admin = Admin(
            bootstrap_servers=world.broker.bootstrap,
            request_timeout_ms=1_500,
            default_api_timeout_ms=3_000,
        )

    async def prepare(self) -> None:
        """Create one topic."""
        await self._admin.start()
        await self._admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)])

    async def work(self) -> None:
        """Run members until the group is stable after the faults, and has read and committed
        everything."""
        observing = asyncio.ensure_future(self._observe())
        others = [asyncio.ensure_future(each) for each in (self._grow(), self._reset())]
        await asyncio.gather(
            self._produce(), self._settle(), *(self._follow(slot) for slot in range(self._slots))
        )
        await asyncio.gather(*others)
        observing.cancel()
        await asyncio.gather(observing, return_exceptions=True)
        await self._admin.close()

    # --- members ---

    async def _follow(self, slot: int) -> None:
        """Run the members of one slot, one after the other."""
        world, random = self._world, self._random
        finish = world.faults_over
        number = 0
        while not self._settled.is_set():
            while self._away:
                await world.sleep(20)
            number += 1
            name = f"member-{slot}.{number}"
            plan = Plan(
                _TOPIC,
                random.choice(self._protocols),
                self._assignors,
                f"slot-{slot}" if slot < self._static else None,
                auto_commit=random.random() < 0.4,
                polls=random.randint(1, 40),
                unsubscribes=random.random() < 0.1,
            )
            main = world.start_client(name, lambda name=name, plan=plan: self._live(name, plan))  # type: ignore[misc]
            process = world.clients[name]
            dies_at_ms = world.now_ms + random.choice((500, 2_000, 100_000))
            while not main.done() and process.alive:
                if world.now_ms > dies_at_ms and not finish.is_set():
                    world.note(name, "dies")
                    process.kill()
                await world.sleep(20)
            if not process.alive:
                ownership = self._checkers.ownership
                ownership.released(name, ownership.held_by(name))
            elif not main.cancelled() and main.exception() is not None:
                world.violated("client", f"{name} ended by {main.exception()!r}")
            self._members.pop(name, None)
            await world.sleep(random.choice((0, 50, 300)))

    def _removed(self, group_id: str, member_id: str) -> None:
        """Called when the coordinator has removed a member."""
        for name, member in self._members.items():
            if group_id == GROUP and member.consumer.group_metadata().member_id == member_id:
                self._checkers.ownership.dropped(name)

    async def _live(self, name: str, plan: Plan) -> None:
        member = Member(
            self._world,
            self._random,
            name,
            GROUP,
            plan,
            self._checkers,
            self._is_current,
        )
        self._members[name] = member
        await member.run(self._world.faults_over, self._settled)

    def _is_current(self, name: str) -> bool:
        """True if the coordinator agrees that a member owns its partitions."""
        world, member = self._world, self._members.get(name)
        if member is None or not world.broker.running:
            return False
        metadata = member.consumer.group_metadata()
        for shard in shards_of(world.broker.server.node):
            consumer, classic = shard.consumers.get(GROUP), shard.groups.get(GROUP)
            if consumer is not None:
                known = consumer.members.get(metadata.member_id)
                # An absent static member has revoked what it was asked to revoke.
                return known is not None and known.epoch != LEAVE_STATIC_EPOCH
            if classic is not None and metadata.member_id in classic.members:
                # A static member that missed a join phase is kept, without its partitions.
                static = member.plan.instance_id is not None
                return not static or metadata.generation_id == classic.generation
        return False

    # --- the others ---

    async def _produce(self) -> None:
        world, random = self._world, self._random
        async with Producer(
            bootstrap_servers=world.broker.bootstrap,
            request_timeout_ms=1_500,
            delivery_timeout_ms=60_000,
            metadata_max_age_ms=700,
        ) as producer:
            number = 0
            while not world.faults_over.is_set():
                number += 1
                value = f"{number}".encode()
                try:
                    await producer.send(_TOPIC, value, value)
                except OdradekError as problem:
                    world.note("producer", f"{problem}")
                await world.sleep(random.choice((5, 50, 100)))
        self._all_sent.set()

    async def _grow(self) -> None:
        """Add partitions to the topic, up to twice."""
        world, random = self._world, self._random
        for _ in range(random.choice((0, 1, 2))):
            await world.sleep(random.randrange(3_000))
            if self._partitions == _PARTITIONS_MAX or world.faults_over.is_set():
                return
            count = random.randint(self._partitions + 1, _PARTITIONS_MAX)
            try:
                await self._admin.create_partitions({_TOPIC: count})
            except OdradekError as problem:
                world.note("admin", f"to grow to {count} partitions: {problem}")
                continue
            world.note("admin", f"the topic has {count} partitions")
            self._partitions = count

    async def _reset(self) -> None:
        """Let an administrator reset offsets. The group must be empty, so in most runs all members
        leave before the reset."""
        world, random = self._world, self._random
        for _ in range(random.choice((0, 1, 1, 2))):
            await world.sleep(random.randrange(500, 2_000))
            self._away = random.random() < 0.9
            for member in self._members.values():
                if self._away:
                    member.leave()
            for _ in range(20):
                await world.sleep(random.randrange(200))
                if world.faults_over.is_set() or await self._set_back():
                    break
            self._away = False

    async def _set_back(self) -> bool:
        """Reset the offset of a partition. Returns True if the coordinator accepted the reset."""
        world, random, committed = self._world, self._random, self._checkers.committed
        partition, offset = random.randrange(self._partitions), random.randrange(3)
        name = f"{_TOPIC}-{partition}"
        if committed.least(name) < offset:
            return False
        committed.reset_may_come(name)
        try:
            await self._admin.alter_group_offsets(GROUP, {(_TOPIC, partition): offset})
        except InvalidGroup:
            committed.not_reset(name)
        except OdradekError as problem:
            world.note("admin", f"to set {name} back: {problem}")
        else:
            world.note("admin", f"has set {name} back to {offset}")
            committed.reset(name, offset)
            if self._away:
                await self._check_set_back(TopicPartition(_TOPIC, partition), offset)
            return True
        return False

    async def _check_set_back(self, place: TopicPartition, offset: int) -> None:
        """Check that the reset offset is unchanged: no member existed that could have committed
        since."""
        try:
            found = (await self._admin.list_group_offsets(GROUP, [place]))[place]
        except OdradekError as problem:
            self._world.note("admin", f"cannot see {place}: {problem}")
            return
        if found is None or found.offset != offset:
            self._world.violated("reset", f"{place} was set back to {offset}, and {found} is there")

    async def _observe(self) -> None:
        """Check the group's committed offsets, and its state in the coordinator."""
        world, checkers = self._world, self._checkers
        while True:
            await world.sleep(_OBSERVE_EVERY_MS)
            self._check_coordinator()
            beginning = checkers.committed.begin()
            try:
                found = await self._admin.list_group_offsets(GROUP)
            except OdradekError as problem:
                world.note("observer", f"{problem}")
                continue
            offsets = {
                f"{each.topic}-{each.partition}": at.offset
                for each, at in found.items()
                if at is not None
            }
            for violation in checkers.committed.observed(offsets, beginning):
                world.violated("committed", violation)
            for violation in checkers.processed.committed(offsets):
                world.violated("processed", violation)

    def _check_coordinator(self) -> None:
        broker = self._world.broker
        if broker.running and hasattr(broker.server, "node"):
            for problem in check_assignments(broker.server.node):
                self._world.violated("assignment", problem)

    # --- the end ---

    async def _settle(self) -> None:
        """Wait until the group is stable and has read and committed everything."""
        world = self._world
        await world.faults_over.wait()
        await self._all_sent.wait()
        grow_at_ms = world.now_ms + _GROW_AFTER_MS
        until_ms = world.now_ms + _SETTLE_MS
        missing = "nothing was asked"
        while world.now_ms < until_ms:
            await world.sleep(300)
            try:
                missing = await self._what_is_missing()
                if self._static and world.now_ms > grow_at_ms and self._partitions_left_out:
                    await self._admin.create_partitions({_TOPIC: self._partitions + 1})
                    self._partitions += 1
                    grow_at_ms = until_ms
            except OdradekError as problem:
                missing = str(problem)
            if not missing:
                break
        else:
            world.violated("liveness", f"{_SETTLE_MS} ms after the faults: {missing}")
        self._settled.set()

    async def _what_is_missing(self) -> str:
        """The reason why the group is not finished; empty when it is."""
        group = (await self._admin.describe_groups([GROUP]))[GROUP]
        clients = sorted(member.client_id for member in group.members)
        if group.state != "Stable" or clients != sorted(self._members):
            return f"the group is {group.state} with members {clients} of {sorted(self._members)}"
        topic = (await self._admin.describe_topics([_TOPIC]))[_TOPIC]
        # A CreatePartitions request without a response may have added partitions.
        self._partitions = len(topic.partitions)
        places = [TopicPartition(_TOPIC, index) for index in range(self._partitions)]
        held = sorted(each for member in group.members for each in member.assignment)
        self._partitions_left_out = held != places
        if held != places:
            return f"the members have {held} of {len(places)} partitions"
        ends = await self._admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
        committed = await self._admin.list_group_offsets(GROUP, places)
        for place in places:
            at, end = committed[place], ends[place]
            if end is not None and (0 if at is None else at.offset) < end.offset:
                return f"{place}: {at} of {end.offset} is committed"
        return ""

    async def check(self) -> Iterator[str]:
        """Check that the group has read everything in the log."""
        logs = await read_all(self._world.broker.bootstrap, _TOPIC, self._partitions)
        return self._checkers.processed.committed(
            {partition: len(records) for partition, records in logs.items()}
        )
