"""The interface of a fuzzer's target.

This module must not import the product: the worker imports the product later, and adds coverage
counters to its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MEGABYTE = 1024 * 1024


class Broken(AssertionError):
    """The product neither answered correctly nor raised a declared error."""


class TooMuchMemory(Broken):
    """One input made the product use more memory than its target allows."""


class TooSlow(Broken):
    """One input took more processor time than the limit."""


class NeedsEarlierInputs(Broken):
    """The problem needs earlier inputs. `data` is a single input: the earlier ones and the failing
    one."""

    def __init__(self, data: bytes, problem: Exception) -> None:
        super().__init__(f"{type(problem).__name__}: {problem}")
        self.data = data


@dataclass(frozen=True)
class Target:
    """A kind of bytes that the product reads.

    `check` raises if the product fails on an input. `seeds` are the valid inputs with which the
    fuzzer begins. An input has at most `input_bytes_max` bytes, and the product allocates at most
    `memory_bytes` for an input.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    memory_bytes: int = 64 * MEGABYTE
    input_bytes_max: int = 4096


#: The names of all targets, which are the names of their modules.
TARGETS = sorted(path.stem for path in (FOLDER / "targets").glob("[a-z]*.py"))


def load(name: str) -> Target:
    """The target with this name, which must be in `TARGETS`."""
    target: Target = import_module(f"tests.adversity.fuzz.targets.{name}").TARGET
    return target


def found(name: str) -> list[Path]:
    """The kept inputs of a target, each of which once showed a defect."""
    return sorted((FOLDER / "found" / name).glob("*.bin"))
