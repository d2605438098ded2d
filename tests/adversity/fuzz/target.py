"""What a target of the fuzzer is.

Nothing of the product may be imported from here: the worker imports it later, with counters in its
code.
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
    """One input made the product hold more than its target allows."""


class TooSlow(Broken):
    """One input kept the processor busy for longer than any may."""


class BehindOthers(Broken):
    """The problem needs inputs that came before: `data` is all of them, as one input."""

    def __init__(self, data: bytes, problem: Exception) -> None:
        super().__init__(f"{type(problem).__name__}: {problem}")
        self.data = data


@dataclass(frozen=True)
class Target:
    """One kind of bytes that the product reads.

    `check` raises for anything that must not be; `seeds` are inputs to begin with, of every kind
    that is understood. `memory_bytes` may be allocated for one input, and each is at most
    `input_bytes_max` long.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    memory_bytes: int = 64 * MEGABYTE
    input_bytes_max: int = 4096


#: By their modules' names.
TARGETS = sorted(path.stem for path in (FOLDER / "targets").glob("[a-z]*.py"))


def load(name: str) -> Target:
    """The target of a name in `TARGETS`."""
    target: Target = import_module(f"tests.adversity.fuzz.targets.{name}").TARGET
    return target


def found(name: str) -> list[Path]:
    """The inputs that are kept of a target: each showed a defect once."""
    return sorted((FOLDER / "found" / name).glob("*.bin"))
