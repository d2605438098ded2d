"""The assignor of share groups, Kafka's `simple` (rule H-06).

The assignor is a pure function: it computes the new targets from the members' subscriptions, the
present targets, and the share partitions that have a state. Unlike in consumer groups, several
members may have the same partition: if there are more members than partitions, each partition is
assigned to several members, so that every member has a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil

from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    partitions_of,
)
from odradek_broker.slices import in_pieces, pause_in_change

#: The number of members that are looked at between two pauses.
_LOOKS_IN_PIECE = 200

#: The name of the assignor in descriptions of groups.
ASSIGNOR_NAME = "simple"

Partition = tuple[bytes, int]
"""Topic id and index."""


async def assign_simple(
    subscriptions: Mapping[str, frozenset[bytes]],
    current: Mapping[str, Partitions],
    available: Partitions,
) -> dict[str, Partitions]:
    """The new targets by member id.

    `subscriptions`: member id to topic ids. `current`: the present targets. `available`: the
    partitions that may be assigned. If all members have the same subscription, the partitions of
    all topics are divided among them as one list; otherwise the partitions of each topic are
    divided separately, as in Kafka.
    """
    members = sorted(subscriptions)
    subscribers: dict[bytes, list[str]] = {}
    if len(set(subscriptions.values())) == 1:
        # All members share one list, so that nobody looks at each topic of each member.
        subscribers = dict.fromkeys(subscriptions[members[0]] & available.keys(), members)
    else:
        async for some in in_pieces(members):
            for member_id in some:
                for topic_id in subscriptions[member_id] & available.keys():
                    subscribers.setdefault(topic_id, []).append(member_id)
    wanted = [
        (subscribers[topic_id], [(topic_id, index) for index in sorted(available[topic_id])])
        for topic_id in sorted(subscribers)
    ]
    assigned: dict[str, set[Partition]] = {member_id: set() for member_id in members}
    divided: Iterable[tuple[Sequence[str], Sequence[Partition]]] = wanted
    if len(set(subscriptions.values())) == 1:
        divided = [(members, [partition for _, several in wanted for partition in several])]
    for takers, partitions in divided:
        shared = await _divide(takers, partitions, current)
        for member_id, given in shared.items():
            assigned[member_id] |= given
    return {
        member_id: _by_topic(given)
        async for several in in_pieces(assigned.items())
        for member_id, given in several
    }


def _by_topic(given: Collection[Partition]) -> Partitions:
    indexes: dict[bytes, list[int]] = {}
    for topic_id, index in given:
        indexes.setdefault(topic_id, []).append(index)
    return partitions_of(indexes.items())


async def _divide(
    members: Sequence[str], partitions: Sequence[Partition], current: Mapping[str, Partitions]
) -> dict[str, set[Partition]]:
    """Divide the partitions among `members`. Each member gets its number of partitions from
    `_shares`, and keeps its present partitions where possible."""
    if not partitions:
        return {}
    sharing, shares = _shares(len(members), len(partitions))
    holders: dict[Partition, list[str]] = {partition: [] for partition in partitions}
    kept: dict[str, set[Partition]] = {}
    topics = {topic_id for topic_id, _ in partitions}
    async for some in in_pieces(zip(members, shares, strict=True)):
        for member_id, share in some:
            target = current.get(member_id, NO_PARTITIONS)
            present = [
                (topic_id, index)
                for topic_id in target.keys() & topics
                for index in target[topic_id]
                if (topic_id, index) in holders
            ]
            kept[member_id] = set(sorted(present)[:share])
            for partition in kept[member_id]:
                holders[partition].append(member_id)
    async for several in in_pieces(holders.items()):
        for partition, held_by in several:
            for member_id in held_by[sharing:]:
                kept[member_id].discard(partition)
            del held_by[sharing:]
    missing = {partition: sharing - len(held_by) for partition, held_by in holders.items()}
    await _give(dict(zip(members, shares, strict=True)), missing, kept)
    return kept


def _shares(members: int, partitions: int) -> tuple[int, list[int]]:
    """The number of members to which each partition is assigned, and for each member its number of
    partitions. The numbers of two members differ by one at most."""
    sharing = -(-members // partitions)
    each = sharing * partitions / members
    return sharing, [ceil(each * (place + 1)) - ceil(each * place) for place in range(members)]


async def _give(
    shares: Mapping[str, int], missing: Mapping[Partition, int], kept: Mapping[str, set[Partition]]
) -> None:
    """Give each partition to `missing[partition]` further members, taking the members with too few
    partitions in turn.

    A partition that all of these members already have is given to fewer further members.
    """
    unfilled = [member_id for member_id, share in shares.items() if len(kept[member_id]) < share]
    turn = 0
    looks = 0
    for partition, number in missing.items():
        skipped = 0
        while number > 0 and skipped < len(unfilled):
            looks += 1
            if not looks % _LOOKS_IN_PIECE:
                await pause_in_change()
            turn %= len(unfilled)
            member_id = unfilled[turn]
            if partition in kept[member_id]:
                skipped += 1
                turn += 1
                continue
            kept[member_id].add(partition)
            number -= 1
            skipped = 0
            if len(kept[member_id]) >= shares[member_id]:
                del unfilled[turn]
            else:
                turn += 1
