"""Four workloads with topics, transactions, groups and administrators, in one broker at the same
time.

The broker has small segments and two data directories, and its durability changes between starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar, cast

from tests.sim.workloads.admin_churn import AdminChurnWorkload
from tests.sim.workloads.base import (
    ALL_FAULTS,
    OF_BOTH_DURABILITIES,
    OF_SEVERAL_DIRECTORIES,
    Workload,
)
from tests.sim.workloads.compacted_churn import CompactedChurnWorkload
from tests.sim.workloads.copy import TransactionalCopyWorkload
from tests.sim.workloads.retention import RetentionWorkload

from odradek_testkit.simulation.world import World


class _HastyChurnWorkload(AdminChurnWorkload):
    """Changes in quick succession, so that more of them affect the open transactions of a topic."""

    looks_first: ClassVar[bool] = False


#: The four workloads, each with topics of its own. In `state` records are deleted, and the topic is
#: deleted and created again. In `events` records are deleted. The topics `t0`, `t1` and so on are
#: created and deleted. The topic `orders` is copied.
_PARTS: tuple[type[Workload], ...] = (
    CompactedChurnWorkload,
    RetentionWorkload,
    _HastyChurnWorkload,
    TransactionalCopyWorkload,
)


class EverythingWorkload:
    """Four workloads in one broker at the same time. The checks of each workload must pass as if
    it ran alone."""

    name: ClassVar[str] = "everything"
    settings: ClassVar[dict[str, object]] = {
        **{name: value for part in _PARTS for name, value in part.settings.items()},
        "log.dirs": "data,second",
        "log.segment.bytes": 1_500,
    }
    #: A third of the faults concern durability and directories.
    faults: ClassVar[tuple[str, ...]] = (
        ALL_FAULTS
        + OF_BOTH_DURABILITIES * (len(ALL_FAULTS) // 5)
        + OF_SEVERAL_DIRECTORIES * (len(ALL_FAULTS) // 10)
    )

    def __init__(self, world: World) -> None:
        self._parts = [part(cast("World", _Part(world, part.name))) for part in _PARTS]

    async def prepare(self) -> None:
        """Prepare the four workloads, one after the other."""
        for part in self._parts:
            await part.prepare()

    async def work(self) -> None:
        """Run the four workloads until each has ended."""
        await asyncio.gather(*(part.work() for part in self._parts))

    async def check(self) -> Iterator[str]:
        """Run the checks of the four workloads."""
        problems: list[str] = []
        for part in self._parts:
            problems += [f"{part.name}: {problem}" for problem in await part.check()]
        return iter(problems)


class _Part:
    """The world of one of the four workloads: it has its own random numbers, and shares everything
    else with the worlds of the others."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    def chance(self, name: str) -> Random:
        """A source of random numbers that no other workload uses."""
        return self._world.chance(f"{self._name}/{name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)
