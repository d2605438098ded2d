"""One seed of one workload, from beginning to end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from pytest import MonkeyPatch
from tests.sim.checkers.client_queues import check_clients
from tests.sim.checkers.queues import check_empty, check_limits
from tests.sim.checkers.replayed import State, compare_with_disk, durable_state
from tests.sim.checkers.watermarks import WatermarkChecker
from tests.sim.workloads import WORKLOADS
from tests.sim.workloads.base import DURATION_MS, Workload

from odradek_broker import slices
from odradek_testkit.simulation.faults import ScheduledFault, draw_faults, play
from odradek_testkit.simulation.simulate import DeadlockError, simulate
from odradek_testkit.simulation.world import LIVENESS_MS, Violation, World

_LOOK_EVERY_MS = 37
#: The share of the seeds in which only long work is interrupted.
_UNINTERRUPTED_SEEDS = 0.7
#: The time after which all sessions and open transactions of ended clients have timed out.
_DEADLINES_MS = 90_000


@dataclass(slots=True)
class Result:
    """The outcome of a seed. `violations` is empty if all is well."""

    workload: str
    seed: int
    faults: list[ScheduledFault]
    violations: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    virtual_ms: int = 0


def checkers_of(violations: Iterable[str]) -> set[str]:
    """The checkers that reported the violations: each violation begins with the name of its
    checker."""
    return {violation.partition(":")[0] for violation in violations}


def faults_of(workload: str, seed: int) -> list[ScheduledFault]:
    """The faults that a seed draws for a workload."""
    random = Random(f"{seed}/faults/{workload}")
    return draw_faults(random, DURATION_MS, kinds=WORKLOADS[workload].faults)


def run_seed(
    workload: str,
    seed: int,
    faults: Sequence[ScheduledFault] | None = None,
    *,
    explain: bool = False,
) -> Result:
    """Run a seed of a workload.

    `faults`: faults to use instead of those that the seed draws. `explain`: write the broker's
    decisions into the trace.
    """
    played = faults_of(workload, seed) if faults is None else list(faults)
    result = Result(workload, seed, played)

    def begun(world: World) -> None:
        result.violations, result.trace = world.violations, world.trace

    async def story(world: World) -> None:
        await _play(world, WORKLOADS[workload](world), played)

    try:
        with _turns(seed):
            result.virtual_ms = simulate(
                workload, seed, story, WORKLOADS[workload].settings, explain=explain, begun=begun
            )
    except (Violation, DeadlockError) as problem:
        result.violations.append(str(problem))
    except Exception as problem:  # noqa: BLE001 - the broker's start and the workload may raise any error
        result.violations.append(f"unexpected: {problem!r}")
    return result


@contextmanager
def _turns(seed: int) -> Iterator[None]:
    """Let all work of some seeds be interrupted at each pause, with a pause after each item (N-57).
    In the simulator a slice takes no time, so that else only very long work would be."""
    if Random(f"{seed}/turns").random() < _UNINTERRUPTED_SEEDS:
        yield
        return
    with MonkeyPatch.context() as patch:
        for name in ("TURN_STEPS", "SLICE_STEPS", "LATE_STEPS"):
            patch.setattr(slices, name, 1)
        patch.setattr(slices.in_pieces, "SIZE", 1)
        yield


async def _play(world: World, workload: Workload, faults: Sequence[ScheduledFault]) -> None:
    await world.start_broker()
    watching = asyncio.ensure_future(_watch(world))
    await workload.prepare()
    working = asyncio.ensure_future(workload.work())
    await play(world, faults, DURATION_MS)
    try:
        await asyncio.wait_for(working, LIVENESS_MS / 1000)
    except TimeoutError:
        world.violated("liveness", f"{LIVENESS_MS} ms after the last fault clients still wait")
        return
    try:
        async with asyncio.timeout(LIVENESS_MS / 1000):
            for problem in await workload.check():
                world.violated(workload.name, problem)
    except TimeoutError:
        world.violated("liveness", f"what is there cannot be read within {LIVENESS_MS} ms")
    watching.cancel()
    await world.sleep(_DEADLINES_MS)
    for problem in check_empty(world.broker.server):
        world.violated("queues", problem)
    held = durable_state(world.broker.server.node)
    _compare(world, held)
    await world.broker.stop()
    _compare(world, held)


def _compare(world: World, held: State) -> None:
    """Compare a running or stopped broker's state with the present contents of its disk."""
    broker = world.broker
    for problem in compare_with_disk(broker.config, held, broker.disk, broker.clock.wall_ms()):
        world.violated("replay", problem)


async def _watch(world: World) -> None:
    checker = WatermarkChecker()
    starts = 0
    promised = True
    while True:
        if world.broker.running and hasattr(world.broker.server, "node"):
            if world.broker.starts != starts:
                starts = world.broker.starts
                checker.restarted(promised=promised, cut=world.broker.cut_topics)
            promised = world.broker.survives_power_cuts
            for problem in checker.check(world.broker.server.node):
                world.violated("watermarks", problem)
            for problem in check_limits(world.broker.server):
                world.violated("queues", problem)
        for problem in check_clients(world.loop, world.networks(), world.consumers()):
            world.violated("queues", problem)
        await world.sleep(_LOOK_EVERY_MS)
