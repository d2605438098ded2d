"""Processes that share one event loop and are killed separately.

All code that a process calls, with its tasks and callbacks, runs in the process's context. After a
kill no code of the process runs any more, neither callbacks nor `finally`, as after SIGKILL.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

_CURRENT: ContextVar[Process | None] = ContextVar("odradek_simulated_process", default=None)


class Process:
    """A process, such as a broker or a client. `kill` calls each callback in `on_killed` once,
    outside of the process's context."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.on_killed: list[Callable[[], None]] = []
        self._context = copy_context()
        self._context.run(_CURRENT.set, self)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in this process. Tasks and callbacks that the function creates belong to
        the process."""
        return self._context.copy().run(function, *args)

    @property
    def context(self) -> Context:
        """A context of this process, for tasks and callbacks."""
        return self._context.copy()

    def kill(self) -> None:
        """Kill the process. A second call does nothing."""
        if self.alive:
            self.alive = False
            for callback in self.on_killed:
                callback()


def process_of(context: Context | None = None) -> Process | None:
    """The process that a context (None: the current one) belongs to; None for the simulation's own
    context."""
    return _CURRENT.get() if context is None else context.get(_CURRENT)


def run_unless_killed(process: Process, callback: Callable[..., object], *args: Any) -> None:
    """Call a function if its process was not killed."""
    if process.alive:
        callback(*args)
