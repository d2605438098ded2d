"""sticky and cooperative-sticky: balanced, with as few moves of partitions as possible (K-52,
K-53)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from odradek_client.consumer.assignors.base import Assignor, GroupMember, MemberAssignment
from odradek_client.structs import TopicPartition, numbers_by_topic
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.constants import NO_GENERATION
from odradek_protocol.stored.sticky_user_data import (
    StickyUserData,
    decode_cooperative,
    decode_sticky,
    encode_cooperative,
    encode_sticky,
)

MemberTopics = Mapping[str, Collection[str]]
"""Member id to the existing topics that it subscribes to; in the order of members."""


def divide(
    partition_counts: Mapping[str, int],
    member_topics: MemberTopics,
    previous: Mapping[str, Iterable[TopicPartition]],
) -> MemberAssignment:
    """Assign every partition of a subscribed topic to one member that subscribes to it.

    `previous`: the earlier assignment, with no partition twice. Partitions of deleted topics, and
    of topics to which the member no longer subscribes, are ignored.
    """
    wanted = {topic for topics in member_topics.values() for topic in topics}
    everything = [
        TopicPartition(topic, number)
        for topic in sorted(wanted)
        for number in range(partition_counts[topic])
    ]
    existing = set(everything)
    assigned: MemberAssignment = {
        member: sorted(
            each for each in previous.get(member, ()) if each in existing and each.topic in topics
        )
        for member, topics in member_topics.items()
    }
    if len({frozenset(topics) for topics in member_topics.values()}) == 1:
        _divide_equal_subscriptions(everything, assigned)
    else:
        _divide_unequal_subscriptions(everything, member_topics, assigned)
    return {member: sorted(partitions) for member, partitions in assigned.items()}


def _divide_equal_subscriptions(
    everything: list[TopicPartition], assigned: MemberAssignment
) -> None:
    """Divide partitions among members with the same subscription. The quotas differ by at most one
    partition; the members that had the most partitions get the larger quota."""
    least, more = divmod(len(everything), len(assigned))
    by_size = sorted(assigned, key=lambda member: -len(assigned[member]))
    quotas = {member: least + (index < more) for index, member in enumerate(by_size)}
    for member, quota in quotas.items():
        del assigned[member][quota:]
    kept = {each for partitions in assigned.values() for each in partitions}
    left = deque(each for each in everything if each not in kept)
    below_quota = deque(member for member in assigned if len(assigned[member]) < quotas[member])
    # The rest is assigned in turn, so that the partitions of a topic are spread.
    while left:
        member = below_quota.popleft()
        assigned[member].append(left.popleft())
        if len(assigned[member]) < quotas[member]:
            below_quota.append(member)


def _divide_unequal_subscriptions(
    everything: list[TopicPartition], member_topics: MemberTopics, assigned: MemberAssignment
) -> None:
    """Divide partitions among members with different subscriptions. Free partitions are assigned to
    the members with the fewest partitions; then the numbers of partitions are balanced."""
    subscribers: dict[str, list[str]] = {}
    for member, topics in member_topics.items():
        for topic in topics:
            subscribers.setdefault(topic, []).append(member)
    previously = {member: frozenset(partitions) for member, partitions in assigned.items()}
    kept = {each for partitions in assigned.values() for each in partitions}
    free = [each for each in everything if each not in kept]
    # The partitions with the fewest possible owners are assigned first, while these owners still
    # have room.
    for partition in sorted(free, key=lambda each: len(subscribers[each.topic])):
        receiver = min(subscribers[partition.topic], key=lambda member: len(assigned[member]))
        assigned[receiver].append(partition)
    while any(
        _move_one_from(member, subscribers, assigned, previously)
        for member in _heaviest_first(assigned)
    ):
        pass


def _heaviest_first(assigned: MemberAssignment) -> list[str]:
    return sorted(assigned, key=lambda member: -len(assigned[member]))


def _move_one_from(
    member: str,
    subscribers: Mapping[str, list[str]],
    assigned: MemberAssignment,
    previously: Mapping[str, frozenset[TopicPartition]],
) -> bool:
    """Move one partition away from `member`, if a chain of moves reaches a member with at least two
    partitions fewer. False if no chain does. The search is breadth-first, so that the fewest
    partitions move."""
    light = len(assigned[member]) - 2
    if light < 0:
        return False
    came_from: dict[str, tuple[str, TopicPartition]] = {}
    seen_topics: set[str] = set()
    queue = deque([member])
    while queue:
        giver = queue.popleft()
        for topic, partition in _candidates(assigned[giver], previously[giver]).items():
            if topic in seen_topics:
                continue
            seen_topics.add(topic)
            for receiver in sorted(subscribers[topic], key=lambda each: len(assigned[each])):
                if receiver == member or receiver in came_from:
                    continue
                came_from[receiver] = (giver, partition)
                if len(assigned[receiver]) <= light:
                    _move_along(receiver, member, came_from, assigned)
                    return True
                queue.append(receiver)
    return False


def _candidates(
    partitions: list[TopicPartition], previously: frozenset[TopicPartition]
) -> dict[str, TopicPartition]:
    """A partition for each topic in `partitions`, if possible one that the member did not own
    before."""
    chosen: dict[str, TopicPartition] = {}
    for each in partitions:
        if each.topic not in chosen or chosen[each.topic] in previously:
            chosen[each.topic] = each
    # Topics with a partition that is new to the member come first.
    return dict(sorted(chosen.items(), key=lambda item: item[1] in previously))


def _move_along(
    receiver: str,
    first: str,
    came_from: Mapping[str, tuple[str, TopicPartition]],
    assigned: MemberAssignment,
) -> None:
    """Move a partition along the chain, from each member to the next."""
    while receiver != first:
        giver, partition = came_from[receiver]
        assigned[giver].remove(partition)
        assigned[receiver].append(partition)
        receiver = giver


class StickyAssignor(Assignor):
    """Assigns evenly. Members send their earlier partitions in their user data, and keep as many of
    them as possible.

    Members nevertheless revoke all partitions before they join (eager): an application can keep its
    state of a partition, but reading pauses. `CooperativeStickyAssignor` avoids the pause.
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
        """The earlier partitions of each member. If several members claim a partition, it belongs
        to the member with the highest generation; if two members claim it in the same generation,
        it belongs to neither of them."""
        return _settle({member.member_id: self._claim(member) for member in members})

    def _claim(self, member: GroupMember) -> tuple[int, Sequence[TopicPartition]]:
        """(generation, partitions) from the user data of a member."""
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
                    PartitionsOfTopic(topic=topic, partitions=numbers)
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
    """Sticky assignment: during a rebalance, members continue to read the partitions that they keep
    (KIP-429).

    The first rebalance assigns a moving partition to no member; its owner revokes it and joins
    again, and the second rebalance assigns it to the new owner.
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
