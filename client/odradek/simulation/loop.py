"""An event loop on virtual time, whose connections are those of a simulated network."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any, TypeVar

from odradek.simulation.network import SimulatedNetwork
from odradek.simulation.process import process_of, run_unless_killed

T = TypeVar("T")

#: Timers that are due within this time come in any order.
_TIMER_JITTER_S = 2e-6


class DeadlockError(Exception):
    """Everybody waits, and no timer is left that could wake anybody."""


class _NoWaiting(selectors.DefaultSelector):
    """Nothing is ever waited for: the time until the next timer passes at once."""

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
    """Its clock jumps to the next timer when nothing else is to be done.

    With a `network`, `create_server` and `create_connection` are the network's, no socket or thread
    can wake it, and timers of the same moment fire in an order of the network's chance. What belongs
    to a killed process is not run.
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
        """Seconds of virtual time."""
        return self._no_waiting.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's; never run if the process that asks is killed before."""
        process = process_of(context)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(run_unless_killed, process, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; never run if the process that asks is killed before."""
        if self._random is not None:
            when += self._random.random() * _TIMER_JITTER_S
        process = process_of(context)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, run_unless_killed, process, callback, *args, context=context)

    async def create_server(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """As asyncio's; of the network, `host` and `port` are taken and the rest is ignored."""
        if self.network is None:
            return await super().create_server(protocol_factory, *args, **kwargs)
        return self.network.listen(protocol_factory, *_address(args, kwargs))

    async def create_connection(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """As asyncio's; of the network, `host` and `port` are taken and the rest is ignored."""
        if self.network is None:
            return await super().create_connection(protocol_factory, *args, **kwargs)
        return await self.network.connect(protocol_factory, *_address(args, kwargs))


def _address(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int]:
    given = dict(zip(("host", "port"), args, strict=False)) | kwargs
    return str(given.get("host")), int(given.get("port") or 0)


def run(story: Callable[[], Coroutine[Any, Any, T]], network: SimulatedNetwork | None = None) -> T:
    """Run a story on virtual time, in a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(network)) as runner:
        return runner.run(story())
