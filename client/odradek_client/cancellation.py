"""Short tracebacks of cancelled calls, without the frames inside this client.

Ctrl+C ends an asyncio program with a traceback that has two or three lines for each waiting frame.
The frames of this client do not help the program's author.
"""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

C = TypeVar("C")


def short_cancellations(*, but: str = "") -> Callable[[type[C]], type[C]]:
    """Decorate a class: its public coroutine methods raise CancelledError without the traceback
    frames of the calls inside them.

    `but` names a method that is not wrapped, because it is called too often. The code of this
    method removes the frames.
    """

    def decorate(cls: type[C]) -> type[C]:
        for name, method in inspect.getmembers(cls, inspect.iscoroutinefunction):
            if name == "__aenter__" or (not name.startswith("_") and name != but):
                setattr(cls, name, _shortened(method))
        return cls

    return decorate


def _shortened(
    method: Callable[..., Coroutine[Any, Any, Any]],
) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(method)
    async def call(*args: Any, **named: Any) -> Any:
        try:
            return await method(*args, **named)
        except CancelledError as error:
            raise error.with_traceback(None) from None

    return call
