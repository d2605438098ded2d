"""Checks of arguments, before anything is sent."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def each_of(given: Any, kind: type[T], what: str, give: str) -> list[T]:
    """A list of the given value or values. Raises TypeError for a value that is not a `kind`."""
    try:
        items: list[Any] = [given] if isinstance(given, kind | str) else list(given)
    except TypeError:
        items = [given]
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{what}: {item!r} is {type(item).__name__}; give {give}")
    return items


def whole_number(given: Any, what: str) -> int:
    """Raise TypeError, with `what` in its text, for anything but an int."""
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{what} is {type(given).__name__}; give a whole number")
    return given


def text(given: Any, what: str) -> str | None:
    """Raise TypeError, with `what` in its text, for anything but a string or None."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{what} is {type(given).__name__}; give a string, as {str(given)!r}")
    return given
