"""roundrobin: all partitions of all topics dealt one by one (K-51)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle

from odradek_client.consumer.assignors.base import Assignor, GroupMember, MemberAssignment
from odradek_client.structs import TopicPartition


class RoundRobinAssignor(Assignor):
    """Assigns the sorted partitions to the sorted members in turn. Members that do not subscribe to
    a partition's topic are skipped."""

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Iterable[GroupMember]
    ) -> MemberAssignment:
        ranked = sorted(members, key=lambda member: member.rank)
        assignment: MemberAssignment = {member.member_id: [] for member in ranked}
        wanted = {topic for member in ranked for topic in member.topics}
        around = cycle(ranked)
        for topic in sorted(wanted & set(partition_counts)):
            for number in range(partition_counts[topic]):
                # The loop ends, because at least one member subscribes to the topic.
                taker = next(member for member in around if topic in member.topics)
                assignment[taker.member_id].append(TopicPartition(topic, number))
        return assignment
