"""Figures of groups (members, topics and lag), for the groups on a page and for all groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from odradek_client.admin import Admin, GroupListing
from odradek_client.admin.history import CurrentState
from odradek_client.errors import OdradekError
from odradek_client.structs import TopicPartition
from odradek_console.answers import Json
from odradek_console.sessions import ConsoleSession
from odradek_records.lag import (
    LagHistories,
    age_of,
    committed_offsets,
    end_offsets,
    states_of_each,
)

_KEEP_MS = 3_000
#: The time for which the figures of all groups are kept. It is longer than `_KEEP_MS`, because
#: these figures cost brokers more work than others.
_KEEP_ALL_MS = 30_000
#: The maximum number of groups whose figures are requested together.
_CHUNK = 200
#: The maximum number of requests about single groups in flight.
_AT_ONCE = 16
#: The maximum number of groups whose figures are kept.
_REMEMBERED_MAX = 50_000
#: The time limit for a page's wait for the figures of all groups. The page's next request gets
#: figures that were not ready in time.
_PATIENCE_S = 1.0
_VERDICT = "now_verdict"
SHARE_KIND, STREAMS_KIND = "share", "streams"


Offsets = dict[TopicPartition, int]


@dataclass
class GroupFigures:
    """The figures of a group; None for figures that are not available.

    `lag`: the number of records that the group has not read; `lag_ms`: the age of the oldest of
    these records, or only a lower bound of the age if `lag_at_least` is true. `verdict`: the
    broker's verdict, with its sentence; None if the broker has none.
    """

    members: int | None = None
    topics: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    lag_at_least: bool = False
    missing: str | None = None
    verdict: Json | None = None


@dataclass
class AllFigures:
    """The figures of all groups, as far as they are known, by group id."""

    known: dict[str, GroupFigures] = field(default_factory=dict)


async def list_groups(session: ConsoleSession) -> list[GroupListing]:
    """All groups that the principal may see, by name."""
    return await session.cached("groups", _KEEP_MS, lambda admin: admin.list_groups())


async def figures_of(
    session: ConsoleSession, groups: Sequence[GroupListing]
) -> dict[str, GroupFigures]:
    """The figures and verdicts of the groups on a page."""
    if not groups:
        return {}

    async def ask(admin: Admin) -> dict[str, GroupFigures]:
        found, watched = await _figures(admin, groups)
        states = await states_of_each(admin, found)
        histories = session.store(LagHistories)
        now_ms = int(time.time() * 1_000)
        for name, told in states.items():
            found[name].verdict = verdict_of(told.values())
        for name, (positions, ends) in watched.items():
            told = states.get(name, {})
            age = age_of({each: state.details for each, state in told.items()})
            point = histories.of(name).add(now_ms, positions, ends, age)
            found[name].lag_ms, found[name].lag_at_least = point.age_ms, point.at_least
        return found

    key = ("figures of groups", *(group.group_id for group in groups))
    return await session.cached(key, _KEEP_MS, ask)


def verdict_of(states: Iterable[CurrentState]) -> Json | None:
    """The broker's verdict, if one of the states of a group is a verdict."""
    for state in states:
        if state.name == _VERDICT:
            return {"verdict": state.details["verdict"], "text": state.text}
    return None


async def figures_of_all(session: ConsoleSession, groups: Sequence[GroupListing]) -> AllFigures:
    """The figures of all groups, as far as they are known after a short wait.

    The figures are requested in chunks, one after another; the next call returns more of them.
    """
    every = session.store(AllFigures)

    async def sweep(admin: Admin) -> None:
        present = {group.group_id for group in groups}
        for name in every.known.keys() - present:
            del every.known[name]
        for start in range(0, min(len(groups), _REMEMBERED_MAX), _CHUNK):
            chunk = groups[start : start + _CHUNK]
            figures, _ = await _figures(admin, chunk)
            every.known |= figures

    waits = asyncio.ensure_future(session.cached("figures of all groups", _KEEP_ALL_MS, sweep))
    # The task continues after its page is closed; the callback marks its exception as retrieved.
    waits.add_done_callback(lambda done: done.cancelled() or done.exception())
    done, _ = await asyncio.wait({waits}, timeout=_PATIENCE_S)
    for ended in done:
        ended.result()
    return every


async def _figures(
    admin: Admin, groups: Sequence[GroupListing]
) -> tuple[dict[str, GroupFigures], dict[str, tuple[Offsets, Offsets]]]:
    """The figures of groups, and the positions and ends of groups with committed offsets."""
    found = {group.group_id: GroupFigures() for group in groups}
    topics: dict[str, set[str]] = {name: set() for name in found}
    for kind, names in _by_kind(groups).items():
        await _count_members(admin, kind, names, found, topics)
    positions = await _positions(admin, groups, found, topics)
    ends = await end_offsets(admin, {tp for offsets in positions.values() for tp in offsets})
    watched: dict[str, tuple[Offsets, Offsets]] = {}
    for name, offsets in positions.items():
        watched[name] = offsets, {tp: ends[tp] for tp in offsets if tp in ends}
        topics[name] |= {tp.topic for tp in offsets}
        found[name].lag = sum(behind(offset, ends.get(tp)) or 0 for tp, offset in offsets.items())
    for name, figures in found.items():
        figures.topics = len(topics[name])
    return found, watched


def _by_kind(groups: Sequence[GroupListing]) -> dict[str, list[str]]:
    """The ids of groups by the request that describes them: "share", "streams", or "" for both
    kinds of consumer groups."""
    kinds: dict[str, list[str]] = {}
    for group in groups:
        kinds.setdefault(group.type if group.type in (SHARE_KIND, STREAMS_KIND) else "", []).append(
            group.group_id
        )
    return kinds


async def _count_members(
    admin: Admin,
    kind: str,
    names: Sequence[str],
    found: Mapping[str, GroupFigures],
    topics: Mapping[str, set[str]],
) -> None:
    """Add the number of members of each group to `found`, and the topics that members read to
    `topics`."""
    try:
        if kind == STREAMS_KIND:
            streams = await admin.describe_streams_groups(names, raise_errors=False)
            for name, streams_group in streams.items():
                found[name].members = len(streams_group.members)
                topics[name].update(
                    topic for each in streams_group.subtopologies for topic in each.sources
                )
            errors = streams.errors
        else:
            ask = admin.describe_share_groups if kind == SHARE_KIND else admin.describe_groups
            groups = await ask(names, raise_errors=False)
            for name, group in groups.items():
                found[name].members = len(group.members)
                topics[name].update(tp.topic for each in group.members for tp in each.assignment)
            errors = groups.errors
    except OdradekError as error:
        errors = dict.fromkeys(names, error)
    for name, failed in errors.items():
        found[name].missing = str(failed)


async def _positions(
    admin: Admin,
    groups: Sequence[GroupListing],
    found: Mapping[str, GroupFigures],
    topics: Mapping[str, set[str]],
) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of groups. For share groups, the lag in `found` is set instead. If
    offsets are not available, `missing` of the group is set."""
    turn = asyncio.Semaphore(_AT_ONCE)
    positions: dict[str, dict[TopicPartition, int]] = {}

    async def ask(name: str, kind: str) -> None:
        async with turn:
            try:
                if kind == SHARE_KIND:
                    offsets = await admin.list_share_group_offsets(name)
                    topics[name].update(tp.topic for tp in offsets)
                    found[name].lag = sum(each.lag or 0 for each in offsets.values() if each)
                else:
                    positions[name] = await committed_offsets(admin, name)
            except OdradekError as error:
                found[name].missing = str(error)

    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            tasks.create_task(ask(group.group_id, group.type))
    return positions


def behind(position: int | None, end: int | None) -> int | None:
    """The number of records between a position and the end; None if one of the two is unknown.

    A position after the end, from before a truncation, has no records left to read.
    """
    return None if position is None or end is None else max(end - position, 0)
