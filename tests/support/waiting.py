"""Waiting for what sets no event, with an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

#: On a busy machine; what goes well takes a fraction of it.
DEADLINE_S = 40.0


def deadline_in(duration_s: float) -> Callable[[str], None]:
    """To be called, with what is waited for, in every round: TimeoutError when the time is over."""
    end = time.monotonic() + duration_s

    def check(what: str) -> None:
        if time.monotonic() > end:
            raise TimeoutError(f"waited {duration_s} s: {what}")

    return check


def wait_until(
    condition: Callable[[], bool],
    what: str,
    deadline_s: float = DEADLINE_S,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Look again and again until it holds, with `meanwhile` in between; fails with `what` when the
    deadline passes."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {deadline_s} s until {what}")
        meanwhile()
        time.sleep(0.005)


async def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Return once `condition()` is true; TimeoutError if it does not become so."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  what is waited for sets no event
            await asyncio.sleep(0.001)
