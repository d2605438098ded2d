"""Partitions as members of the classic protocol name them, by topic name: owned and assigned."""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer.partitions import Partitions, by_name, partitions_of
from odradek_broker.coordinator.groups.consumer.settings import Topics
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.assignment import (
    AssignedPartitions,
    ConsumerAssignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import ConsumerSubscription, read_version


def from_names(parts: list[tuple[str, list[int]]], topics: Topics) -> Partitions:
    """By topic id; topics that do not exist are left out."""
    return partitions_of(
        (topics.topic_id(name), indexes) for name, indexes in parts if topics.partition_count(name)
    )


def owned_by_subscription(subscription: ConsumerSubscription, topics: Topics) -> Partitions:
    """The partitions that a classic member says it holds. Eager ones have given up everything when
    they join, and say nothing."""
    parts = [(held.topic, held.partitions) for held in subscription.owned_partitions]
    return from_names(parts, topics)


def assignment_bytes(partitions: Partitions, metadata: bytes, topics: Topics) -> bytes:
    """The assignment of a classic member for SyncGroup, in the version of its own `metadata`."""
    try:
        version = read_version(metadata)
    except DecodeError:
        # It is another of its protocols that it was understood by.
        version = 0
    return encode_assignment(
        ConsumerAssignment(
            assigned_partitions=[
                AssignedPartitions(topic=name, partitions=indexes)
                for name, _, indexes in by_name(partitions, topics)
            ]
        ),
        version,
    )
