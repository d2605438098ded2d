"""Waiting with a deadline, for conditions without an event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

#: The time limit of each wait in s: long enough for a busy machine. A successful wait takes only a
#: fraction of it.
DEADLINE_S = 40.0


def deadline_in(duration_s: float) -> Callable[[str], None]:
    """Return a function to call in each round of waiting, with a description; it raises
    TimeoutError after the deadline."""
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
    """Check the condition repeatedly, and call `meanwhile` between the checks. Fails with `what`
    after the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {deadline_s} s until {what}")
        meanwhile()
        time.sleep(0.005)


async def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Return once `condition()` is true; raises TimeoutError if it stays false."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  the awaited change sets no event
            await asyncio.sleep(0.001)
