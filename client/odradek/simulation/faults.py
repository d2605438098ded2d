"""The faults of a run, with their times, drawn from a seed before it begins.

A list can be played again without some of its faults, which is how a failing seed is made small.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random

from odradek.simulation.disk import Failure
from odradek.simulation.network import Weather
from odradek.simulation.world import World

#: Half a day at most: what a broker knows of idle producers it forgets a day after their last record.
CLOCK_JUMPS_MS = (-3_600_000, -60_000, 60_000, 43_200_000)


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind` of FAULTS happens at `at_ms`, for `lasts_ms`; `size` is what the kind makes of it."""

    at_ms: int
    kind: str
    lasts_ms: int
    size: int

    def __str__(self) -> str:
        return f"{self.kind} (for {self.lasts_ms} ms, size {self.size})"


async def kill_broker(world: World, fault: Fault) -> None:
    """The process dies, and is started again when the fault is over."""
    await world.kill_broker(power_lost=False, down_ms=fault.lasts_ms)


async def cut_power(world: World, fault: Fault) -> None:
    """The machine dies: what was not synced is lost, or torn."""
    await world.kill_broker(power_lost=True, down_ms=fault.lasts_ms)


async def crash_in_operation(world: World, fault: Fault) -> None:
    """The machine dies in the middle of one of its next operations on the disk."""
    disk = world.broker.disk
    process = world.broker.process
    disk.crash_at = disk.operations + fault.size % 40
    await world.sleep(fault.lasts_ms)
    disk.crash_at = None
    if not process.alive and world.broker.process is process:
        await world.kill_broker(power_lost=bool(fault.size % 2), down_ms=fault.lasts_ms)


async def stop_broker(world: World, fault: Fault) -> None:
    """A clean stop, and a start."""
    await world.restart_broker(fault.lasts_ms)


async def cut_connections(world: World, fault: Fault) -> None:
    """Every connection is reset."""
    world.network.cut_all()


async def silence(world: World, fault: Fault) -> None:
    """Of some connections nothing arrives any more, in one direction or both; nobody is told."""
    for number, transport in enumerate(list(world.network.transports)):
        if (number + fault.size) % 3 == 0:
            transport.silent = True


async def unreachable(world: World, fault: Fault) -> None:
    """New connections are refused, and those that stand are cut."""
    world.network.unreachable.add(world.broker.address)
    world.network.cut_all()
    await world.sleep(fault.lasts_ms)
    world.network.unreachable.clear()


async def bad_weather(world: World, fault: Fault) -> None:
    """The network becomes slow, and cuts what is sent into pieces."""
    before = world.network.weather
    world.network.weather = Weather((0.1, fault.size % 400), 1 + fault.size % 1_000)
    await world.sleep(fault.lasts_ms)
    world.network.weather = before


async def slow_disk(world: World, fault: Fault) -> None:
    """An fsync takes up to a second."""
    world.sync_delay_ms = (0.0, float(fault.size))
    await world.sleep(fault.lasts_ms)
    world.sync_delay_ms = (0.0, 2.0)


async def full_disk(world: World, fault: Fault) -> None:
    """Nothing can be written, for a while."""
    failures = [
        Failure(kind, code=errno.ENOSPC, for_ever=True, torn_bytes=fault.size % 100)
        for kind in ("append", "open")
    ]
    for failure in failures:
        world.broker.disk.fail(failure)
    await world.sleep(fault.lasts_ms)
    world.broker.disk.heal()


async def failed_write(world: World, fault: Fault) -> None:
    """One write fails, with a part of it on the disk."""
    world.broker.disk.fail(Failure("append", nth=1 + fault.size % 5, torn_bytes=fault.size % 200))


async def failed_sync(world: World, fault: Fault) -> None:
    """One fsync fails: its partition is offline until the broker is started again."""
    world.broker.disk.fail(Failure("sync", nth=1 + fault.size % 5))


async def failed_read(world: World, fault: Fault) -> None:
    """One read fails."""
    world.broker.disk.fail(Failure("read", nth=1 + fault.size % 5))


async def clock_jump(world: World, fault: Fault) -> None:
    """The wall clock of the broker is set: by a minute or an hour back, by a minute or half a day forwards."""
    world.broker.clock.jump(CLOCK_JUMPS_MS[fault.size % len(CLOCK_JUMPS_MS)])


async def kill_client(world: World, fault: Fault) -> None:
    """One of the clients dies; the workload starts another."""
    world.kill_client(fault.size)


FAULTS: dict[str, Callable[[World, Fault], Awaitable[None]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        kill_broker,
        cut_power,
        crash_in_operation,
        stop_broker,
        cut_connections,
        silence,
        unreachable,
        bad_weather,
        slow_disk,
        full_disk,
        failed_write,
        failed_sync,
        failed_read,
        clock_jump,
        kill_client,
    )
}


async def play(world: World, faults: Iterable[Fault], duration_ms: int) -> None:
    """Let them happen at their times; after so long, and when the last is over, all is healed."""
    running = [asyncio.ensure_future(_play_one(world, fault)) for fault in faults]
    await asyncio.gather(world.sleep(duration_ms), *running)
    await world.heal()
    world.faults_over.set()


async def _play_one(world: World, fault: Fault) -> None:
    await world.sleep(fault.at_ms)
    world.note("FAULT", str(fault))
    await FAULTS[fault.kind](world, fault)


def draw_faults(
    random: Random, duration_ms: int, most: int = 6, kinds: tuple[str, ...] = tuple(FAULTS)
) -> list[Fault]:
    """Up to `most` faults within the duration, in the order of their times."""
    return sorted(
        (
            Fault(
                at_ms=random.randrange(duration_ms),
                kind=random.choice(kinds),
                lasts_ms=random.choice((0, 5, 50, 500, 3_000)),
                size=random.randrange(1_000),
            )
            for _ in range(random.randint(0, most))
        ),
        key=lambda fault: fault.at_ms,
    )
