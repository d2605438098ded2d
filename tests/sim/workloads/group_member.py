"""A member of the group of the `groups` workload: the shipped consumer, with random behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.sim.checkers.committed import CommittedChecker
from tests.sim.checkers.ownership import OwnershipChecker
from tests.sim.checkers.processed import ProcessedChecker

from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.errors import BadAnswer, IllegalState, OdradekError
from odradek_client.structs import TopicPartition
from odradek_testkit.simulation.world import World

#: The time for which the coordinator waits for a silent member.
SESSION_TIMEOUT_MS = 1_000
HEARTBEAT_INTERVAL_MS = 200
_MAX_POLL_INTERVAL_MS = 2_000
_AUTO_COMMIT_INTERVAL_MS = 150


@dataclass
class Plan:
    """The life of one member. `polls`: the number of polls after which the member leaves."""

    topic: str
    protocol: str
    assignors: tuple[str, ...]
    instance_id: str | None
    auto_commit: bool
    polls: int
    unsubscribes: bool


@dataclass
class Checkers:
    """The checkers that see a member's events."""

    ownership: OwnershipChecker = field(default_factory=OwnershipChecker)
    committed: CommittedChecker = field(default_factory=CommittedChecker)
    processed: ProcessedChecker = field(default_factory=ProcessedChecker)


class Member(RebalanceListener):
    """A process with a consumer. Once `finish` is set, the member stays until `end` is set, and
    commits everything."""

    def __init__(
        self,
        world: World,
        random: Random,
        name: str,
        group_id: str,
        plan: Plan,
        checkers: Checkers,
        is_current: Any,
    ) -> None:
        self._world = world
        self._random = random
        self.name = name
        self.plan = plan
        self._checkers = checkers
        self._is_current = is_current
        self.ended = False
        #: The next offset that this member will read, for each of its partitions.
        self.next_offsets: dict[TopicPartition, int] = {}
        self._dirty = False
        own: dict[str, Any] = {"group_protocol": "consumer"}
        if plan.protocol == "classic":
            own = {
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
                "partition_assignment_strategy": plan.assignors,
            }
        self.consumer = Consumer(
            bootstrap_servers=world.broker.bootstrap,
            group_id=group_id,
            group_instance_id=plan.instance_id,
            client_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=plan.auto_commit,
            auto_commit_interval_ms=_AUTO_COMMIT_INTERVAL_MS,
            max_poll_interval_ms=_MAX_POLL_INTERVAL_MS,
            max_poll_records=random.choice((1, 5, 500)),
            fetch_max_wait_ms=400,
            metadata_max_age_ms=700,
            request_timeout_ms=1_500,
            default_api_timeout_ms=4_000,
            **own,
        )

    def leave(self) -> None:
        """Leave after this poll, unless `finish` is set."""
        self.plan.polls = 0

    async def run(self, finish: Any, end: Any) -> None:
        """Read and commit for the planned number of polls, or, if `finish` is set, until `end` is
        set."""
        plan, world = self.plan, self._world
        world.note(self.name, f"starts: {plan}")
        polls = 0
        try:
            await self.consumer.start()
            self.consumer.subscribe([plan.topic], listener=self)
            while not end.is_set() and (finish.is_set() or polls < plan.polls):
                polls += 1
                await self._step(finish.is_set())
                if plan.unsubscribes and polls == plan.polls // 2:
                    world.note(self.name, "unsubscribes, and comes back")
                    await self.consumer.unsubscribe()
                    self.consumer.subscribe([plan.topic], listener=self)
        except OdradekError as problem:
            self._told(problem, "gives up")
        try:
            await self.consumer.close(timeout_ms=2_000)
        except OdradekError as problem:
            self._told(problem, "closing")
        self._release(self._checkers.ownership.held_by(self.name))
        world.note(self.name, "ends")
        self.ended = True

    async def _step(self, finishing: bool) -> None:
        random = self._random
        records = await self.consumer.poll(timeout_ms=random.choice((50, 200)))
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._checkers.processed.read(_name(partition), record.offset)
            self.next_offsets[partition] = record.offset + 1
            self._dirty = True
        if not finishing:
            # A stall may be longer than `max.poll.interval.ms`.
            stalls = random.random() < 0.02
            await self._world.sleep(2_500 if stalls else random.choice((0, 0, 20, 100, 300)))
        if not self._dirty or self.plan.auto_commit:
            return
        how = random.choice(("all", "some")) if finishing else random.choice(_HOWS)
        if how == "soon":
            self.commit_soon()
        elif how != "not":
            await self._commit(how)

    async def _commit(self, how: str) -> None:
        offsets = dict(self.next_offsets)
        given: Any = None if how == "all" else offsets
        try:
            await self.consumer.commit(given, timeout_ms=3_000)
        except OdradekError as problem:
            self._told(problem, "commit")
            return
        self._dirty = False
        self._acknowledged(offsets)

    def commit_soon(self) -> None:
        """Start a commit of the positions after all records read so far, and do not wait for its
        result."""
        offsets = dict(self.next_offsets)
        task = self.consumer.commit_soon(self._random.choice((None, offsets)))  # type: ignore[arg-type]

        def done(task: Any) -> None:
            problem = None if task.cancelled() else task.exception()
            if task.cancelled() or problem is not None:
                self._told(problem, "commit in the background")
            else:
                self._acknowledged(offsets)

        task.add_done_callback(done)

    def _acknowledged(self, offsets: dict[TopicPartition, int]) -> None:
        self._world.note(self.name, f"has committed {_by_name(offsets)}")
        for partition, offset in offsets.items():
            self._checkers.committed.acknowledged(_name(partition), offset, self.name)

    def _told(self, problem: BaseException | None, what: str) -> None:
        self._world.note(self.name, f"{what}: {type(problem).__name__}: {problem}")
        if problem is not None and (
            isinstance(problem, IllegalState | BadAnswer) or not isinstance(problem, OdradekError)
        ):
            self._world.violated("client", f"{self.name}, {what}: {problem!r}")

    # --- RebalanceListener ---

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """Record the assignment: all partitions now belong to this generation."""
        metadata = self.consumer.group_metadata()
        held = sorted(self.consumer.assignment())
        generation, identity = metadata.generation_id, metadata.member_id
        self._world.note(
            self.name, f"has {' '.join(map(_name, held)) or 'nothing'} in generation {generation}"
        )
        for partition in partitions:
            self.next_offsets.pop(partition, None)
        for problem in self._checkers.ownership.assigned(
            self.name,
            self.plan.instance_id or identity,
            generation,
            [_name(each) for each in held],
            self._is_current,
        ):
            self._world.violated("ownership", problem)
        await self._sleep_a_while()

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Commit for the last time."""
        self._world.note(self.name, f"gives up {' '.join(sorted(map(_name, partitions)))}")
        await self._sleep_a_while()
        if self._dirty and not self.plan.auto_commit and self._random.random() < 0.7:
            await self._commit("some")
        self._release([_name(each) for each in sorted(partitions)])

    async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        """Record the loss: other members may own the partitions already."""
        self._world.note(self.name, f"has lost {' '.join(sorted(map(_name, partitions)))}")
        self._release([_name(each) for each in sorted(partitions)])

    async def _sleep_a_while(self) -> None:
        await self._world.sleep(self._random.choice((0, 0, 0, 5, 100, 300)))

    def _release(self, partitions: list[str]) -> None:
        self._checkers.ownership.released(self.name, partitions)
        for partition in list(self.next_offsets):
            if _name(partition) in partitions:
                del self.next_offsets[partition]


_HOWS = ("all", "some", "soon", "soon", "not")


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _by_name(offsets: dict[TopicPartition, int]) -> str:
    return ", ".join(f"{_name(each)} {offset}" for each, offset in sorted(offsets.items()))
