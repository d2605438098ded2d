"""Pairs of an object and a number that take only two words of memory, because a program may keep
millions of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from . import native


class PurePlace:
    """The number (`index`) of an item, and the object (`owner`) to which the item belongs. The
    garbage collector tracks an instance of the compiled twin only after `track` was called."""

    __slots__ = ("index", "owner")

    def __init__(self, owner: Any, index: int) -> None:
        self.owner = owner
        self.index = index

    @classmethod
    def at(cls, owner: Any, index: int) -> Self:
        """Create an instance. In the compiled twin this is faster than a call of the class."""
        return cls(owner, index)

    def track(self) -> None:
        """Let the garbage collector track this object. Call this method before `owner` refers to an
        object that may refer to this object, because otherwise the cycle would never be freed."""


if TYPE_CHECKING:
    Place = PurePlace
else:
    Place = PurePlace if native.CODEC is None else native.CODEC.Place
