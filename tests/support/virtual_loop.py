"""An event loop whose clock jumps to the next timer when nothing else is to be done."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Patience(selectors.DefaultSelector):
    """Nothing is ever waited for: the time passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer when nothing else is to be done."""

    def __init__(self) -> None:
        self._patience = _Patience()
        super().__init__(self._patience)

    def time(self) -> float:
        return self._patience.now_s


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a story on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())
