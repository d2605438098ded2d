"""A thread that does its work when the test says so; see `odradek_broker.slices.Background`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from odradek_broker.slices import Done, here


class HeldThread:
    """Keeps work until `run`."""

    def __init__(self) -> None:
        self.works: deque[tuple[Callable[[], None], Done]] = deque()

    def __call__(self, work: Callable[[], None], done: Done) -> None:
        self.works.append((work, done))

    def run(self) -> None:
        """Do the oldest work. What the work raises is handed on, as by the thread."""
        here(*self.works.popleft())
