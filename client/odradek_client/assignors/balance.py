"""Partitions divided evenly, and moved as little as that allows: what both sticky assignors share (K-52).

Even: no chain of handovers from one member to the next, along their subscriptions, would take a
partition from a member and leave it with at least as many as the end of the chain then has. When all
members want the same topics that means counts that differ by one at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from odradek_client.assignors.base import MemberAssignment
from odradek_client.consumer.types import TopicPartition

Wants = Mapping[str, Collection[str]]
"""Member id to the topics it wants that exist; in the order of members."""


def divide(
    partition_counts: Mapping[str, int],
    wants: Wants,
    previous: Mapping[str, Iterable[TopicPartition]],
) -> MemberAssignment:
    """Every partition of a wanted topic to one member that wants it.

    `previous`: who had what; no partition twice. What cannot be kept is left out here: partitions of
    topics that are gone, or that the member does not want any more.
    """
    wanted = {topic for topics in wants.values() for topic in topics}
    everything = [
        TopicPartition(topic, number)
        for topic in sorted(wanted)
        for number in range(partition_counts[topic])
    ]
    existing = set(everything)
    held: MemberAssignment = {
        member: sorted(
            each for each in previous.get(member, ()) if each in existing and each.topic in topics
        )
        for member, topics in wants.items()
    }
    if len({frozenset(topics) for topics in wants.values()}) == 1:
        _divide_alike(everything, held)
    else:
        _divide_unlike(everything, wants, held)
    return {member: sorted(partitions) for member, partitions in held.items()}


def _divide_alike(everything: list[TopicPartition], held: MemberAssignment) -> None:
    """All members want the same: each gets its quota, those that had most the larger one."""
    least, more = divmod(len(everything), len(held))
    by_size = sorted(held, key=lambda member: -len(held[member]))
    quotas = {member: least + (index < more) for index, member in enumerate(by_size)}
    for member, quota in quotas.items():
        del held[member][quota:]
    kept = {each for partitions in held.values() for each in partitions}
    left = deque(each for each in everything if each not in kept)
    hungry = deque(member for member in held if len(held[member]) < quotas[member])
    # Dealt in turn, so that the partitions of one topic are spread.
    while left:
        member = hungry.popleft()
        held[member].append(left.popleft())
        if len(held[member]) < quotas[member]:
            hungry.append(member)


def _divide_unlike(everything: list[TopicPartition], wants: Wants, held: MemberAssignment) -> None:
    """Members want different topics: what is free goes to who has least, then loads are evened."""
    takers: dict[str, list[str]] = {}
    for member, topics in wants.items():
        for topic in topics:
            takers.setdefault(topic, []).append(member)
    previously = {member: frozenset(partitions) for member, partitions in held.items()}
    kept = {each for partitions in held.values() for each in partitions}
    free = [each for each in everything if each not in kept]
    # The pickiest first: the fewer may take a partition, the less there is to choose later.
    for partition in sorted(free, key=lambda each: len(takers[each.topic])):
        taker = min(takers[partition.topic], key=lambda member: len(held[member]))
        held[taker].append(partition)
    while any(_relieve(member, takers, held, previously) for member in _heaviest_first(held)):
        pass


def _heaviest_first(held: MemberAssignment) -> list[str]:
    return sorted(held, key=lambda member: -len(held[member]))


def _relieve(
    member: str,
    takers: Mapping[str, list[str]],
    held: MemberAssignment,
    previously: Mapping[str, frozenset[TopicPartition]],
) -> bool:
    """Take one partition from `member`, if somebody with at least two fewer is in reach. Breadth
    first, so that the fewest partitions move."""
    light = len(held[member]) - 2
    if light < 0:
        return False
    came_from: dict[str, tuple[str, TopicPartition]] = {}
    seen_topics: set[str] = set()
    queue = deque([member])
    while queue:
        giver = queue.popleft()
        for topic, partition in _to_give(held[giver], previously[giver]).items():
            if topic in seen_topics:
                continue
            seen_topics.add(topic)
            for taker in sorted(takers[topic], key=lambda each: len(held[each])):
                if taker == member or taker in came_from:
                    continue
                came_from[taker] = (giver, partition)
                if len(held[taker]) <= light:
                    _hand_over(taker, member, came_from, held)
                    return True
                queue.append(taker)
    return False


def _to_give(
    partitions: list[TopicPartition], previously: frozenset[TopicPartition]
) -> dict[str, TopicPartition]:
    """One of each topic, rather one that the member did not have before."""
    chosen: dict[str, TopicPartition] = {}
    for each in partitions:
        if each.topic not in chosen or chosen[each.topic] in previously:
            chosen[each.topic] = each
    # Topics first of which something new may be given.
    return dict(sorted(chosen.items(), key=lambda item: item[1] in previously))


def _hand_over(
    taker: str,
    first: str,
    came_from: Mapping[str, tuple[str, TopicPartition]],
    held: MemberAssignment,
) -> None:
    """Each member of the chain gives its partition to the next."""
    while taker != first:
        giver, partition = came_from[taker]
        held[giver].remove(partition)
        held[taker].append(partition)
        taker = giver
