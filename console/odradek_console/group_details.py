"""Groups of all kinds in one shape, with the extra parts of share groups and streams groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from odradek_client.admin import (
    Admin,
    ConfigResource,
    GroupDescription,
    GroupMember,
    StreamsGroupDescription,
    StreamsMember,
    StreamsTask,
)
from odradek_client.admin.history import Subject
from odradek_client.errors import OdradekError
from odradek_client.structs import TopicPartition
from odradek_console.answers import Json
from odradek_console.histories import history_of
from odradek_console.sessions import ConsoleSession

_KEEP_RARE_MS = 15_000
#: The maximum numbers of members and of partitions in one answer; a picture of more would be
#: unreadable.
MEMBERS_MAX = 1_000
PARTITIONS_MAX = 5_000
#: The maximum number of partitions of a share group whose first unfinished record is looked up.
_FIRST_RECORDS_MAX = 8
_SHARE_PARTITION = "now_share_partition"
#: The settings of a share group for deliveries, locks and dead letters.
_SHARE_SETTINGS = (
    "errors.deadletterqueue.topic.name",
    "share.delivery.count.limit",
    "share.record.lock.duration.ms",
    "share.partition.max.record.locks",
    "share.isolation.level",
    "share.auto.offset.reset",
)


@dataclass
class GroupDetails:
    """A group of any kind. `owners`: for each partition, the numbers of the members that own it.
    `targets`: for each partition, the numbers of the members whose target assignment has it."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    epoch: int | None
    assignment_epoch: int | None
    members: list[Json] = field(default_factory=list)
    subscribed: set[str] = field(default_factory=set)
    owners: dict[TopicPartition, list[int]] = field(default_factory=dict)
    targets: dict[TopicPartition, list[int]] = field(default_factory=dict)
    has_targets: bool = False
    streams: Json | None = None

    @classmethod
    def of(cls, group: GroupDescription) -> Self:
        """A classic, consumer or share group."""
        described = cls(
            group_id=group.group_id,
            kind=group.type,
            state=group.state,
            protocol_type=group.protocol_type,
            assignor=group.assignor,
            coordinator=group.coordinator,
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            has_targets=any(member.target is not None for member in group.members),
        )
        for number, member in enumerate(group.members):
            described.members.append(_member_json(member))
            described.subscribed.update(member.topics)
            for tp in member.assignment:
                described.owners.setdefault(tp, []).append(number)
            for tp in member.target or ():
                described.targets.setdefault(tp, []).append(number)
        return described


def _member_json(member: GroupMember) -> Json:
    target = None if member.target is None else set(member.target)
    has = set(member.assignment)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "epoch": member.epoch,
        "topics": member.topics,
        "partitions": len(has),
        "gives": None if target is None else len(has - target),
        "gets": None if target is None else len(target - has),
    }


# --- share groups ---------------------------------------------------------------------------------


async def share_details(
    session: ConsoleSession,
    admin: Admin,
    group_id: str,
    starts: Mapping[TopicPartition, int],
    history: Json,
) -> Json:
    """The settings of a share group, the broker's description of its partitions, and the first
    unfinished record of each."""
    settings = await session.cached(
        ("settings of group", group_id), _KEEP_RARE_MS, lambda admin: _settings(admin, group_id)
    )
    partitions = [
        {"text": state["text"], **state["details"]}
        for state in history["states"]
        if state["name"] == _SHARE_PARTITION
    ]
    return {
        "settings": settings,
        "partitions": partitions,
        "missing": history["missing"],
        "first_records": await _first_records(session, group_id, starts) if partitions else [],
    }


async def _settings(admin: Admin, group_id: str) -> dict[str, str | None]:
    """The settings; empty if the broker has no settings of groups, or the right is missing."""
    resource = ConfigResource.group(group_id)
    try:
        found = (await admin.describe_configs(resource, names=_SHARE_SETTINGS))[resource]
    except OdradekError:
        return {}
    return {name: found[name].value for name in _SHARE_SETTINGS if name in found}


async def _first_records(
    session: ConsoleSession, group_id: str, starts: Mapping[TopicPartition, int]
) -> list[Json]:
    """Descriptions by the broker of the first unfinished record of some partitions. `starts`: the
    offset of that record in each partition."""
    found = []
    for tp, offset in sorted(starts.items())[:_FIRST_RECORDS_MAX]:
        about = await history_of(
            session, Subject.SHARE_RECORD, f"{tp.topic}-{tp.partition}:{offset}:{group_id}"
        )
        texts = [state["text"] for state in about["states"]]
        if texts:
            found.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "offset": offset,
                    "text": "; ".join(texts),
                }
            )
    return found


# --- streams groups -------------------------------------------------------------------------------


def streams_details(group: StreamsGroupDescription) -> GroupDetails:
    """A streams group. The page draws its tasks like the partitions of other groups."""
    return GroupDetails(
        group_id=group.group_id,
        kind="streams",
        state=group.state,
        protocol_type="streams",
        assignor="",
        coordinator=group.coordinator,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        members=[_streams_member_json(member) for member in group.members],
        subscribed={
            topic
            for each in group.subtopologies
            for topic in (*each.sources, *each.repartition_sources)
        },
        streams={
            "topology_epoch": group.topology_epoch,
            "subtopologies": [
                {
                    "name": each.name,
                    "sources": each.sources,
                    "repartition_sources": each.repartition_sources,
                    "repartition_sinks": each.repartition_sinks,
                    "changelogs": each.changelogs,
                }
                for each in group.subtopologies
            ],
            "tasks": _tasks(group.members),
        },
    )


def _streams_member_json(member: StreamsMember) -> Json:
    has, target = set(member.tasks.active), set(member.target.active)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "process_id": member.process_id,
        "epoch": member.epoch,
        "topics": [],
        "partitions": len(has),
        "standby": len(member.tasks.standby),
        "warmup": len(member.tasks.warmup),
        "gives": len(has - target),
        "gets": len(target - has),
    }


def _tasks(members: Iterable[StreamsMember]) -> list[Json]:
    """The tasks by subtopology. Each has its number, the members with the active task, the members
    that have it as a target, the members with a standby task, and those with a warm-up task."""
    cells: dict[StreamsTask, list[list[int]]] = {}
    for number, member in enumerate(members):
        kinds = (
            member.tasks.active,
            member.target.active,
            member.tasks.standby,
            member.tasks.warmup,
        )
        for place, tasks in enumerate(kinds):
            for task in tasks:
                cells.setdefault(task, [[], [], [], []])[place].append(number)
    by_subtopology: dict[str, list[list[object]]] = {}
    for task in sorted(cells)[:PARTITIONS_MAX]:
        by_subtopology.setdefault(task.subtopology, []).append([task.partition, *cells[task]])
    return [
        {"topic": name, "partitions": len(tasks), "cells": tasks}
        for name, tasks in by_subtopology.items()
    ]
