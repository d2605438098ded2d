"""One world from beginning to end: its loop, machine and logging are put up and taken down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Any

import structlog

from odradek.simulation.disk import Crashed
from odradek.simulation.loop import SimulatedLoop
from odradek.simulation.machine import simulated_machine
from odradek.simulation.network import SimulatedNetwork
from odradek.simulation.world import World
from odradek_broker.explain.history import History
from odradek_broker.explain.sentences import EventKind, sentence
from odradek_client.consumer.consumer import Consumer
from odradek_client.network.client import NetworkClient
from odradek_protocol.errors import ErrorCode

_CLOSE_TRIES = 20


def simulate(
    name: str,
    seed: int,
    story: Callable[[World], Awaitable[None]],
    settings: Mapping[str, object] | None = None,
    *,
    explain: bool = False,
    begun: Callable[[World], None] = lambda world: None,
) -> int:
    """Tell a story to its end, in a world of this seed; how much virtual time it took, ms.

    `name` and `seed` are all that chance depends on. `begun` is given the world first of all, for
    whoever wants to look into it when the story has failed. `explain`: the trace also says what the
    broker decided. What the story raises is raised.
    """
    network = SimulatedNetwork(Random(f"{seed}/network/{name}"))
    loop = SimulatedLoop(network)
    logging = structlog.get_config()
    structlog.configure(
        processors=[_drop_event], wrapper_class=structlog.make_filtering_bound_logger(50)
    )
    asyncio.set_event_loop(loop)
    worlds: list[World] = []

    async def main() -> None:
        world = World(seed, network, settings)
        worlds.append(world)
        begun(world)
        loop.set_exception_handler(lambda _, context: _unhandled(world, context))
        await story(world)

    try:
        overheard = _overheard(worlds, explain)
        with simulated_machine(loop.time, Random(f"{seed}/machine")), overheard, _listed(worlds):
            try:
                loop.run_until_complete(main())
            finally:
                _discard(loop)
        return int(loop.time() * 1000)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        structlog.configure(**logging)


def _unhandled(world: World, context: dict[str, Any]) -> None:
    """Handle an exception that nobody caught: a bug, unless the machine went down in the middle of
    it."""
    problem = context.get("exception")
    if isinstance(problem, Crashed):
        return
    message = context.get("message", "")
    if "was never retrieved" in message or "was destroyed" in message:
        return
    world.violated("unhandled", f"{message}: {problem!r}")


def _drop_event(*_: object) -> Any:
    raise structlog.DropEvent


def _discard(loop: asyncio.AbstractEventLoop) -> None:
    """Take down what killed processes have left, now and not when it is found as garbage."""
    for task in asyncio.all_tasks(loop):
        forgotten: Any = task
        forgotten._log_destroy_pending = False
        # `finally` and `async with` may await in turn: each time the same again.
        for _ in range(_CLOSE_TRIES):
            try:
                forgotten.get_coro().close()
            except RuntimeError:
                continue
            except BaseException:  # noqa: BLE001 - of a process that is no more
                break
            break


@contextlib.contextmanager
def _listed(worlds: list[World]) -> Iterator[None]:
    """Have the world know every client that is started."""
    start, start_consumer = NetworkClient.start, Consumer.start

    async def starts(self: NetworkClient, timeout_ms: float | None = None) -> None:
        for world in worlds:
            world.started(self)
        await start(self, timeout_ms)

    async def consumer_starts(self: Consumer, timeout_ms: float | None = None) -> None:
        for world in worlds:
            world.started(self)
        await start_consumer(self, timeout_ms)

    NetworkClient.start, Consumer.start = starts, consumer_starts  # type: ignore[method-assign]
    try:
        yield
    finally:
        NetworkClient.start, Consumer.start = start, start_consumer  # type: ignore[method-assign]


def _explained(kind: EventKind, fields: Mapping[str, Any]) -> str:
    """The sentence of an event."""
    told = {name: value for name, value in fields.items() if value is not None}
    partitions = told.pop("partitions", ())
    if partitions:
        told["partitions"] = tuple(f"{topic}-{index}" for topic, index in partitions)
    error = told.get("error")
    if isinstance(error, ErrorCode):
        told["error"] = error.name
    return sentence(kind, told)


@contextlib.contextmanager
def _overheard(worlds: list[World], explain: bool) -> Iterator[None]:
    """Tell the workload of members that the broker removes; and if it is to be explained, write into
    the trace what the broker decides, in the sentences of `odradek explain`."""
    record = History.record

    def note(self: History, subject: str, kind: EventKind, **fields: Any) -> None:
        record(self, subject, kind, **fields)
        for seen in worlds:
            if explain:
                seen.note(subject, _explained(kind, fields))
            if kind in (EventKind.MEMBER_LEFT, EventKind.MEMBER_REMOVED):
                seen.on_member_removed(subject, str(fields["member"]))

    History.record = note  # type: ignore[method-assign]
    try:
        yield
    finally:
        History.record = record  # type: ignore[method-assign]
