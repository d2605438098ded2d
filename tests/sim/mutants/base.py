"""The definition of a mutant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A known bug. `patches`: (class or module, attribute) -> the replacement.

    `workload` and `seed` are known to catch the bug. `caught_by`: a violation counts only if it
    contains one of these texts; empty if any violation counts. The texts exclude side effects of
    the bug, such as a group that never becomes stable, which do not show that the right checker
    detects it.
    """

    name: str
    workload: str
    seed: int
    patches: Mapping[tuple[Any, str], Any]
    caught_by: tuple[str, ...] = ()

    def is_caught_by(self, violation: str) -> bool:
        """True if the message is from the checker that must catch the bug."""
        return not self.caught_by or any(part in violation for part in self.caught_by)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Insert the bug for the time of the block."""
        saved = {(home, name): home.__dict__[name] for home, name in self.patches}
        for (home, name), value in self.patches.items():
            setattr(home, name, value)
        try:
            yield
        finally:
            for (home, name), value in saved.items():
                setattr(home, name, value)
