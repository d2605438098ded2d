"""A place in what somebody has: two words, of which a program may keep millions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from . import native


class PurePlace:
    """`owner`, and the number of something that it has. The compiled twin is untracked until
    `track` is called."""

    __slots__ = ("index", "owner")

    def __init__(self, owner: Any, index: int) -> None:
        self.owner = owner
        self.index = index

    @classmethod
    def at(cls, owner: Any, index: int) -> Self:
        """Make an instance as the class does; the compiled twin is faster at it."""
        return cls(owner, index)

    def track(self) -> None:
        """Have the garbage collector look at it. Called before `owner` refers to what may hold this
        place: it would never be freed otherwise."""


if TYPE_CHECKING:
    Place = PurePlace
else:
    Place = PurePlace if native.CODEC is None else native.CODEC.Place
