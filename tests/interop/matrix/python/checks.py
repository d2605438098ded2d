"""The checks of a program of the matrix, each printed as one line."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterable

DEADLINE_S = 90.0
_PROBLEM_CHARACTERS = 2000


class Wrong(Exception):
    """A result that is not the expected one."""


def check(name: str, work: Callable[[], None]) -> None:
    """Run `work` as a check, and print whether it succeeded."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  any exception fails the check
        traceback.print_exc()
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"failed {name}: {text[:_PROBLEM_CHARACTERS]}", flush=True)
    else:
        print(f"ok {name}", flush=True)


def same(found: object, expected: object) -> None:
    if found != expected:
        raise Wrong(f"{found!r}, not {expected!r}")


def each_once(found: Iterable[Hashable], expected: Iterable[Hashable]) -> None:
    """Raise Wrong unless each expected value was found once, and nothing else."""
    wanted, there = Counter(expected), Counter(found)
    lost, more = wanted - there, there - wanted
    if lost or more:
        raise Wrong(
            f"missing: {lost.total()} {list(lost)[:5]}; too many: {more.total()} {list(more)[:5]}"
        )


def until(ready: Callable[[], bool], awaited: str) -> None:
    """Wait until the function returns True. Raises Wrong after DEADLINE_S."""
    end = time.monotonic() + DEADLINE_S
    while not ready():
        if time.monotonic() > end:
            raise Wrong(f"{awaited}: not after {DEADLINE_S:.0f} s")
        time.sleep(0.1)


def kill_the_broker() -> None:
    """Let the matrix kill the broker (SIGKILL) and start it again; returns when the broker is
    up."""
    print("wanted: another start of the broker", flush=True)
    sys.stdin.readline()
