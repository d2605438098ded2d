"""The leader's part in a classic group: it divides the partitions among the members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from odradek_client.consumer.assignors import Assignor, GroupMember
from odradek_client.network.cluster import ClusterView
from odradek_client.structs import TopicPartition, numbers_by_topic
from odradek_protocol.schemas.join_group import JoinGroupResponseMember
from odradek_protocol.schemas.sync_group import SyncGroupRequestAssignment
from odradek_protocol.stored.assignment import (
    AssignedPartitions,
    ConsumerAssignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import decode_subscription


class LeaderAssignment:
    """The assignment of one generation, by its leader, from the members that JoinGroup listed.

    `skips`: the generation has its assignment already, and only what it is of is looked at (KIP-814).
    """

    def __init__(self, members: Sequence[JoinGroupResponseMember], skips: bool = False) -> None:
        self._listed = members
        self._skips = skips
        self._partition_counts: dict[str, int] | None = None

    @cached_property
    def _members(self) -> list[GroupMember]:
        return [_member(each) for each in self._listed]

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics of all members. DecodeError if a member's metadata is none."""
        return frozenset(topic for member in self._members for topic in member.topics)

    def assign(self, assignor: Assignor, cluster: ClusterView) -> list[SyncGroupRequestAssignment]:
        """By member. A topic that metadata does not have is left out (K-55)."""
        self._partition_counts = counts = _partition_counts(cluster, self.topics)
        if self._skips:
            return []
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=_encode_partitions(partitions)
            )
            for member_id, partitions in assignor.assign(counts, self._members).items()
        ]

    def is_outdated(self, cluster: ClusterView) -> bool:
        """Whether topics have come or gone, or have other partitions, since `assign`."""
        counts = self._partition_counts
        return counts is not None and _partition_counts(cluster, self.topics) != counts


def _member(listed: JoinGroupResponseMember) -> GroupMember:
    subscription = decode_subscription(listed.metadata)
    return GroupMember(
        member_id=listed.member_id,
        group_instance_id=listed.group_instance_id,
        topics=tuple(subscription.topics),
        owned_partitions=tuple(
            TopicPartition(owned.topic, number)
            for owned in subscription.owned_partitions
            for number in owned.partitions
        ),
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
        user_data=subscription.user_data,
    )


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    return encode_assignment(
        ConsumerAssignment(
            assigned_partitions=[
                AssignedPartitions(topic=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(partitions).items()
            ]
        )
    )


def _partition_counts(cluster: ClusterView, topics: Iterable[str]) -> dict[str, int]:
    """Of the topics that exist."""
    counts = {}
    for topic in topics:
        partitions = cluster.partitions_of(topic)
        if partitions:
            counts[topic] = len(partitions)
    return counts
