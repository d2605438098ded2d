"""The definition of a mutant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """`patches`: (class or module, attribute) to what stands there instead.

    `workload` and `seed` are known to catch it. `caught_by`: what a violation must say, one of
    these, to count; what a bug does by the way, as a group that never settles, proves nothing of
    the checker that is meant to see it. Empty: anything counts.
    """

    name: str
    workload: str
    seed: int
    patches: Mapping[tuple[Any, str], Any]
    caught_by: tuple[str, ...] = ()

    def is_caught_by(self, violation: str) -> bool:
        """Is this what its checker says?"""
        return not self.caught_by or any(part in violation for part in self.caught_by)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """As long as this lasts, the bug is there."""
        saved = {(home, name): home.__dict__[name] for home, name in self.patches}
        for (home, name), value in self.patches.items():
            setattr(home, name, value)
        try:
            yield
        finally:
            for (home, name), value in saved.items():
                setattr(home, name, value)
