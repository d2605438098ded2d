"""A group in detail: members, assignment, positions, lag over time, events."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek_client.admin import Admin
from odradek_client.admin.history import Subject
from odradek_client.errors import InvalidGroup, OdradekError, UnsupportedByBroker
from odradek_client.structs import TopicPartition
from odradek_console.answers import HttpProblem, Json
from odradek_console.asked import Asked, View
from odradek_console.group_details import (
    MEMBERS_MAX,
    PARTITIONS_MAX,
    GroupDetails,
    share_details,
    streams_details,
)
from odradek_console.group_figures import (
    SHARE_KIND,
    STREAMS_KIND,
    behind,
)
from odradek_console.histories import history_of
from odradek_console.live import Feed
from odradek_console.sessions import ConsoleSession
from odradek_protocol.errors import ErrorCode
from odradek_records.lag import LagHistories, LagPoint, age_of, committed_offsets, end_offsets

_KEEP_MS = 1_000
_KEEP_RARE_MS = 15_000
EVERY_MS = 2_000
#: A gap between two points of the lag that is longer than this is shown as a gap, and the same for
#: the points that a broker has kept.
_GAP_MS = 15_000
_KEPT_GAP_MS = 660_000
_KINDS_MAX = 1_000


@dataclass
class _Kinds:
    """The known kinds of groups. The kind of a group decides which request describes the group."""

    by_group: dict[str, str] = field(default_factory=dict)

    def remember(self, group_id: str, kind: str) -> None:
        self.by_group.pop(group_id, None)
        self.by_group[group_id] = kind
        while len(self.by_group) > _KINDS_MAX:
            self.by_group.pop(next(iter(self.by_group)))


async def group(session: ConsoleSession, group_id: str) -> Json:
    """Everything about a group, and a new point of its lag."""
    return await session.cached(
        ("group", group_id), _KEEP_MS, lambda admin: _group(session, admin, group_id)
    )


async def _group(session: ConsoleSession, admin: Admin, group_id: str) -> Json:
    history = await history_of(session, Subject.GROUP, group_id)
    described = await _described(session, admin, group_id)
    if described is None:
        if not history["events"]:
            raise HttpProblem(
                404,
                "There is no such group",
                f"{group_id!r}",
                "Look for it in the list of groups.",
                "/groups",
            )
        return {"group": group_id, "state": "Dead", "history": history}
    missing: list[str] = []
    positions, lags = await _positions(admin, described, missing)
    counts = await _partition_counts(session, described, positions)
    every = _partitions(described, counts, positions)
    ends = await end_offsets(admin, every[:PARTITIONS_MAX])
    told = age_of({state["name"]: state["details"] for state in history["states"]})
    point = session.store(LagHistories).of(group_id).add(_now_ms(), positions, ends, told)
    if described.kind == SHARE_KIND and lags:
        # Records between the start offset and the end may be finished, so the broker's lag is used.
        point = point._replace(records=sum(lag or 0 for lag in lags.values()))
    answer: Json = {
        "group": group_id,
        "type": described.kind,
        "state": described.state,
        "protocol_type": described.protocol_type,
        "assignor": described.assignor,
        "epoch": described.epoch,
        "assignment_epoch": described.assignment_epoch,
        "coordinator": await _address(session, described.coordinator),
        "members": described.members[:MEMBERS_MAX],
        "members_total": len(described.members),
        "topics": _topics(described, every, positions, ends, lags),
        "point": _point_json(point),
        "history": history,
        "missing": missing,
    }
    if described.kind == SHARE_KIND:
        answer["share"] = await share_details(session, admin, group_id, positions, history)
    if described.streams is not None:
        answer["streams"] = described.streams
    return answer


async def _described(session: ConsoleSession, admin: Admin, group_id: str) -> GroupDetails | None:
    """The description of a group; None if there is no such group. The requests for the kinds of
    groups are tried in turn, beginning with the kind that this group had at the last request."""
    kinds = session.store(_Kinds)
    known = kinds.by_group.get(group_id, "")
    for kind in dict.fromkeys((known, "", SHARE_KIND, STREAMS_KIND)):
        try:
            if kind == STREAMS_KIND:
                streams = await admin.describe_streams_groups(group_id)
                found = streams_details(streams[group_id])
            elif kind == SHARE_KIND:
                share = await admin.describe_share_groups(group_id)
                found = GroupDetails.of(share[group_id])
            else:
                groups = await admin.describe_groups(group_id)
                found = GroupDetails.of(groups[group_id])
        except InvalidGroup as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        except UnsupportedByBroker:
            # A broker that does not support this kind has no groups of this kind.
            continue
        else:
            kinds.remember(group_id, kind)
            return found
    return None


async def _positions(
    admin: Admin, described: GroupDetails, missing: list[str]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int | None]]:
    """The positions of a group, and for a share group its lag, because only the broker knows the
    lag of a share group."""
    try:
        if described.kind != SHARE_KIND:
            return await committed_offsets(admin, described.group_id), {}
        begun = await admin.list_share_group_offsets(described.group_id)
    except OdradekError as error:
        missing.append(f"Positions: {error}")
        return {}, {}
    started = {tp: each for tp, each in begun.items() if each is not None}
    return (
        {tp: each.start_offset for tp, each in started.items()},
        {tp: each.lag for tp, each in started.items()},
    )


async def _partition_counts(
    session: ConsoleSession, described: GroupDetails, positions: Mapping[TopicPartition, int]
) -> dict[str, int]:
    """The number of partitions of each topic that the group reads. Topics that the principal may
    not describe are left out."""
    names = tuple(sorted({*described.subscribed, *(tp.topic for tp in positions)}))
    if not names:
        return {}

    async def ask(admin: Admin) -> dict[str, int]:
        found = await admin.describe_topics(names, raise_errors=False)
        return {name: len(topic.partitions) for name, topic in found.items()}

    return await session.cached(("partition counts", names), _KEEP_RARE_MS, ask)


def _partitions(
    described: GroupDetails, counts: Mapping[str, int], positions: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """The partitions that the group reads or has read, and the partitions of its target
    assignment."""
    every = {TopicPartition(name, part) for name, count in counts.items() for part in range(count)}
    return sorted(every | positions.keys() | described.owners.keys() | described.targets.keys())


def _topics(
    described: GroupDetails,
    every: Sequence[TopicPartition],
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    lags: Mapping[TopicPartition, int | None],
) -> list[Json]:
    """The partitions by topic. Each has its number, the members that own it, the members that have
    it as a target (None if unknown), the position, the end, and the lag."""
    topics: dict[str, list[list[object]]] = {}
    for tp in every[:PARTITIONS_MAX]:
        position, end = positions.get(tp), ends.get(tp)
        topics.setdefault(tp.topic, []).append(
            [
                tp.partition,
                described.owners.get(tp, []),
                described.targets.get(tp, []) if described.has_targets else None,
                position,
                end,
                lags[tp] if tp in lags else behind(position, end),
            ]
        )
    partitions_of = Counter(tp.topic for tp in every)
    return [
        {"topic": name, "partitions": partitions_of[name], "cells": cells}
        for name, cells in topics.items()
    ]


async def _address(session: ConsoleSession, node_id: int) -> Json:
    cluster = await session.cached(
        "cluster of groups", _KEEP_RARE_MS, lambda admin: admin.describe_cluster()
    )
    found = [broker for broker in cluster.brokers if broker.node_id == node_id]
    return {
        "node": node_id,
        "host": found[0].host if found else None,
        "port": found[0].port if found else None,
    }


def _now_ms() -> int:
    return int(time.time() * 1_000)


def _point_json(point: LagPoint) -> list[object]:
    return [point.at_ms, point.records, point.age_ms, point.at_least]


async def _show(asked: Asked) -> Json:
    return await group(asked.session, asked.query.text("id"))


async def _lag(asked: Asked) -> Json:
    """The lag of a group: what its broker has kept, and then what the console has watched."""
    group_id = asked.query.text("id")
    points: Sequence[LagPoint] = asked.session.store(LagHistories).of(group_id).points
    kept = (await history_of(asked.session, Subject.GROUP, group_id))["lag"]
    begin_ms = points[0].at_ms if points else math.inf
    older = [[at_ms, records, None, False] for at_ms, records in kept if at_ms < begin_ms]
    return {
        "points": older + [_point_json(point) for point in points],
        "gap_ms": _GAP_MS,
        "kept_gap_ms": _KEPT_GAP_MS,
    }


VIEWS: dict[str, View] = {"/group": _show, "/group/lag": _lag}
FEEDS = {"group": Feed(group, EVERY_MS)}
