"""Programs that regular expressions are compiled to, and how they match.

All alternatives are followed at once, as in Thompson's construction, so that the time grows with
the length of the text and of the program, and with nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

CharacterTest = Callable[[str], bool]
#: Of a text and a position in it.
Assertion = Callable[[str, int], bool]


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: take a character, assert something of the position, or go on at once.

    `targets`: the instructions that follow, by number.
    """

    test: CharacterTest | None = None
    assertion: Assertion | None = None
    targets: tuple[int, ...] = ()


class Pattern:
    """A compiled expression: a program that follows all alternatives at once."""

    def __init__(self, program: list[Instruction], start: int, end: int) -> None:
        self._program = program
        self._start = start
        self._end = end

    def matches(self, name: str) -> bool:
        """Does the whole name match?"""
        now = self._reach([self._start], name, 0)
        for position, character in enumerate(name):
            after: list[int] = []
            for at in now:
                test = self._program[at].test
                if test is not None and test(character):
                    after += self._program[at].targets
            now = self._reach(after, name, position + 1)
            if not now:
                return False
        return self._end in now

    def select(self, names: Iterable[str]) -> frozenset[str]:
        """The names that match."""
        return frozenset(name for name in names if self.matches(name))

    def _reach(self, starts: Iterable[int], name: str, position: int) -> set[int]:
        """Every instruction that can be reached without taking a character."""
        seen: set[int] = set()
        todo = list(starts)
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self._program[at]
            if instruction.test is not None:
                continue
            if instruction.assertion is None or instruction.assertion(name, position):
                todo += instruction.targets
        return seen
