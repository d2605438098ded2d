"""Garbage collection that does not hold the event loop for long (rule N-57)."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from odradek_broker.platform import garbage
from odradek_broker.platform.garbage import with_short_collections
from waiting import until


class Node:
    """An object of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


def _cycle() -> weakref.ref[Node]:
    one, two = Node(), Node()
    one.other, two.other = two, one
    return weakref.ref(one)


@pytest.fixture
def visited() -> Iterator[list[int]]:
    """The generation of each collection; its objects are visited, and those of all younger ones."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(note)
    yield generations
    gc.callbacks.remove(note)
    gc.unfreeze()


def test_n57_objects_that_stay_are_not_visited_again_and_again(visited: list[int]) -> None:
    async def main() -> int:
        visited.clear()
        kept = [[number] for number in range(300_000)]
        return len(kept)

    assert asyncio.run(with_short_collections(main)) == 300_000
    assert visited and 2 not in visited


def test_n57_cycles_that_were_frozen_are_collected_when_memory_has_grown(
    visited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_LOOK_S", 0.01)
    monkeypatch.setattr(garbage, "_GROWTH_BLOCKS", 1_000)
    monkeypatch.setattr(garbage, "_GROWTH", 0.0)

    async def main() -> None:
        collected = _cycle()
        gc.collect(1)
        assert collected() is None, "a young cycle needs no full collection"
        one = Node()
        one.other = one
        gc.collect(1)
        collected = weakref.ref(one)
        del one
        kept = [[number] for number in range(50_000)]
        await asyncio.sleep(0.1)
        assert collected() is not None and 2 not in visited, "nothing else makes cycles"
        for _ in range(10_000):
            _cycle()
        gc.collect(1)
        await until(lambda: collected() is None)
        assert len(kept) == 50_000

    visited.clear()
    asyncio.run(with_short_collections(main))
    assert visited.count(2) == 1


def test_the_collector_is_left_as_it_was() -> None:
    async def main() -> None:
        assert len(gc.callbacks) == before + 1

    before = len(gc.callbacks)
    asyncio.run(with_short_collections(main))
    gc.unfreeze()
    assert len(gc.callbacks) == before
