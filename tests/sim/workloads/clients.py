"""Clients that follow one another as long as faults happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from odradek_client.errors import OdradekError
from odradek_testkit.simulation.world import World


async def keep_running(
    world: World, kind: str, count: int, main: Callable[[str], Coroutine[Any, Any, object]]
) -> None:
    """Keep `count` clients of a kind running, each with a name of its own, until the faults are
    over.

    When a client ends, fails or is killed, another replaces it. Raises unexpected errors.
    """
    started = 0

    async def follow() -> None:
        nonlocal started
        while not world.faults_over.is_set():
            started += 1
            name = f"{kind}-{started}"
            task = world.start_client(name, lambda name=name: main(name))  # type: ignore[misc]
            process = world.clients[name]
            while not task.done() and process.alive:
                await world.sleep(20)
            if task.done():
                try:
                    task.result()
                except OdradekError as problem:
                    world.note(name, f"gives up: {problem}")

    await asyncio.gather(*(follow() for _ in range(count)))
