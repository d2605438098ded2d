"""The interface of a workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

from odradek.simulation.faults import FAULTS
from odradek.simulation.world import World

#: How long clients work while faults happen.
DURATION_MS = 4_000


class Workload(Protocol):
    """One run's clients. Made anew for each seed."""

    #: As it is called on the command line.
    name: ClassVar[str]
    #: The broker's settings.
    settings: ClassVar[dict[str, object]]
    #: Which faults may happen to it.
    faults: ClassVar[tuple[str, ...]]

    def __init__(self, world: World) -> None: ...

    async def prepare(self) -> None:
        """Before the first fault: topics, for example."""
        ...

    async def work(self) -> None:
        """Until `world.faults_over`, and then to the end of what was begun. It must end."""
        ...

    async def check(self) -> Iterator[str]:
        """When everything has ended and the broker runs: what does not hold."""
        ...


#: Nothing but this can happen to several directories only.
OF_SEVERAL_DIRECTORIES = ("failed-directory",)
#: Nothing but this switches the durability between starts.
OF_BOTH_DURABILITIES = ("switch-durability", "cut-power-at-start")
ALL_FAULTS = tuple(
    kind for kind in FAULTS if kind not in OF_SEVERAL_DIRECTORIES + OF_BOTH_DURABILITIES
)
