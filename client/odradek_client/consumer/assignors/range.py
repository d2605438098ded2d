"""range: consecutive partitions of each topic (K-50)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_client.consumer.assignors.base import Assignor, GroupMember, MemberAssignment
from odradek_client.structs import TopicPartition


class RangeAssignor(Assignor):
    """Assigns consecutive partitions of each topic. If a topic has n partitions and m members, the
    first n mod m members get one partition more than the others.

    Topics with equally many partitions and the same subscribers are divided in the same way, so
    that one member gets all records of a key and can join the topics by key.
    """

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Iterable[GroupMember]
    ) -> MemberAssignment:
        ranked = sorted(members, key=lambda member: member.rank)
        assignment: MemberAssignment = {member.member_id: [] for member in ranked}
        for topic in sorted(partition_counts):
            takers = [member.member_id for member in ranked if topic in member.topics]
            if not takers:
                continue
            least, more = divmod(partition_counts[topic], len(takers))
            start = 0
            for index, taker in enumerate(takers):
                end = start + least + (index < more)
                assignment[taker] += [TopicPartition(topic, n) for n in range(start, end)]
                start = end
        return assignment
