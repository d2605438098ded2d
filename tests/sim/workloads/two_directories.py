"""Other workloads on two data directories, one of which may fail until the broker is restarted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tests.sim.workloads.admin_churn import AdminChurnWorkload
from tests.sim.workloads.base import ALL_FAULTS, OF_SEVERAL_DIRECTORIES, Workload
from tests.sim.workloads.groups import GroupsWorkload
from tests.sim.workloads.produce import ProduceWorkload
from tests.sim.workloads.retention import RetentionWorkload

from odradek.simulation.world import World

_KINDS: tuple[type[Workload], ...] = (
    ProduceWorkload,
    RetentionWorkload,
    AdminChurnWorkload,
    GroupsWorkload,
)


class TwoDirectoriesWorkload:
    """Another workload, which the seed chooses."""

    name: ClassVar[str] = "two-directories"
    settings: ClassVar[dict[str, object]] = {
        **{name: value for kind in _KINDS for name, value in kind.settings.items()},
        "log.dirs": "data,second",
    }
    #: A quarter of all faults is a directory that fails.
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS + OF_SEVERAL_DIRECTORIES * (len(ALL_FAULTS) // 3)

    def __init__(self, world: World) -> None:
        self._workload = world.chance("two-directories").choice(_KINDS)(world)

    async def prepare(self) -> None:
        """See the other workload."""
        await self._workload.prepare()

    async def work(self) -> None:
        """See the other workload."""
        await self._workload.work()

    async def check(self) -> Iterator[str]:
        """See the other workload."""
        return await self._workload.check()
