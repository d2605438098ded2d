"""The broker's assignors: range and uniform (rules G-140 to G-142).

The assignors are pure functions: they compute the new targets from the members' subscriptions, the
topics' numbers of partitions and the present targets. Each partition of a subscribed topic is
assigned to exactly one of its subscribers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    each_partition,
    partitions_of,
)
from odradek_protocol.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as input of an assignor. `topics`: ids; `current`: the member's present target."""

    member_id: str
    instance_id: str | None = None
    topics: frozenset[bytes] = frozenset()
    current: Partitions = field(default_factory=dict)


Assignment = dict[str, Partitions]
Assignor = Callable[[Sequence[Subscriber], Mapping[bytes, int]], Assignment]
"""(members, topic id -> partition count) -> member id -> partitions."""


# --- range (G-141) ---


def assign_range(members: Sequence[Subscriber], counts: Mapping[bytes, int]) -> Assignment:
    """Assign neighbouring partitions of every topic to each of its subscribers.

    If the number of partitions is not divisible by the number of subscribers, each of the first
    members gets one partition more. Topics with the same subscribers and the same number of
    partitions are divided in the same way, so that one member gets all records with the same key.
    Static members are ordered by their instance ids, which survive a restart.
    """
    order = sorted(
        members,
        key=lambda member: (member.instance_id is None, member.instance_id or member.member_id),
    )
    given: dict[str, list[tuple[bytes, Iterable[int]]]] = {each.member_id: [] for each in members}
    for topic_id, count in counts.items():
        subscribers = [member for member in order if topic_id in member.topics]
        if not subscribers:
            continue
        least, longer = divmod(count, len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            end = start + least + (place < longer)
            given[member.member_id].append((topic_id, range(start, end)))
            start = end
    return {member_id: partitions_of(parts) for member_id, parts in given.items()}


# --- uniform (G-140) ---


def assign_uniform(members: Sequence[Subscriber], counts: Mapping[bytes, int]) -> Assignment:
    """The most even assignment that the subscriptions allow, with as few moves as possible.

    A move gives a partition to another subscriber of its topic. An assignment is even if no chain
    of moves leads from a member to another member that has at least two partitions fewer.
    """
    return _Uniform(members, counts).assign()


class _Uniform:
    """A single run of the uniform assignor. `assigned`: member -> topic -> partitions; `loads`:
    member -> number of its partitions."""

    def __init__(self, members: Sequence[Subscriber], counts: Mapping[bytes, int]) -> None:
        self.counts = counts
        self.topics = {
            member.member_id: frozenset(each for each in member.topics if each in counts)
            for member in members
        }
        self.subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in counts}
        for member_id in sorted(self.topics):
            for topic_id in self.topics[member_id]:
                self.subscribers[topic_id].append(member_id)
        self.assigned: dict[str, dict[bytes, set[int]]] = {
            member_id: {} for member_id in self.topics
        }
        self.loads: dict[str, int] = dict.fromkeys(self.topics, 0)
        self._keep(members)

    def _keep(self, members: Sequence[Subscriber]) -> None:
        taken: set[tuple[bytes, int]] = set()
        for member in members:
            for topic_id, index in each_partition(member.current):
                there = topic_id in self.topics[member.member_id] and index < self.counts[topic_id]
                if there and (topic_id, index) not in taken:
                    taken.add((topic_id, index))
                    self._give(member.member_id, topic_id, index)
        self.free = {
            topic_id: [index for index in range(count) if (topic_id, index) not in taken]
            for topic_id, count in self.counts.items()
        }

    def assign(self) -> Assignment:
        self._give_free()
        if self.loads:
            # Begin with the members above the average, so that no member gives partitions away and
            # then gets other partitions.
            average = -(-sum(self.loads.values()) // len(self.loads))
            for down_to in (average, 0):
                while self._even_out(down_to):
                    pass
        return {
            member_id: partitions_of(assigned.items()) if assigned else NO_PARTITIONS
            for member_id, assigned in self.assigned.items()
        }

    def _give(self, member_id: str, topic_id: bytes, index: int) -> None:
        self.assigned[member_id].setdefault(topic_id, set()).add(index)
        self.loads[member_id] += 1

    def _give_free(self) -> None:
        """Give each unassigned partition to the subscriber with the fewest partitions. The topics
        with the fewest subscribers come first."""
        for topic_id in sorted(self.free, key=lambda each: (len(self.subscribers[each]), each)):
            subscribers = self.subscribers[topic_id]
            if not subscribers:
                continue
            heap = [(self.loads[member_id], member_id) for member_id in subscribers]
            heapq.heapify(heap)
            for index in self.free[topic_id]:
                load, member_id = heap[0]
                self._give(member_id, topic_id, index)
                heapq.heapreplace(heap, (load + 1, member_id))

    def _even_out(self, down_to: int) -> bool:
        """Move partitions away from each member with more than `down_to` partitions, beginning with
        the most loaded member; True if any partition was moved."""
        moved = False
        for member_id in sorted(self.loads, key=lambda each: (-self.loads[each], each)):
            while self.loads[member_id] >= max(down_to + 1, min(self.loads.values()) + 2):
                path = self._path_from(member_id)
                if path is None:
                    break
                self._move_along(path)
                moved = True
        return moved

    def _path_from(self, source: str) -> list[tuple[str, bytes, str]] | None:
        """The shortest chain of moves (giver, topic, taker) to a member with at least two
        partitions fewer.

        If several chains have the same length, the chain to the member with the fewest partitions
        is chosen.
        """
        came: dict[str, tuple[str, bytes]] = {}
        seen_topics: set[bytes] = set()
        ring = [source]
        while ring:
            found = [each for each in ring if self.loads[each] <= self.loads[source] - 2]
            if found:
                taker = min(found, key=lambda each: (self.loads[each], each))
                path = []
                while taker != source:
                    giver, topic_id = came[taker]
                    path.append((giver, topic_id, taker))
                    taker = giver
                return path[::-1]
            after = []
            for giver in ring:
                for topic_id in self.assigned[giver]:
                    if topic_id in seen_topics:
                        continue
                    seen_topics.add(topic_id)
                    for taker in self.subscribers[topic_id]:
                        if taker != source and taker not in came:
                            came[taker] = (giver, topic_id)
                            after.append(taker)
            ring = after
        return None

    def _move_along(self, path: list[tuple[str, bytes, str]]) -> None:
        """Make every step of the chain move the same number of partitions, at least one. No giver
        gives more partitions than it has. If more than one partition is moved, the first member
        stays at or above the average load, and the last member at or below the average load, since
        any further partition would have to be moved back."""
        first, last = path[0][0], path[-1][2]
        total, members = sum(self.loads.values()), len(self.loads)
        surplus = self.loads[first] - -(-total // members)
        room = total // members - self.loads[last]
        number = min(surplus, room, *(len(self.assigned[giver][moved]) for giver, moved, _ in path))
        number = max(number, 1)
        for giver, topic_id, taker in path:
            source = self.assigned[giver][topic_id]
            for index in sorted(source)[-number:]:
                source.remove(index)
                self.assigned[taker].setdefault(topic_id, set()).add(index)
            if not source:
                del self.assigned[giver][topic_id]
        self.loads[first] -= number
        self.loads[last] += number


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors, by the names that members and `group.consumer.assignors` use."""
