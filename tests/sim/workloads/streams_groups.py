"""Members of one streams group, scripted because there is no client for such groups.

They join with a topology of two subtopologies, run and give back tasks, die, leave and join again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.sim.checkers.assignment import shards_of
from tests.sim.checkers.streams_tasks import (
    TaskOwners,
    Tasks,
    check_streams_groups,
    missing_tasks,
)
from tests.sim.workloads.base import ALL_FAULTS, OF_NEW_GROUPS
from tests.sim.workloads.clients import keep_running

from odradek_client.admin import Admin, ConfigResource, NewTopic
from odradek_client.errors import OdradekError
from odradek_protocol.common_structs import (
    InternalTopicInfo,
    StreamsSubtopology,
    StreamsTaskIds,
)
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsTopology,
)
from odradek_testkit.simulation.world import World

GROUP = "counts"
_INPUT, _REPARTITION = "words", "counts-by-word-repartition"
_CHANGELOGS = ("counts-words-changelog", "counts-store-changelog")
_PARTITIONS = 3
_TASKS = [(each, index) for each in ("0", "1") for index in range(_PARTITIONS)]
_KEY_TYPE_GROUP = 0
_SESSION_MS = 1_000
_REBALANCE_TIMEOUT_MS = 2_000
_SETTLE_MS = 60_000
_OBSERVE_EVERY_MS = 50
_FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


def _topology() -> StreamsTopology:
    first, second = (
        InternalTopicInfo(name=name, partitions=0, replication_factor=0) for name in _CHANGELOGS
    )
    repartition = InternalTopicInfo(name=_REPARTITION, partitions=0, replication_factor=0)
    return StreamsTopology(
        epoch=0,
        subtopologies=[
            StreamsSubtopology(
                subtopology_id="0",
                source_topics=[_INPUT],
                repartition_sink_topics=[_REPARTITION],
                state_changelog_topics=[first],
            ),
            StreamsSubtopology(
                subtopology_id="1",
                repartition_source_topics=[repartition],
                state_changelog_topics=[second],
            ),
        ],
    )


class StreamsMember:
    """A thread of a Streams application: it sends heartbeats, and reports its tasks whenever they
    have changed."""

    def __init__(
        self, world: World, name: str, process: str, member_id: str, owners: TaskOwners
    ) -> None:
        self._world = world
        self._random = world.chance(f"member/{name}")
        self._name = name
        self._process = process
        self.member_id = member_id
        self._owners = owners
        self._epoch = JOIN_EPOCH
        self._tasks = Tasks()
        self._reports = True

    async def run(self, beats: int | None, end: asyncio.Event) -> None:
        """Send heartbeats until `end`, at most `beats` of them (None: no limit). Then leave the
        group, or end without leaving."""
        world, random = self._world, self._random
        world.note(self._name, f"starts as {self.member_id} in {self._process}")
        async with Admin(
            bootstrap_servers=world.broker.bootstrap,
            request_timeout_ms=1_000,
            default_api_timeout_ms=2_000,
            client_id=self._name,
        ) as admin:
            while not end.is_set() and beats != 0:
                beats = None if beats is None else beats - 1
                try:
                    await self._beat(admin)
                except OdradekError as problem:
                    # The response may have been lost, so the next heartbeat reports the member's
                    # tasks.
                    self._reports = True
                    world.note(self._name, f"no answer: {problem}")
                await world.sleep(random.choice((20, 100, 200)))
                if beats is not None and random.random() < 0.02:
                    await world.sleep(_SESSION_MS + 500)
            self._run(Tasks())
            if random.random() < 0.7 or beats is None:
                self._epoch = LEAVE_EPOCH
                try:
                    await self._ask(admin, self._request())
                except OdradekError as problem:
                    world.note(self._name, f"leaving: {problem}")
            self._owners.ended(self.member_id)

    async def _beat(self, admin: Admin) -> None:
        answer = await self._ask(admin, self._request())
        code = ErrorCode.of(answer.error_code)
        if code in _FENCED:
            self._world.note(self._name, f"is fenced: {code.name}")
            self._owners.ended(self.member_id)
            self._tasks, self._epoch, self._reports = Tasks(), JOIN_EPOCH, True
        elif code is not ErrorCode.NONE:
            self._world.note(self._name, f"is refused: {code.name} {answer.error_message}")
            self._reports = True
            if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                admin.network.forget_coordinator(GROUP, _KEY_TYPE_GROUP)
            elif not code.retriable:
                self._world.violated("client", f"{self._name}: {code.name} {answer.error_message}")
        else:
            self._epoch, self._reports = answer.member_epoch, False
            if answer.active_tasks is not None:
                await self._take_up(
                    Tasks(_tasks(answer.active_tasks), _tasks(answer.standby_tasks))
                )

    async def _take_up(self, given: Tasks) -> None:
        """Give back tasks that are not assigned any more, which may take a while; then run the
        assigned ones."""
        kept = Tasks(self._tasks.active & given.active, self._tasks.standby & given.standby)
        if kept != self._tasks:
            await self._world.sleep(self._random.choice((0, 0, 50, 400)))
        self._reports = True
        self._run(given)

    def _run(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._world.note(
            self._name, f"epoch {self._epoch}: {sorted(tasks.active)}, {sorted(tasks.standby)}"
        )
        for problem in self._owners.runs(self.member_id, self._process, tasks):
            self._world.violated("tasks", problem)

    def _request(self) -> StreamsGroupHeartbeatRequest:
        joins = self._epoch == JOIN_EPOCH
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self._epoch
        )
        if joins:
            request.topology = _topology()
            request.process_id = self._process
            request.rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
        if joins or (self._reports and self._epoch != LEAVE_EPOCH):
            request.active_tasks = _ids(self._tasks.active)
            request.standby_tasks = _ids(self._tasks.standby)
            request.warmup_tasks = []
        return request

    async def _ask(
        self, admin: Admin, request: StreamsGroupHeartbeatRequest
    ) -> StreamsGroupHeartbeatResponse:
        answer: Any = await admin.requests.to_coordinator(GROUP, _KEY_TYPE_GROUP, request)
        return answer  # type: ignore[no-any-return]


def _tasks(ids: list[StreamsTaskIds] | None) -> set[tuple[str, int]]:
    return {(each.subtopology_id, index) for each in ids or () for index in each.partitions}


def _ids(tasks: set[tuple[str, int]]) -> list[StreamsTaskIds]:
    by_id: dict[str, list[int]] = {}
    for each_id, index in sorted(tasks):
        by_id.setdefault(each_id, []).append(index)
    return [
        StreamsTaskIds(subtopology_id=each_id, partitions=indexes)
        for each_id, indexes in by_id.items()
    ]


class StreamsGroupsWorkload:
    """The seed chooses the numbers of members and of standby replicas."""

    name: ClassVar[str] = "streams-groups"
    settings: ClassVar[dict[str, object]] = {
        "group.streams.min.session.timeout.ms": 100,
        "group.streams.session.timeout.ms": _SESSION_MS,
        "group.streams.min.heartbeat.interval.ms": 10,
        "group.streams.heartbeat.interval.ms": 100,
        "group.streams.initial.rebalance.delay.ms": 200,
        "group.streams.assignment.interval.ms": 100,
        "auto.create.topics.enable": "false",
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS + OF_NEW_GROUPS * 2

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._slots = self._random.randint(2, 4)
        self._replicas = self._random.choice((0, 1, 2))
        self._numbers = 0
        self._owners = TaskOwners(self._is_current)
        self._settled = asyncio.Event()

    async def prepare(self) -> None:
        """Create the source topic; the broker creates the others."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(_INPUT, _PARTITIONS)])
            setting = {"streams.num.standby.replicas": str(self._replicas)}
            await admin.alter_configs({ConfigResource.group(GROUP): setting})

    async def work(self) -> None:
        """Run members until the group runs all tasks after the faults."""
        observing = asyncio.ensure_future(self._observe())
        killing = asyncio.ensure_future(self._kill())
        await keep_running(self._world, "member", self._slots, self._live)
        last = [self._last(f"last-{number}") for number in range(self._slots)]
        await self._settle()
        await asyncio.gather(*last)
        for task in (observing, killing):
            task.cancel()
        await asyncio.gather(observing, killing, return_exceptions=True)

    async def _live(self, name: str) -> None:
        await self._run(name, self._random.randint(5, 40), self._world.faults_over)

    async def _run(self, name: str, beats: int | None, end: asyncio.Event) -> None:
        self._numbers += 1
        # Two members may be threads of the same process.
        process = f"process-{self._random.randrange(self._slots)}"
        member = StreamsMember(self._world, name, process, f"{name}-{self._numbers}", self._owners)
        await member.run(beats, end)

    def _last(self, name: str) -> asyncio.Task[None]:
        return self._world.start_client(name, lambda: self._run(name, None, self._settled))

    async def _kill(self) -> None:
        world, random = self._world, self._random
        while True:
            await world.sleep(random.choice((300, 1_000, 3_000)))
            living = [name for name in world.clients if name.startswith("member")]
            if living and not world.faults_over.is_set():
                name = random.choice(living)
                world.note(name, "dies")
                world.clients[name].kill()

    def _is_current(self, member_id: str) -> bool:
        """True if the coordinator still has the member, so that its tasks must obey the rules."""
        broker = self._world.broker
        if not broker.running or not hasattr(broker.server, "node"):
            return False
        for shard in shards_of(broker.server.node):
            group = shard.streams.get(GROUP)
            if group is not None and member_id in group.members:
                return True
        return False

    async def _observe(self) -> None:
        world = self._world
        while True:
            await world.sleep(_OBSERVE_EVERY_MS)
            if world.broker.running and hasattr(world.broker.server, "node"):
                for problem in check_streams_groups(world.broker.server.node):
                    world.violated("assignment", problem)

    async def _settle(self) -> None:
        world = self._world
        until_ms = world.now_ms + _SETTLE_MS
        missing = "nothing was looked at"
        while missing and world.now_ms < until_ms:
            await world.sleep(300)
            missing = "the broker is down"
            if world.broker.running and hasattr(world.broker.server, "node"):
                missing = missing_tasks(world.broker.server.node, GROUP, _TASKS)
        if missing:
            world.violated("liveness", f"{_SETTLE_MS} ms after the faults: {missing}")
        self._settled.set()

    async def check(self) -> Iterator[str]:
        """Check that the internal topics exist."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            names = [_REPARTITION, *_CHANGELOGS]
            described = await admin.describe_topics(names)
        return iter(
            [
                f"{name} has {len(found.partitions)} partitions"
                for name, found in described.items()
                if len(found.partitions) != _PARTITIONS
            ]
        )
