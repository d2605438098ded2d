"""Sets of partitions by topic id: what members own, give back and are to get.

A `Partitions` is never changed once made, and has no topic without partitions, so that equal sets
compare equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id to partition indexes."""

NOTHING: Partitions = {}


def partitions_of(pairs: Iterable[tuple[bytes, Iterable[int]]]) -> Partitions:
    """From (topic id, indexes); a topic that comes twice has both."""
    made: dict[bytes, frozenset[int]] = {}
    for topic_id, indexes in pairs:
        held = made.get(topic_id, frozenset()) | frozenset(indexes)
        if held:
            made[topic_id] = held
    return made


def each(partitions: Partitions) -> Iterator[tuple[bytes, int]]:
    """Every (topic id, index)."""
    for topic_id, indexes in partitions.items():
        for index in indexes:
            yield topic_id, index


def common(left: Partitions, right: Partitions) -> Partitions:
    """What is in both."""
    return partitions_of((held, left[held] & right[held]) for held in left if held in right)


def without(left: Partitions, right: Partitions) -> Partitions:
    """What is in `left` only."""
    empty: frozenset[int] = frozenset()
    return partitions_of((held, left[held] - right.get(held, empty)) for held in left)


def joined(left: Partitions, right: Partitions) -> Partitions:
    """What is in either."""
    return partitions_of([*left.items(), *right.items()])


def is_within(part: Partitions, whole: Partitions) -> bool:
    """Is everything of `part` in `whole`?"""
    empty: frozenset[int] = frozenset()
    return all(indexes <= whole.get(held, empty) for held, indexes in part.items())


def overlap(left: Partitions, right: Partitions) -> bool:
    """Is there anything in both?"""
    return any(not left[held].isdisjoint(right[held]) for held in left if held in right)
