"""The broker's assignors: range and uniform (rules G-140 to G-142).

The assignors are pure functions: they compute the new targets from the members' subscriptions, the
topics' numbers of partitions and the present targets. Each partition of a subscribed topic is
assigned to exactly one of its subscribers.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import field
from operator import attrgetter
from typing import Any

from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    partitions_of,
)
from odradek_broker.slices import in_pieces, pause_in_change
from odradek_protocol.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as input of an assignor. `topics`: ids; `current`: the member's present target."""

    member_id: str
    instance_id: str | None = None
    topics: frozenset[bytes] = frozenset()
    current: Partitions = field(default_factory=dict)


Assignment = dict[str, Partitions]
Assignor = Callable[[Sequence[Subscriber], Mapping[bytes, int]], Coroutine[Any, Any, Assignment]]
"""(members, topic id -> partition count) -> member id -> partitions."""


# --- range (G-141) ---


async def assign_range(members: Sequence[Subscriber], counts: Mapping[bytes, int]) -> Assignment:
    """Assign neighbouring partitions of every topic to each of its subscribers.

    If the number of partitions is not divisible by the number of subscribers, each of the first
    members gets one partition more. Topics with the same subscribers and the same number of
    partitions are divided in the same way, so that one member gets all records with the same key.
    Static members are ordered by their instance ids, which survive a restart.
    """
    order = [
        members[place]
        for _, _, place in sorted(
            (member.instance_id is None, member.instance_id or member.member_id, place)
            for place, member in enumerate(members)
        )
    ]
    given: dict[str, list[tuple[bytes, Iterable[int]]]] = {each.member_id: [] for each in members}
    subscriptions = {member.topics for member in members}
    subscribers_of: dict[frozenset[frozenset[bytes]], list[Subscriber]] = {}
    async for topics_and_counts in in_pieces(counts.items()):
        for topic_id, count in topics_and_counts:
            fitting = frozenset(topics for topics in subscriptions if topic_id in topics)
            subscribers = subscribers_of.get(fitting)
            if subscribers is None:
                subscribers = [member for member in order if member.topics in fitting]
                subscribers_of[fitting] = subscribers
            if not subscribers:
                continue
            least, longer = divmod(count, len(subscribers))
            start = 0
            async for some in in_pieces(enumerate(subscribers if least else subscribers[:longer])):
                for place, member in some:
                    end = start + least + (place < longer)
                    given[member.member_id].append((topic_id, range(start, end)))
                    start = end
    return {
        member_id: partitions_of(parts)
        async for several in in_pieces(given.items())
        for member_id, parts in several
    }


# --- uniform (G-140) ---


async def assign_uniform(members: Sequence[Subscriber], counts: Mapping[bytes, int]) -> Assignment:
    """The most even assignment that the subscriptions allow, with as few moves as possible.

    A move gives a partition to another subscriber of its topic. An assignment is even if no chain
    of moves leads from a member to another member that has at least two partitions fewer. The
    search for chains ends after SEARCH_STEPS_MAX steps; only members with hundreds of different
    subscriptions need so many.
    """
    return await _Uniform(members, counts).assign()


#: The limit of the topics and kinds of members that the searches for chains of one assignment
#: look at.
SEARCH_STEPS_MAX = 200_000
#: The number of these between two pauses.
_STEPS_IN_PIECE = 500


class _Kind:
    """The members with one subscription: they take the same partitions, so a search for a taker
    need not look at each of them.

    `holders`: topic -> the members of this kind that have partitions of the topic, as the keys of a
    dict. `stuck_at`: a search for a member with at least two partitions fewer than this number
    ended without result at this kind; -1: there was no such search.
    """

    def __init__(self, topics: frozenset[bytes]) -> None:
        self.topics = topics
        self.member_ids: list[str] = []
        self.loads: list[tuple[int, str]] = []
        self.holders: dict[bytes, dict[str, None]] = {}
        self.stuck_at = -1


class _Uniform:
    """A single run of the uniform assignor. `assigned`: member -> topic -> sorted partitions;
    `loads`: member -> number of its partitions.

    The members with the fewest partitions are found in heaps of (load, member). When the load of a
    member changes, a new entry is added; the old entry is dropped when it comes to the top.
    """

    def __init__(self, members: Sequence[Subscriber], counts: Mapping[bytes, int]) -> None:
        self.members = members
        self.counts = counts
        self.steps_left = SEARCH_STEPS_MAX
        self.steps_in_piece = 0
        self.assigned: dict[str, dict[bytes, list[int]]] = {}
        self.kind_of: dict[str, _Kind] = {}
        self.kinds: dict[bytes, list[_Kind]] = {topic_id: [] for topic_id in counts}
        self.loads: dict[str, int] = {}
        self.stuck: list[_Kind] = []
        self.lightest: list[tuple[int, str]] = []

    async def _sort(self) -> None:
        """Find the kinds of members."""
        by_topics: dict[frozenset[bytes], _Kind] = {}
        ordered = sorted(self.members, key=attrgetter("member_id"))
        async for some in in_pieces(ordered):
            for member in some:
                kind = by_topics.get(member.topics)
                if kind is None:
                    known = frozenset(each for each in member.topics if each in self.counts)
                    kind = by_topics[member.topics] = by_topics.setdefault(known, _Kind(known))
                kind.member_ids.append(member.member_id)
                self.kind_of[member.member_id] = kind
                self.assigned[member.member_id] = {}
        every_kind = dict.fromkeys(by_topics.values())
        self.number_of_kinds = len(every_kind)
        for kind in every_kind:
            async for several in in_pieces(kind.topics):
                for topic_id in several:
                    self.kinds[topic_id].append(kind)

    async def _keep(self) -> None:
        self.loads = dict.fromkeys(self.assigned, 0)
        taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in self.counts}
        async for some in in_pieces(self.members):
            for member in some:
                kind = self.kind_of[member.member_id]
                async for parts in in_pieces(member.current.items()):
                    for topic_id, indexes in parts:
                        if topic_id not in kind.topics:
                            continue
                        count = self.counts[topic_id]
                        kept = {index for index in indexes if index < count} - taken[topic_id]
                        if kept:
                            taken[topic_id] |= kept
                            self.assigned[member.member_id][topic_id] = sorted(kept)
                            self.loads[member.member_id] += len(kept)
                            kind.holders.setdefault(topic_id, {})[member.member_id] = None
        self.free = {
            topic_id: [index for index in range(count) if index not in taken[topic_id]]
            for topic_id, count in self.counts.items()
        }
        async for noted in in_pieces(self.loads.items()):
            for member_id, load in noted:
                self._note_load(member_id, load)

    async def assign(self) -> Assignment:
        await self._sort()
        await self._keep()
        await self._give_free()
        if self.loads:
            # Begin with the members above the average, so that no member gives partitions away and
            # then gets other partitions.
            self.total = sum(self.loads.values())
            average = -(-self.total // len(self.loads))
            for down_to in (average, 0):
                while await self._even_out(down_to):
                    pass
        return {
            member_id: partitions_of(assigned.items()) if assigned else NO_PARTITIONS
            async for some in in_pieces(self.assigned.items())
            for member_id, assigned in some
        }

    # --- Loads ---

    def _note_load(self, member_id: str, load: int) -> None:
        self.loads[member_id] = load
        heapq.heappush(self.kind_of[member_id].loads, (load, member_id))
        heapq.heappush(self.lightest, (load, member_id))

    def _least(self, heap: list[tuple[int, str]]) -> tuple[int, str]:
        """The (load, member) with the least load in a heap of `_note_load`, which has an entry of
        each member."""
        while self.loads[heap[0][1]] != heap[0][0]:
            heapq.heappop(heap)
        return heap[0]

    # --- Partitions ---

    async def _give_free(self) -> None:
        """Give each unassigned partition to the subscriber with the fewest partitions. The topics
        with the fewest subscribers come first."""
        topics = [
            (sum([len(kind.member_ids) for kind in kinds]), topic_id)
            async for several in in_pieces(self.kinds.items())
            for topic_id, kinds in several
            if kinds and self.free[topic_id]
        ]
        async for few in in_pieces(sorted(topics)):
            for _, topic_id in few:
                await self._give(topic_id)

    async def _give(self, topic_id: bytes) -> None:
        kinds = self.kinds[topic_id]
        heap = [(self._least(kind.loads), at) for at, kind in enumerate(kinds)]
        heapq.heapify(heap)
        async for some in in_pieces(self.free[topic_id]):
            for index in some:
                (load, member_id), at = heap[0]
                self._receive(member_id, topic_id, [index])
                self._note_load(member_id, load + 1)
                heapq.heapreplace(heap, (self._least(kinds[at].loads), at))

    def _receive(self, member_id: str, topic_id: bytes, indexes: Sequence[int]) -> None:
        held = self.assigned[member_id].setdefault(topic_id, [])
        for index in indexes:
            bisect.insort(held, index)
        self.kind_of[member_id].holders.setdefault(topic_id, {})[member_id] = None

    def _take(self, member_id: str, topic_id: bytes, number: int) -> list[int]:
        """Take the last partitions of a topic from a member."""
        held = self.assigned[member_id][topic_id]
        taken = held[-number:]
        del held[-number:]
        if not held:
            del self.assigned[member_id][topic_id]
            holders = self.kind_of[member_id].holders
            del holders[topic_id][member_id]
            if not holders[topic_id]:
                del holders[topic_id]
        return taken

    async def _even_out(self, down_to: int) -> bool:
        """Move partitions away from each member with more than `down_to` partitions, beginning with
        the most loaded member; True if any partition was moved."""
        moved = False
        heaviest_first = sorted((-load, member_id) for member_id, load in self.loads.items())
        async for some in in_pieces(heaviest_first):
            for _, member_id in some:
                while self.loads[member_id] >= max(down_to + 1, self._least(self.lightest)[0] + 2):
                    path = await self._path_from(member_id)
                    if path is None:
                        break
                    self._move_along(path)
                    moved = True
        return moved

    async def _path_from(self, source: str) -> list[tuple[str, bytes, str]] | None:
        """The shortest chain of moves (giver, topic, taker) to a member with at least two
        partitions fewer.

        If several chains have the same length, the chain to the member with the fewest partitions
        is chosen. The search goes from kind to kind: a kind is reached by a topic that the source,
        or a member of a kind reached before, can give. Kinds from which an earlier search found no
        taker are left out.
        """
        load = self.loads[source]
        came: dict[_Kind, tuple[_Kind | None, bytes]] = {}
        seen_topics: set[bytes] = set()
        ring: list[tuple[_Kind | None, Iterable[bytes]]] = [(None, self.assigned[source])]
        while ring:
            reached: list[_Kind] = []
            for giver, topics in ring:
                for topic_id in topics:
                    if len(came) == self.number_of_kinds:
                        break
                    if topic_id in seen_topics:
                        continue
                    seen_topics.add(topic_id)
                    steps = 1 + len(self.kinds[topic_id])
                    self.steps_left -= steps
                    if self.steps_left < 0:
                        return None
                    self.steps_in_piece += steps
                    if self.steps_in_piece > _STEPS_IN_PIECE:
                        self.steps_in_piece = 0
                        await pause_in_change()
                    for kind in self.kinds[topic_id]:
                        if kind not in came and kind.stuck_at < load:
                            came[kind] = (giver, topic_id)
                            reached.append(kind)
            if reached:
                least, taker = min(self._least(kind.loads) for kind in reached)
                if least <= load - 2:
                    return self._chain(source, taker, came)
            ring = [(kind, kind.holders) for kind in reached]
        for kind in came:
            kind.stuck_at = load
        self.stuck += came
        return None

    def _chain(
        self, source: str, taker: str, came: Mapping[_Kind, tuple[_Kind | None, bytes]]
    ) -> list[tuple[str, bytes, str]]:
        path = []
        kind: _Kind | None = self.kind_of[taker]
        while kind is not None:
            kind, topic_id = came[kind]
            giver = source if kind is None else next(iter(kind.holders[topic_id]))
            path.append((giver, topic_id, taker))
            taker = giver
        return path[::-1]

    def _move_along(self, path: list[tuple[str, bytes, str]]) -> None:
        """Make every step of the chain move the same number of partitions, at least one. No giver
        gives more partitions than it has. If more than one partition is moved, the first member
        stays at or above the average load, and the last member at or below the average load, since
        any further partition would have to be moved back."""
        first, last = path[0][0], path[-1][2]
        surplus = self.loads[first] - -(-self.total // len(self.loads))
        room = self.total // len(self.loads) - self.loads[last]
        number = min(surplus, room, *(len(self.assigned[giver][moved]) for giver, moved, _ in path))
        number = max(number, 1)
        for giver, topic_id, taker in path:
            self._receive(taker, topic_id, self._take(giver, topic_id, number))
        if any(self.kind_of[taker].stuck_at >= 0 for _, _, taker in path):
            # What this taker has now may lead on to others.
            for kind in self.stuck:
                kind.stuck_at = -1
            self.stuck.clear()
        self._note_load(first, self.loads[first] - number)
        self._note_load(last, self.loads[last] + number)


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors, by the names that members and `group.consumer.assignors` use."""
