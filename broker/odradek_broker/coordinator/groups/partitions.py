"""Sets of partitions by topic id, as members of groups have them.

A `Partitions` is never changed once made, and has no topic without partitions, so that equal sets
compare equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from odradek_broker.coordinator.groups.settings import Topics
from odradek_broker.topic_partition import TopicPartition

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id to partition indexes."""

NO_PARTITIONS: Partitions = {}


def partitions_of(pairs: Iterable[tuple[bytes, Iterable[int]]]) -> Partitions:
    """The set with these (topic id, indexes); a topic that occurs twice has the partitions of
    both."""
    made: dict[bytes, frozenset[int]] = {}
    for topic_id, indexes in pairs:
        both = made.get(topic_id, frozenset()) | frozenset(indexes)
        if both:
            made[topic_id] = both
    return made


def each_partition(partitions: Partitions) -> Iterator[tuple[bytes, int]]:
    """(topic id, index) of each partition."""
    for topic_id, indexes in partitions.items():
        for index in indexes:
            yield topic_id, index


def intersection(left: Partitions, right: Partitions) -> Partitions:
    """The partitions that are in both sets."""
    return partitions_of(
        (topic_id, left[topic_id] & right[topic_id]) for topic_id in left if topic_id in right
    )


def difference(left: Partitions, right: Partitions) -> Partitions:
    """The partitions of `left` that are not in `right`."""
    empty: frozenset[int] = frozenset()
    return partitions_of(
        (topic_id, left[topic_id] - right.get(topic_id, empty)) for topic_id in left
    )


def union(left: Partitions, right: Partitions) -> Partitions:
    """The partitions that are in either set."""
    return partitions_of([*left.items(), *right.items()])


def is_subset(part: Partitions, whole: Partitions) -> bool:
    """True if all partitions of `part` are in `whole`."""
    empty: frozenset[int] = frozenset()
    return all(indexes <= whole.get(topic_id, empty) for topic_id, indexes in part.items())


def intersects(left: Partitions, right: Partitions) -> bool:
    """True if the sets have a partition in common."""
    return any(
        not left[topic_id].isdisjoint(right[topic_id]) for topic_id in left if topic_id in right
    )


def by_name(partitions: Partitions, topics: Topics) -> list[tuple[str, bytes, list[int]]]:
    """(topic name, topic id, indexes), sorted; a deleted topic has no name and is left out."""
    return sorted(
        (name, topic_id, sorted(indexes))
        for topic_id, indexes in partitions.items()
        if (name := topics.topic_name(topic_id)) is not None
    )


def named(partitions: Partitions, topics: Topics) -> list[TopicPartition]:
    """The partitions by topic name and index, sorted; those of deleted topics are left out."""
    return [(name, index) for name, _, indexes in by_name(partitions, topics) for index in indexes]
