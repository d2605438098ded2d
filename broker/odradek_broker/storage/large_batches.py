"""Work on batches that inflate to megabytes, or have very many records, in a thread beside the
event loop (N-57)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from odradek_broker.slices import Slices, TooMuchWaits
from odradek_broker.storage.errors import SearchTakesLong, ThreadBusy

T = TypeVar("T")
#: The most large batches that a search reads. Most searches read one.
_SEARCHES_MAX = 20


async def in_thread(slices: Slices, work: Callable[[], T]) -> T:
    """The result of work on a batch; see `Slices.beside`. Raises what the work raises, and
    ThreadBusy."""
    try:
        return await slices.beside(work)
    except TooMuchWaits:
        raise ThreadBusy from None


async def search(slices: Slices, find: Callable[[dict[Hashable, Any]], T]) -> T:
    """The result of a search for a record by its timestamp. Large batches are searched in the
    thread, and `find` is repeated with what was found in them (SearchTakesLong). Raises ThreadBusy,
    and what `find` raises."""
    known: dict[Hashable, Any] = {}
    for _ in range(_SEARCHES_MAX):
        try:
            return find(known)
        except SearchTakesLong as problem:
            key, work = problem.key, problem.work
        known[key] = await in_thread(slices, work)
    raise ThreadBusy
