"""sticky and cooperative-sticky: balanced, with partitions left where they are (K-52, K-53)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from odradek_client.consumer.assignors.balance import divide
from odradek_client.consumer.assignors.base import Assignor, GroupMember, MemberAssignment
from odradek_client.structs import TopicPartition, numbers_by_topic
from odradek_protocol.constants import NO_GENERATION
from odradek_protocol.stored.sticky_user_data import (
    PreviousPartitions,
    StickyUserData,
    decode_cooperative,
    decode_sticky,
    encode_cooperative,
    encode_sticky,
)


class StickyAssignor(Assignor):
    """Balanced; members tell in their user data what they had, and keep as much of it as that
    allows.

    Members give everything up before they join all the same (eager): what is spared is state that an
    application keeps by partition. `CooperativeStickyAssignor` spares the pause as well.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._had: list[TopicPartition] | None = None
        self._generation = NO_GENERATION

    def assign(
        self, partition_counts: Mapping[str, int], members: Iterable[GroupMember]
    ) -> MemberAssignment:
        ranked = sorted(members, key=lambda member: member.rank)
        wants = {
            member.member_id: [topic for topic in member.topics if topic in partition_counts]
            for member in ranked
        }
        return divide(partition_counts, wants, self._owners(ranked)) if wants else {}

    def _owners(self, members: Iterable[GroupMember]) -> dict[str, list[TopicPartition]]:
        """The partitions each member had: the highest generation counts, and of two members that
        claim a partition of the same generation neither."""
        return _settle({member.member_id: self._claim(member) for member in members})

    def _claim(self, member: GroupMember) -> tuple[int, Sequence[TopicPartition]]:
        """(generation, what the member had in it)."""
        said = decode_sticky(member.user_data)
        return said.generation, [
            TopicPartition(each.topic, number)
            for each in said.previous_assignment
            for number in each.partitions
        ]

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        if self._had is None:
            return None
        return encode_sticky(
            StickyUserData(
                previous_assignment=[
                    PreviousPartitions(topic=topic, partitions=numbers)
                    for topic, numbers in numbers_by_topic(self._had).items()
                ],
                generation=self._generation,
            )
        )

    def on_assignment(
        self, assignment: list[TopicPartition], user_data: bytes | None, generation_id: int
    ) -> None:
        self._had, self._generation = list(assignment), generation_id


class CooperativeStickyAssignor(StickyAssignor):
    """As sticky, and members go on reading what they keep while the group is rebalanced (KIP-429).

    A partition that changes hands is given to nobody at first; its holder sees that, gives it up and
    joins again, and that second rebalance gives it to the new one.
    """

    name = "cooperative-sticky"
    cooperative = True

    def assign(
        self, partition_counts: Mapping[str, int], members: Iterable[GroupMember]
    ) -> MemberAssignment:
        members = list(members)
        target = super().assign(partition_counts, members)
        owners = {member_id: set(had) for member_id, had in self._owners(members).items()}
        claimed = {partition for member in members for partition in member.owned_partitions}
        return {
            member_id: [each for each in given if each not in claimed or each in owners[member_id]]
            for member_id, given in target.items()
        }

    def _claim(self, member: GroupMember) -> tuple[int, Sequence[TopicPartition]]:
        generation = member.generation_id
        if generation == NO_GENERATION:
            generation = decode_cooperative(member.user_data)
        return generation, member.owned_partitions

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        return encode_cooperative(self._generation)


def _settle(
    claims: Mapping[str, tuple[int, Sequence[TopicPartition]]],
) -> dict[str, list[TopicPartition]]:
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (generation, partitions) in claims.items():
        for partition in dict.fromkeys(partitions):
            known = best.get(partition)
            if known is None or generation > known[0]:
                best[partition] = (generation, member_id)
            elif generation == known[0]:
                best[partition] = (generation, None)
    had: dict[str, list[TopicPartition]] = {member_id: [] for member_id in claims}
    for partition, (_, owner) in best.items():
        if owner is not None:
            had[owner].append(partition)
    return had
