"""Topics that are deleted and created again, on a disk that is short of room, while a group has
offsets in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tests.sim.workloads.admin_churn import AdminChurnWorkload
from tests.sim.workloads.base import ALL_FAULTS, OF_LITTLE_ROOM, OF_SEVERAL_DIRECTORIES

from odradek_client.admin import Admin
from odradek_testkit.simulation.world import World

_MARKED = "marked"
_CHANCE = 0.7


class RecreatedTopicsWorkload(AdminChurnWorkload):
    """As `admin-churn`, with a group that nobody joins. The administrator sets its offsets, each to
    a number that is used once. An offset must never be shown for another topic than the one that it
    was set for."""

    name: ClassVar[str] = "recreated-topics"
    settings: ClassVar[dict[str, object]] = {
        **AdminChurnWorkload.settings,
        "offsets.topic.num.partitions": 1,
        "log.dirs": "data,second",
    }
    #: Half of the faults are a shortage of room, or a restart.
    faults: ClassVar[tuple[str, ...]] = (
        ALL_FAULTS
        + OF_SEVERAL_DIRECTORIES * 2
        + (*OF_LITTLE_ROOM, "kill-broker", "cut-power") * (len(ALL_FAULTS) // 4)
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._marks = world.chance("marks")
        #: The number that an offset was set to -> the topic's id.
        self._set_for: dict[int, bytes] = {}

    async def change(self, admin: Admin, name: str) -> None:
        self._problems += await self._check_offsets(admin)
        for topic in list(self._topics):
            if topic.topic_id is not None and self._marks.random() < _CHANCE:
                number = 1_000 + len(self._set_for)
                self._set_for[number] = topic.topic_id
                self._changing = topic
                await admin.alter_group_offsets(_MARKED, {(topic.name, 0): number})
                self._changing = None
        await super().change(admin, name)

    async def _check_offsets(self, admin: Admin) -> list[str]:
        """The offsets of the group that were set for another topic of the same name."""
        present = {topic.name: topic.topic_id for topic in self._topics if topic.topic_id}
        found = await admin.list_group_offsets(_MARKED)
        return [
            f"{place} has the committed offset {each.offset} of a deleted topic of the same name"
            for place, each in found.items()
            if each is not None
            and place.topic in present
            and self._set_for.get(each.offset) != present[place.topic]
        ]

    async def check(self) -> Iterator[str]:
        """Also check the offsets of the group."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            self._problems += await self._check_offsets(admin)
        return await super().check()
