"""The simulated cluster of a user's test, and the runs of the test with its seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from random import Random
from typing import Any

from odradek_testkit.simulation.faults import FAULTS, draw_faults, play
from odradek_testkit.simulation.simulate import simulate
from odradek_testkit.simulation.world import World

#: Faults begin within this time.
FAULTS_WITHIN_MS = 10_000
#: The virtual time after which a test that has not ended fails with TimeoutError.
LIMIT_S = 3_600
_TRACE_TAIL = 40
#: The kinds of faults for `faults=True`, without those that kill the test's own code or need
#: several data directories.
_KINDS = tuple(kind for kind in FAULTS if kind not in ("kill-client", "failed-directory"))


class SimulatedCluster:
    """A broker on virtual time. Clients in the same test reach the broker at `bootstrap`."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def bootstrap(self) -> str:
        """The address of the first listener, for `bootstrap_servers`."""
        return self._world.broker.bootstrap

    @property
    def listeners(self) -> dict[str, str]:
        """The addresses of all listeners, by name."""
        return self._world.broker.listeners

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self._world.seed

    @property
    def now_ms(self) -> int:
        """The virtual milliseconds since the test began."""
        return self._world.now_ms

    def random(self, name: str = "test") -> Random:
        """Random numbers that depend on the seed."""
        return self._world.chance(f"user/{name}")

    def note(self, text: str) -> None:
        """Add a line to the trace that a failure shows."""
        self._world.note("test", text)

    async def kill_broker(self, *, power_lost: bool = False, down_ms: int = 0) -> None:
        """Kill the broker, and start it again after `down_ms`. `power_lost`: unsynced data is also
        lost."""
        await self._world.kill_broker(power_lost=power_lost, down_ms=down_ms)

    async def restart_broker(self, down_ms: int = 0) -> None:
        """Stop the broker cleanly, and start it again after this time."""
        await self._world.restart_broker(down_ms)

    def start_client(
        self, name: str, main: Callable[[], Coroutine[Any, Any, Any]]
    ) -> asyncio.Task[Any]:
        """Run `main` as a simulated process of its own, which `kill_client` can end. Returns the
        task of `main`."""
        return self._world.start_client(name, main)

    def kill_client(self, name: str) -> None:
        """Kill a client: none of its code runs any more, and its connections are reset. KeyError if
        it is not running."""
        self._world.note(name, "is killed")
        self._world.clients[name].kill()

    def cut_connections(self) -> None:
        """Reset every connection."""
        self._world.network.cut_all()

    def jump_clock(self, by_ms: int) -> None:
        """Set the broker's wall clock, forwards or back."""
        self._world.broker.clock.jump(by_ms)


def run_test(
    name: str,
    test: Callable[[SimulatedCluster], Awaitable[Any]],
    seeds: Mapping[int, None] | range | list[int],
    *,
    faults: bool | tuple[str, ...] = False,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Run a test once for each seed. `faults`: True for all kinds, or the names of some (FAULTS).

    The first seed that fails raises the exception of the test, with a note with the seed, its
    faults and the end of its trace. Raises ValueError for an unknown kind of fault.
    """
    kinds = _KINDS if faults is True else tuple(faults or ())
    if unknown := [kind for kind in kinds if kind not in _KINDS]:
        raise ValueError(f"no such fault: {', '.join(unknown)}; there are {', '.join(_KINDS)}")
    for seed in seeds:
        _run_one(name, test, seed, kinds, settings)


def _run_one(
    name: str,
    test: Callable[[SimulatedCluster], Awaitable[Any]],
    seed: int,
    kinds: tuple[str, ...],
    settings: Mapping[str, object] | None,
) -> None:
    worlds: list[World] = []
    random = Random(f"{seed}/faults/{name}")
    drawn = draw_faults(random, FAULTS_WITHIN_MS, kinds=kinds) if kinds else []

    async def story(world: World) -> None:
        await world.start_broker()
        playing = asyncio.ensure_future(play(world, drawn, 0))
        async with asyncio.timeout(LIMIT_S):
            await test(SimulatedCluster(world))
        playing.cancel()

    try:
        simulate(name, seed, story, settings, explain=True, begun=worlds.append)
    except BaseException as problem:
        lines = [f"simulated with seed {seed}; faults:", *(f"  {fault}" for fault in drawn)]
        if worlds:
            lines += ["the end of its trace:", *worlds[0].trace[-_TRACE_TAIL:]]
        problem.add_note("\n".join(lines))
        raise
