"""The interface of a fuzzer's target.

Nothing of the product may be imported here: the worker imports it later, with counters in its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MEGABYTE = 1024 * 1024


class Broken(AssertionError):
    """The product kept a promise neither by an answer nor by a declared error."""


class TooMuchMemory(Broken):
    """One input made the product use more memory than its target allows."""


class TooSlow(Broken):
    """One input took more processor time than the limit."""


class BehindOthers(Broken):
    """The problem needs inputs that came before: `data` is all of them, as one input."""

    def __init__(self, data: bytes, problem: Exception) -> None:
        super().__init__(f"{type(problem).__name__}: {problem}")
        self.data = data


@dataclass(frozen=True)
class Target:
    """A kind of bytes that the product reads.

    `check` raises for a broken promise; `seeds` are inputs to begin with, of every valid kind.
    `memory_bytes` may be allocated for one input, and each is at most `input_bytes_max` long.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    memory_bytes: int = 64 * MEGABYTE
    input_bytes_max: int = 4096


#: Targets by their modules' names.
TARGETS = sorted(path.stem for path in (FOLDER / "targets").glob("[a-z]*.py"))


def load(name: str) -> Target:
    """The target with a name of `TARGETS`."""
    target: Target = import_module(f"tests.adversity.fuzz.targets.{name}").TARGET
    return target


def found(name: str) -> list[Path]:
    """The kept inputs of a target: each showed a defect once."""
    return sorted((FOLDER / "found" / name).glob("*.bin"))
