"""Sets of partitions by topic id, and of tasks by subtopology id, as members of groups have them.

A `Partitions` or `Tasks` is immutable, and has no topic or subtopology without indexes, so that
equal sets compare equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from odradek_broker.coordinator.groups.settings import CoordinatorMetadata
from odradek_broker.slices import in_pieces
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.common_structs import PartitionsOfTopicId

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id to partition indexes."""

Tasks = Mapping[str, frozenset[int]]
"""Subtopology id to partition indexes."""

NO_PARTITIONS: Partitions = {}

K = TypeVar("K", bytes, str)


def partitions_of(pairs: Iterable[tuple[K, Iterable[int]]]) -> Mapping[K, frozenset[int]]:
    """The set with these (id, indexes); a topic or subtopology that occurs twice has the indexes of
    both."""
    made: dict[K, frozenset[int]] = {}
    for each_id, indexes in pairs:
        both = made.get(each_id, frozenset()) | frozenset(indexes)
        if both:
            made[each_id] = both
    return made


async def partitions_of_many(
    pairs: Iterable[tuple[K, Iterable[int]]],
) -> Mapping[K, frozenset[int]]:
    """Like `partitions_of`, with pauses."""
    made: dict[K, frozenset[int]] = {}
    async for some in in_pieces(pairs):
        for each_id, indexes in partitions_of(some).items():
            made[each_id] = made[each_id] | indexes if each_id in made else indexes
    return made


class TopicIdPartitions(Protocol):
    """The partitions of one topic, in a message or a record."""

    topic_id: bytes
    partitions: list[int]


def partitions_from(parts: Iterable[TopicIdPartitions]) -> Partitions:
    """The partitions in a list of a message or a record."""
    return partitions_of((part.topic_id, part.partitions) for part in parts)


async def listed(partitions: Partitions) -> list[PartitionsOfTopicId]:
    """The partitions in the form of messages and records, sorted."""
    return [
        PartitionsOfTopicId(topic_id=topic_id, partitions=indexes)
        async for some in in_pieces(in_order(partitions))
        for topic_id, indexes in some
    ]


def in_order(partitions: Mapping[K, frozenset[int]]) -> list[tuple[K, list[int]]]:
    """(id, indexes) of each topic or subtopology, both sorted."""
    return [(each_id, sorted(partitions[each_id])) for each_id in sorted(partitions)]


def each_partition(partitions: Mapping[K, frozenset[int]]) -> list[tuple[K, int]]:
    """(id, index) of each partition or task."""
    return [(each_id, index) for each_id, indexes in partitions.items() for index in indexes]


# The members of a group may have thousands of topics, so no topic costs a call.


def intersection(
    left: Mapping[K, frozenset[int]], right: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """The partitions that are in both sets."""
    return {
        topic_id: both
        for topic_id, indexes in left.items()
        if topic_id in right and (both := indexes & right[topic_id])
    }


def difference(
    left: Mapping[K, frozenset[int]], right: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """The partitions of `left` that are not in `right`."""
    return {
        topic_id: rest
        for topic_id, indexes in left.items()
        if (rest := indexes - right[topic_id] if topic_id in right else indexes)
    }


def union(
    left: Mapping[K, frozenset[int]], right: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """The partitions that are in at least one of the two sets."""
    both = {
        topic_id: indexes | right[topic_id]
        for topic_id, indexes in left.items()
        if topic_id in right
    }
    return {**left, **right, **both}


def is_subset(part: Mapping[K, frozenset[int]], whole: Mapping[K, frozenset[int]]) -> bool:
    """True if all partitions of `part` are in `whole`."""
    return not difference(part, whole)


def intersects(left: Mapping[K, frozenset[int]], right: Mapping[K, frozenset[int]]) -> bool:
    """True if the sets have a partition in common."""
    return any(
        not left[topic_id].isdisjoint(right[topic_id]) for topic_id in left if topic_id in right
    )


def by_name(
    partitions: Partitions, topics: CoordinatorMetadata
) -> list[tuple[str, bytes, list[int]]]:
    """(topic name, topic id, indexes), sorted; a deleted topic has no name and is left out."""
    return sorted(
        (name, topic_id, sorted(indexes))
        for topic_id, indexes in partitions.items()
        if (name := topics.topic_name(topic_id)) is not None
    )


def named(partitions: Partitions, topics: CoordinatorMetadata) -> list[TopicPartition]:
    """The partitions by topic name and index, sorted; those of deleted topics are left out."""
    return [(name, index) for name, _, indexes in by_name(partitions, topics) for index in indexes]
