"""Deferred: a value that arrives later, without an event loop.

A handler that cannot answer immediately returns a `Deferred`, and resolves it when the work is
finished; then the session of the connection sends the value. A `Deferred` has fewer features than a
future: one value, callbacks that run inside `resolve`, no cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
_UNSET = object()


class Deferred(Generic[T]):
    """A value that arrives once.

    `abandon` is called when nothing waits for the value any more, because the connection is closed.
    The code that would resolve the deferred may then drop the work: immediately in `on_abandon`, or
    later when it reads `abandoned` (rule N-10).
    """

    __slots__ = ("_callbacks", "_transform", "_value", "abandoned", "on_abandon")

    def __init__(self) -> None:
        self._value: object = _UNSET
        # Nearly all deferreds have a single callback, or are resolved before they get a callback.
        self._callbacks: list[Callable[[T], None]] | None = None
        self._transform: Callable[[Any], Any] | None = None
        self.abandoned = False
        self.on_abandon: Callable[[], None] | None = None

    @classmethod
    def of(cls, value: T) -> Deferred[T]:
        """A `Deferred` that already has its value."""
        deferred = cls()
        deferred.resolve(value)
        return deferred

    @property
    def done(self) -> bool:
        return self._value is not _UNSET

    def result(self) -> T:
        """The value. Raises RuntimeError if the value has not arrived."""
        if self._value is _UNSET:
            raise RuntimeError("the answer is not there yet")
        return self._value  # type: ignore[return-value]

    def resolve(self, value: T) -> None:
        """Set the value. Raises RuntimeError if the value was already set."""
        if self._value is not _UNSET:
            raise RuntimeError("already answered")
        if self._transform is not None:
            value = self._transform(value)
        self._value = value
        # It often refers to this object, and a cycle with a large value stays for long; the same in
        # `abandon`.
        self.on_abandon = None
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(value)

    def __await__(self) -> Generator[Deferred[T], None, T]:
        """The value, in a coroutine that `slices.Slices` runs."""
        if self._value is _UNSET:
            yield self
        return self.result()

    def then(self, callback: Callable[[T], None]) -> None:
        """Call `callback` with the value: immediately if the value has arrived, else when it
        arrives."""
        if self._value is not _UNSET:
            callback(self._value)  # type: ignore[arg-type]
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def map(self, function: Callable[[T], U]) -> Deferred[U]:
        """A new deferred with the result of `function`. Abandoning the new deferred does not
        abandon `self`.
        """
        mapped: Deferred[U] = Deferred()
        self.then(lambda value: mapped.resolve(function(value)))
        return mapped

    def bind(self, function: Callable[[T], Deferred[U]]) -> Deferred[U]:
        """A new deferred with the value of the deferred that `function` returns. Abandoning the new
        deferred does not abandon `self`.
        """
        bound: Deferred[U] = Deferred()
        self.then(lambda value: function(value).then(bound.resolve))
        return bound

    def transform(self, function: Callable[[T], U]) -> Deferred[U]:
        """Apply `function` to the value when it arrives, like `map` without a second deferred.

        Only the caller and the code that resolves this deferred may have references to it. Raises
        RuntimeError if this deferred already has a callback, another transform or its value.
        """
        if self.done or self._callbacks is not None or self._transform is not None:
            raise RuntimeError("others have seen this value, or wait for it")
        self._transform = function
        return self  # type: ignore[return-value]

    def abandon(self) -> None:
        """Called when nothing waits for the value any more."""
        if not self.abandoned and not self.done:
            self.abandoned = True
            on_abandon, self.on_abandon = self.on_abandon, None
            if on_abandon is not None:
                on_abandon()


def gather(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """All values in the order of `parts`, when the last of them has arrived."""
    gathered: Deferred[list[T]] = Deferred()
    waiting = len(parts)

    def arrived(_: T) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            gathered.resolve([part.result() for part in parts])

    for part in parts:
        part.then(arrived)
    if not parts:
        gathered.resolve([])
    return gathered
