"""The lag of watched groups over time, in records and in seconds, within bounds.

Odradek's brokers report the age of a group's oldest unread record. For other brokers the
console assumes that a record was appended when the end of its partition was first seen to be after
the record. If the end was after the record when the watch began, the record is at least as old as
the watch.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek_client.admin import Admin
from odradek_client.admin.history import CurrentState, Subject
from odradek_client.errors import OdradekError, UnsupportedByBroker
from odradek_client.structs import TopicPartition
from odradek_protocol.lazy_tuple import NamedTuple

#: The maximum number of requests about single groups in flight.
_AT_ONCE = 16
_LAG = "now_lag"
#: The maximum number of points: one hour, with a point every two seconds.
_POINTS_MAX = 1_800
_ENDS_MAX = 64
#: The maximum number of groups with a history. It is larger than the number of groups on one page
#: of the list.
_GROUPS_MAX = 256
#: The maximum of `LagHistory.size`, added up over all groups.
_ALL_KEPT_MAX = 400_000


class LagPoint(NamedTuple):
    """The lag at a time. `age_ms`: the age of the oldest unread record; `at_least`: the record may
    be older. `records` and `age_ms` are None if no position is known."""

    at_ms: int
    records: int | None
    age_ms: int | None
    at_least: bool


class LagAge(NamedTuple):
    """The age of a group's oldest unread record, as its broker reports it."""

    age_ms: int
    at_least: bool


class _End(NamedTuple):
    """An end of a partition, and the times at which it was seen first and last."""

    offset: int
    since_ms: int
    until_ms: int


@dataclass
class LagHistory:
    """The lag of one group."""

    points: deque[LagPoint] = field(default_factory=lambda: deque(maxlen=_POINTS_MAX))
    _ends: dict[TopicPartition, list[_End]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of stored ends and points."""
        return sum(map(len, self._ends.values())) + len(self.points)

    def add(
        self,
        now_ms: int,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        told: LagAge | None = None,
    ) -> LagPoint:
        """Compute the lag of these positions, and add it to the points. `told`: the age that the
        broker reports."""
        records, known = 0, False
        times: list[tuple[int, bool]] = []
        for gone in self._ends.keys() - ends.keys():
            del self._ends[gone]
        for tp, end in ends.items():
            position = positions.get(tp)
            if position is None:
                continue
            known = True
            seen = self._seen(tp, end, position, now_ms)
            if position >= end:
                continue
            records += end - position
            times.append(_appended(seen, position))
        point = LagPoint(now_ms, None, None, False)
        if known:
            at_ms, exact = min(times, default=(now_ms, True))
            age = LagAge(now_ms - at_ms, not exact)
            if records and told is not None:
                age = told
            point = LagPoint(now_ms, records, age.age_ms, age.at_least)
        self.points.append(point)
        return point

    def _seen(self, tp: TopicPartition, end: int, position: int, now_ms: int) -> list[_End]:
        """The known ends of a partition, after adding `end`. Ends that are no longer needed to find
        the age of the record at `position` are dropped."""
        seen = self._ends.setdefault(tp, [])
        if seen and end < seen[-1].offset:
            # The topic was created again, or the partition was truncated.
            seen.clear()
        if seen and seen[-1].offset == end:
            seen[-1] = seen[-1]._replace(until_ms=now_ms)
        else:
            seen.append(_End(end, now_ms, now_ms))
        while len(seen) > 1 and seen[1].offset <= position:
            del seen[0]
        if len(seen) > _ENDS_MAX:
            # The first and the last end bound the age; of the ends between them, every second one
            # is dropped.
            seen[1:-1] = seen[1:-1:2]
        return seen


def _appended(seen: list[_End], position: int) -> tuple[int, bool]:
    """The time at which the record at a position was appended, and a flag: false if the record may
    be older."""
    if seen[0].offset > position:
        return seen[0].since_ms, False
    number = next(number for number, end in enumerate(seen) if end.offset > position)
    before, after = seen[number - 1], seen[number]
    share = (position - before.offset) / (after.offset - before.offset)
    return before.until_ms + int(share * (after.since_ms - before.until_ms)), True


@dataclass
class LagHistories:
    """The histories of the groups that were watched last, by group id."""

    _by_group: OrderedDict[str, LagHistory] = field(default_factory=OrderedDict)

    def of(self, group_id: str) -> LagHistory:
        """The history of a group, created if it is missing. If there are too many histories, those
        that were not used for the longest time are dropped."""
        found = self._by_group.setdefault(group_id, LagHistory())
        self._by_group.move_to_end(group_id)
        while len(self._by_group) > 1 and (
            len(self._by_group) > _GROUPS_MAX
            or sum(each.size for each in self._by_group.values()) > _ALL_KEPT_MAX
        ):
            self._by_group.popitem(last=False)
        return found


async def states_of_each(
    admin: Admin, names: Iterable[str], subject: Subject = Subject.GROUP
) -> dict[str, dict[str, CurrentState]]:
    """The states that the broker reports of each group, or other subject, by name. Empty for
    brokers other than Odradek's; subjects that cannot be described are left out."""
    turn = asyncio.Semaphore(_AT_ONCE)
    found: dict[str, dict[str, CurrentState]] = {}
    silent = False

    async def ask(name: str) -> None:
        nonlocal silent
        async with turn:
            if silent:
                return
            try:
                histories = await admin.describe_history(subject, name, limit=0)
            except UnsupportedByBroker:
                silent = True
            except OdradekError:
                return
            else:
                states = [state for each in histories for state in each.states]
                found[name] = {state.name: state for state in states}

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(ask(name))
    return found


def age_of(details: Mapping[str, Mapping[str, str]]) -> LagAge | None:
    """The age of the oldest unread record, if one of the states of a group reports it."""
    lag = details.get(_LAG)
    return None if lag is None else LagAge(int(lag["age_ms"]), "bound" in lag)


async def committed_offsets(admin: Admin, group_id: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group."""
    committed = await admin.list_group_offsets(group_id)
    return {tp: position.offset for tp, position in committed.items() if position is not None}


async def end_offsets(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The end of each partition. Partitions of deleted topics, and of topics that the principal may
    not describe, are left out."""
    wanted = sorted(partitions)
    if not wanted:
        return {}
    found = await admin.list_offsets(dict.fromkeys(wanted, "latest"), raise_errors=False)
    return {tp: end.offset for tp, end in found.items() if end is not None}
