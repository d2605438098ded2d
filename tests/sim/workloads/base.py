"""The interface of a workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

from odradek_testkit.simulation.faults import FAULTS
from odradek_testkit.simulation.world import World

#: The time for which clients work while faults happen.
DURATION_MS = 4_000


class Workload(Protocol):
    """The clients of one run, created for each seed."""

    #: The name on the command line.
    name: ClassVar[str]
    #: The broker's settings.
    settings: ClassVar[dict[str, object]]
    #: The faults that may happen to the broker.
    faults: ClassVar[tuple[str, ...]]

    def __init__(self, world: World) -> None: ...

    async def prepare(self) -> None:
        """Prepare before the first fault, by creating topics for example."""
        ...

    async def work(self) -> None:
        """Let the clients work until `world.faults_over`, and then finish what they have begun."""
        ...

    async def check(self) -> Iterator[str]:
        """Yield violations. At this time the clients have ended, and the broker runs."""
        ...


class ChosenWorkload:
    """A workload that the seed chooses among several."""

    name: ClassVar[str]
    settings: ClassVar[dict[str, object]]
    faults: ClassVar[tuple[str, ...]]
    #: The workloads to choose from.
    kinds: ClassVar[tuple[type[Workload], ...]]

    def __init__(self, world: World) -> None:
        self.chosen = world.chance(self.name).choice(self.kinds)(world)

    async def prepare(self) -> None:
        await self.chosen.prepare()

    async def work(self) -> None:
        await self.chosen.work()

    async def check(self) -> Iterator[str]:
        return await self.chosen.check()


#: The faults that need several data directories.
OF_SEVERAL_DIRECTORIES = ("failed-directory",)
#: The faults for a broker whose durability changes between starts.
OF_BOTH_DURABILITIES = ("switch-durability", "cut-power-at-start")
#: The faults of requests that only members of share groups and streams groups send.
OF_NEW_GROUPS = ("lost-group-answers", "refused-group-requests")
#: The faults that happen after a dead letter of a share group was written.
OF_DEAD_LETTERS = ("crash-behind-a-dead-letter", "refused-state-behind-a-dead-letter")
#: The faults that happen at certain states of segments, after a roll or after a stop.
OF_SMALL_SEGMENTS = ("cut-power-behind-a-roll", "crash-behind-a-stop")
#: The faults of a disk that is short of room, including while the broker starts.
OF_LITTLE_ROOM = ("last-bytes", "scarce-room")
_OF_SOME = (
    OF_SEVERAL_DIRECTORIES
    + OF_BOTH_DURABILITIES
    + OF_NEW_GROUPS
    + OF_DEAD_LETTERS
    + OF_SMALL_SEGMENTS
    + OF_LITTLE_ROOM
)
ALL_FAULTS = tuple(kind for kind in FAULTS if kind not in _OF_SOME)
