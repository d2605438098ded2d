"""A compacted topic that is written, read, cleaned, trimmed, deleted and created again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tests.sim.checkers.deleted import Deletions
from tests.sim.checkers.latest import Fate
from tests.sim.workloads.clients import keep_running
from tests.sim.workloads.compaction import CompactedTopic, CompactionWorkload

from odradek_client.admin import LATEST, Admin, ConfigResource
from odradek_client.errors import OdradekError
from odradek_testkit.simulation.world import World

_CHANGES_MAX = 10
#: Values of cleanup.policy. With "compact", DeleteRecords is refused; with "delete", compaction
#: stops.
_POLICIES = ("compact,delete", "compact", "delete")


class CompactedChurnWorkload(CompactionWorkload):
    """The clients of `compaction`, and an administrator who makes one change at a time.

    If the outcome of a change is unknown, it may still take effect: the administrator stops using
    that topic and continues with another name.
    """

    name: ClassVar[str] = "compacted-churn"
    policy: ClassVar[Mapping[str, str]] = {
        "cleanup.policy": _POLICIES[0],
        # Records do not expire by age: only DeleteRecords moves the log start.
        "retention.ms": "-1",
        "file.delete.delay.ms": "500",
    }

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._names = 1
        #: True while a deletion or creation of the topic has no known outcome.
        self._changing = False
        #: The log starts that an unanswered DeleteRecords may still set.
        self._doubtful: dict[str, int] = {}

    async def _administer(self) -> None:
        await keep_running(self._world, "admin", 1, self._change)

    async def _change(self, name: str) -> None:
        if self._changing:
            self._leave_alone()
        random = self._random
        async with Admin(
            bootstrap_servers=self._world.broker.bootstrap, request_timeout_ms=2_000
        ) as admin:
            for _ in range(random.randint(1, _CHANGES_MAX)):
                await self._world.sleep(random.choice((20, 100, 400)))
                kinds = (*[self._delete_records] * 3, self._set_policy, self._make_anew)
                kind = random.choice(kinds) if self._topic.life else self._make_anew
                try:
                    await kind(admin, name)
                except OdradekError as problem:
                    self._world.note(name, f"does not know what became of it: {problem}")
                    if self._changing:
                        self._leave_alone()

    def _leave_alone(self) -> None:
        self._changing = False
        self._topic.life = 0
        self._problems += self._topic.deletions.problems
        self._names += 1
        self._topic = CompactedTopic(f"state{self._names}", life=0)

    async def _delete_records(self, admin: Admin, name: str) -> None:
        topic = self._topic
        place = self._random.choice(topic.places)
        which = f"{place.topic}-{place.partition}"
        end = (await admin.list_offsets({place: LATEST}))[place]
        offset = self._random.randint(0, end.offset if end is not None else 0)
        topic.deletions.saw_start(which, offset)
        self._doubtful[which] = max(offset, self._doubtful.get(which, 0))
        start = (await admin.delete_records({place: offset}))[place]
        topic.deletions.deleted(which, start)
        self._world.note(name, f"{which} starts at {start}")

    async def _set_policy(self, admin: Admin, name: str) -> None:
        policy = self._random.choice(_POLICIES)
        self._world.note(name, f"cleanup.policy={policy}")
        resource = ConfigResource.topic(self._topic.name)
        await admin.alter_configs({resource: {"cleanup.policy": policy}})

    async def _make_anew(self, admin: Admin, name: str) -> None:
        """Delete the topic if it exists, and create another one with its name."""
        topic, lives = self._topic, self._topic.removals + 1
        self._changing = True
        if topic.life:
            self._world.note(name, f"deletes {topic.name}")
            topic.life = 0
            await admin.delete_topics([topic.name])
            topic.removals = lives
            self._note_removal(topic)
            await self._world.sleep(self._random.choice((0, 0, 20, 500)))
        await self._create(admin, topic)
        self._problems += topic.deletions.problems
        topic.deletions = Deletions()
        for place, start in self._doubtful.items():
            topic.deletions.saw_start(place, start)
        topic.life = topic.removals + 1
        self._changing = False
        self._world.note(name, f"has made {topic.name} anew")

    def _note_removal(self, topic: CompactedTopic) -> None:
        """Called when all finished writes to a deleted topic are removed."""
        for writes in self._written.values():
            if writes.place.rpartition("-")[0] != topic.name:
                continue
            for write in writes.writes:
                if write.over and not write.deletion:
                    write.deletion = topic.removals
                    if write.fate is not Fate.ABORTED:
                        write.fate = Fate.DELETED
