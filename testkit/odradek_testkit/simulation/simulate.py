"""A run of a simulated world, with its own loop, machine and logging."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random as random_module
import selectors
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from random import Random
from typing import Any, TypeVar

import structlog

from odradek_broker.explain.history import History
from odradek_broker.explain.sentences import EventKind, sentence
from odradek_client.consumer.consumer import Consumer
from odradek_client.network.client import NetworkClient
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.clock import WALL_START_MS
from odradek_testkit.simulation.disk import Crashed
from odradek_testkit.simulation.network import SimulatedNetwork
from odradek_testkit.simulation.process import process_of, run_unless_killed
from odradek_testkit.simulation.world import World

T = TypeVar("T")

#: Timers that are due within this time fire in any order.
_TIMER_JITTER_S = 2e-6


class DeadlockError(Exception):
    """All tasks wait, and no timer is left to wake one."""


class _NoWaiting(selectors.DefaultSelector):
    """A selector that never waits. Instead, virtual time jumps to the next timer."""

    def __init__(self, alone: bool) -> None:
        super().__init__()
        self.now_s = 0.0
        self._alone = alone

    def select(self, timeout: float | None = None) -> Any:
        if self._alone:
            if timeout is None:
                raise DeadlockError("everybody waits, and no timer is set")
            self.now_s += max(timeout, 0)
            return []
        ready = super().select(0)
        if not ready and timeout:
            self.now_s += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock advances to the next timer when no callback is ready.

    With a `network`, `create_server` and `create_connection` use that network, no socket or thread
    can wake the loop, and timers of the same time fire in an order that the network draws.
    Callbacks of a killed process are not run.
    """

    def __init__(self, network: SimulatedNetwork | None = None) -> None:
        self._no_waiting = _NoWaiting(alone=network is not None)
        super().__init__(self._no_waiting)
        self.network = network
        self._random: Random | None = None
        if network is not None:
            self._random = network.random
            network.attach(self)

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._no_waiting.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Like asyncio's `call_soon`, but a callback of a killed process is not called."""
        process = process_of(context)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(run_unless_killed, process, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Like asyncio's `call_at`, but a callback of a killed process is not called."""
        if self._random is not None:
            when += self._random.random() * _TIMER_JITTER_S
        process = process_of(context)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, run_unless_killed, process, callback, *args, context=context)

    async def create_server(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Create a server like asyncio's loop. A simulated network ignores all options except
        `host` and `port`."""
        if self.network is None:
            return await super().create_server(protocol_factory, *args, **kwargs)
        return self.network.listen(protocol_factory, *_address(args, kwargs))

    async def create_connection(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Create a connection like asyncio's loop. A simulated network ignores all options except
        `host` and `port`."""
        if self.network is None:
            return await super().create_connection(protocol_factory, *args, **kwargs)
        return await self.network.connect(protocol_factory, *_address(args, kwargs))


def _address(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int]:
    given = dict(zip(("host", "port"), args, strict=False)) | kwargs
    return str(given.get("host")), int(given.get("port") or 0)


def run(story: Callable[[], Coroutine[Any, Any, T]], network: SimulatedNetwork | None = None) -> T:
    """Run a coroutine function on virtual time, in a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(network)) as runner:
        return runner.run(story())


_Random = random_module.Random


@contextmanager
def simulated_machine(
    now_s: Callable[[], float], random: random_module.Random, wall_start_ms: int = WALL_START_MS
) -> Iterator[None]:
    """Replace the machine's clocks and random generators. `now_s` returns the virtual time.
    Generators that are created without a seed get a seed from `random`."""

    def wall_s() -> float:
        return wall_start_ms / 1000 + now_s()

    class SeededRandom(_Random):
        def __init__(self, x: Any = None) -> None:
            super().__init__(random.getrandbits(64) if x is None else x)

    replaced: list[tuple[Any, str, Any]] = [
        (time, "time", wall_s),
        (time, "time_ns", lambda: int(wall_s() * 1e9)),
        (time, "monotonic", now_s),
        (time, "monotonic_ns", lambda: int(now_s() * 1e9)),
        (time, "perf_counter", now_s),
        (time, "perf_counter_ns", lambda: int(now_s() * 1e9)),
        (os, "urandom", random.randbytes),
        (random_module, "Random", SeededRandom),
    ]
    saved = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    state = random_module.getstate()
    random_module.seed(random.getrandbits(64))
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in saved:
            setattr(module, name, value)
        random_module.setstate(state)


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
    """Run a story in a world of this seed; returns the virtual time that it took, ms.

    All random choices depend only on `name` and `seed`. `begun` is called with the world at the
    beginning, so that it can be examined after a failure. `explain`: the trace also has the
    broker's decisions. Exceptions of the story are raised.
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
    """Handle an uncaught exception. The exception is a bug, unless it is the crash of the
    machine."""
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
    """Close the coroutines of killed processes now, not when they are garbage-collected."""
    for task in asyncio.all_tasks(loop):
        forgotten: Any = task
        forgotten._log_destroy_pending = False
        # `finally` and `async with` may await in turn, so the coroutine is closed repeatedly.
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
    """Tell the world about every client that is started inside the block."""
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
    """The sentence that `odradek explain` shows for an event."""
    details = {name: value for name, value in fields.items() if value is not None}
    partitions = details.pop("partitions", ())
    if partitions:
        details["partitions"] = tuple(f"{topic}-{index}" for topic, index in partitions)
    error = details.get("error")
    if isinstance(error, ErrorCode):
        details["error"] = error.name
    return sentence(kind, details)


@contextlib.contextmanager
def _overheard(worlds: list[World], explain: bool) -> Iterator[None]:
    """Tell the world about members that the broker removes. With `explain`, add the broker's
    decisions to the trace, in the sentences of `odradek explain`."""
    record = History.record

    def note(
        self: History, subject: str, kind: EventKind, first: Any = None, /, **others: Any
    ) -> None:
        record(self, subject, kind, first, **others)
        fields = {**(first or {}), **others}
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
