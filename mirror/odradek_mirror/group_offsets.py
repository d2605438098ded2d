"""The copying of committed offsets of groups to the target.

A mirror writes the offset of a group only if the group has no offset at the target, or the one that
the mirror wrote last. So an offset that a consumer or an administrator has committed at the target
is never overwritten. To recognize its own offsets in a later run, the mirror also commits them for
a second group, `odradek-mirror-NAME.GROUP`: first for the second group, with the previous offset as
metadata, then for the group. After a crash in between, the group has one of these two offsets, and
both are the mirror's. Second groups are deleted when the source no longer has their groups, and by
the promotion of their topics.

Offsets that the target has lost, by their expiration or with their group or topic, are written
again. Committed offsets do not name the id of their topic. So before they are written, both sides
are asked whether the topics are those that were copied.

One request reads many groups, and several groups are written at the same time. An error of one
group affects only that group, which is retried by the next copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from odradek_client.admin import Admin
from odradek_client.admin.groups import GroupDescription
from odradek_client.errors import InvalidGroup, OdradekError
from odradek_client.structs import OffsetAndMetadata, TopicPartition
from odradek_mirror.plan import topic_ids_of
from odradek_protocol.primitives import ZERO_UUID

#: Returns the target's offset for a position at the source; None if it is not copied yet.
Translate = Callable[[TopicPartition, int], int | None]
#: Returns the ids of a copied partition's topic at the source and at the target.
TopicIds = Callable[[TopicPartition], tuple[bytes, bytes]]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Committed = Mapping[TopicPartition, OffsetAndMetadata | None]

#: The prefix of the names of second groups, before the name of the mirror.
SECOND_GROUPS = "odradek-mirror-"
#: The maximum numbers of groups in one request, and of groups that are written at the same time.
_TOGETHER_MAX = 200
_WRITTEN_AT_ONCE = 8


class _Plan(Protocol):
    """The groups to copy, and the topics whose committed offsets are copied."""

    @property
    def groups(self) -> tuple[str, ...]: ...

    def has_topic(self, name: str) -> bool: ...


def verdict(
    wanted: OffsetAndMetadata, there: OffsetAndMetadata | None, ours: frozenset[int]
) -> Literal["write", "equal", "theirs"]:
    """The decision about one offset of a group. `wanted`: the source's offset, translated;
    `there`: the offset that the group has at the target; `ours`: the offsets that the mirror may
    have written last."""
    if there is None:
        return "write"
    if there == wanted:
        return "equal"
    if there.offset in ours:
        return "write"
    # Another client may have committed the same offset with other metadata.
    return "equal" if there.offset == wanted.offset else "theirs"


def marks(noted: Committed) -> dict[TopicPartition, frozenset[int]]:
    """The offsets that the mirror may have written last, read from the second group."""
    return {
        tp: frozenset(
            {found.offset, *([int(found.metadata)] if found.metadata.isdecimal() else [])}
        )
        for tp, found in noted.items()
        if found is not None
    }


@dataclass(slots=True)
class _Group:
    """The work on one group. `wanted`: all offsets of the group for the target; `news`: the changed
    ones of these offsets, and those that the target lacks; `left`: the reason why the group is not
    complete."""

    name: str
    wanted: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    news: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    there: Committed = field(default_factory=dict)
    left: str = ""


class GroupCopier:
    """The copier of the offsets of groups. `prefix`: the prefix of the names of second groups."""

    def __init__(
        self,
        source: Admin,
        target: Admin,
        translate: Translate,
        topic_ids: TopicIds,
        tell: Callable[[str], None],
        *,
        prefix: str,
        keep_epochs: bool,
    ) -> None:
        self._source, self._target = source, target
        self._translate, self._topic_ids, self._tell = translate, topic_ids, tell
        self._prefix = prefix
        self._keep_epochs = keep_epochs
        #: The offsets that were copied last; they are copied again if they have changed, or if the
        #: target has lost them.
        self._copied: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._told: dict[tuple[str, str], str] = {}

    async def copy(self, plan: _Plan) -> dict[str, str]:
        """Copy changed offsets; returns the groups whose offsets are not all at the target, each
        with the reason and the remedy. An offset at the target that is higher than the one to copy
        counts as copied.

        Raises errors that affect all groups, such as an unreachable target.
        """
        left: dict[str, str] = {}
        for some in _chunks(plan.groups, _TOGETHER_MAX):
            groups = await self._read_source(plan, some)
            await self._leave_other_topics(groups)
            if wanted := [group for group in groups if group.wanted]:
                await self._write_changed(wanted)
            left |= {group.name: group.left for group in groups if group.left}
        return left

    async def _read_source(self, plan: _Plan, names: Sequence[str]) -> list[_Group]:
        """The offsets of groups of the source, translated."""
        committed = await self._source.list_offsets_of_groups(
            dict.fromkeys(names), raise_errors=False
        )
        groups = [_Group(name) for name in names]
        for group in groups:
            if (error := committed.errors.get(group.name)) is not None:
                self._leave(group, f"the source does not return its offsets: {error}")
                continue
            for tp, found in committed.get(group.name, {}).items():
                if found is None or not plan.has_topic(tp.topic):
                    continue
                offset = self._translate(tp, found.offset)
                if offset is None:
                    group.left = (
                        f"its offset {found.offset} of {_name(tp)} is not copied yet, because it is"
                        " behind what this run has copied: run the mirror again"
                    )
                    continue
                epoch = found.leader_epoch if self._keep_epochs else -1
                group.wanted[tp] = OffsetAndMetadata(offset, found.metadata, epoch)
        return groups

    async def _leave_other_topics(self, groups: Sequence[_Group]) -> None:
        """Leave out offsets in topics that were deleted, or deleted and created again, on one side:
        they mean records of another topic. The source is asked after its offsets were read."""
        names = sorted({tp.topic for group in groups for tp in group.wanted})
        if not names:
            return
        sides = ("source", self._source), ("target", self._target)
        for at, (side, admin) in enumerate(sides):
            there = await topic_ids_of(admin, names)
            for group in groups:
                for tp in list(group.wanted):
                    found, known = there.get(tp.topic), self._topic_ids(tp)[at]
                    why: object = there.errors.get(tp.topic)
                    if found is not None:
                        # ZERO_UUID: this side has no ids of topics.
                        if found == known or ZERO_UUID in (found, known):
                            continue
                        why = f"topic {tp.topic!r} was deleted and created again"
                    del group.wanted[tp]
                    group.left = (
                        f"its offset of {_name(tp)} is left as it is, because of the {side}: {why};"
                        " run the mirror again"
                    )

    async def _write_changed(self, groups: Sequence[_Group]) -> None:
        """Write the changed offsets of groups, and those that the target lacks, except offsets that
        others have changed at the target."""
        target = self._target
        asked: dict[str, Collection[tuple[str, int]]] = {}
        for group in groups:
            asked[group.name] = asked[self._second(group.name)] = group.wanted
        found = await target.list_offsets_of_groups(asked, raise_errors=False)
        ready = []
        for group in groups:
            error = found.errors.get(group.name) or found.errors.get(self._second(group.name))
            if error is not None:
                self._leave(group, f"the target does not return its offsets: {error}")
                continue
            known, there = self._copied.get(group.name, {}), found.get(group.name, {})
            group.news = {
                tp: each
                for tp, each in group.wanted.items()
                if known.get(tp) != each or there.get(tp) is None
            }
            if group.news:
                ready.append(group)
        if not ready:
            return
        described = await target.describe_groups(
            [group.name for group in ready], raise_errors=False
        )
        at_once = asyncio.Semaphore(_WRITTEN_AT_ONCE)

        async def write(group: _Group) -> None:
            async with at_once:
                await self._write_group(group, described.get(group.name), found)

        async with asyncio.TaskGroup() as tasks:
            for group in ready:
                tasks.create_task(write(group))

    async def _write_group(
        self, group: _Group, state: GroupDescription | None, found: Mapping[str, Committed]
    ) -> None:
        if state is not None and state.is_active:
            self._leave_active(group, state.state)
            return
        there, second = found.get(group.name, {}), self._second(group.name)
        ours = marks(found.get(second, {}))
        copied = self._copied.setdefault(group.name, {})
        to_write = {}
        for tp, each in group.news.items():
            fate = verdict(each, there.get(tp), ours.get(tp, frozenset()))
            if fate == "write":
                to_write[tp] = each
            elif fate == "equal":
                copied[tp] = each
            else:
                self._leave_theirs(group, tp, each, there[tp])
        try:
            await self._write(group.name, second, to_write, there)
        except InvalidGroup:
            self._leave_active(group, "since a moment ago")
        except OdradekError as error:
            self._leave(group, f"the target does not take its offsets: {error}")
        else:
            copied.update(to_write)

    async def _write(
        self,
        group: str,
        second: str,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        there: Committed,
    ) -> None:
        if not offsets:
            return
        before = {tp: found.offset for tp, found in there.items() if found is not None}
        notes: dict[tuple[str, int], int | OffsetAndMetadata] = {
            tp: OffsetAndMetadata(each.offset, str(before.get(tp, "")))
            for tp, each in offsets.items()
        }
        await self._target.alter_group_offsets(second, notes)
        written = dict[tuple[str, int], int | OffsetAndMetadata](offsets.items())
        await self._target.alter_group_offsets(group, written)

    def _second(self, group: str) -> str:
        return f"{self._prefix}{group}"

    # --- groups that are left ---------------------------------------------------------------------

    def _leave_active(self, group: _Group, state: str) -> None:
        why = f"it has members at the target ({state}): stop them, and run the mirror again"
        self._leave(group, why)

    def _leave_theirs(
        self,
        group: _Group,
        tp: TopicPartition,
        wanted: OffsetAndMetadata,
        there: OffsetAndMetadata | None,
    ) -> None:
        """Keep an offset that another client has committed at the target. The group is complete if
        that offset is higher, because the group then reads at the target."""
        at = -1 if there is None else there.offset
        self._say(group.name, _name(tp), f"somebody else has committed offset {at} at the target")
        if at < wanted.offset:
            group.left = (
                f"somebody else has committed offset {at} of {_name(tp)} at the target, and the"
                f" copied one is {wanted.offset}: to take that, delete the other one with `odradek"
                " group delete-offsets` at the target, and run the mirror again"
            )

    def _leave(self, group: _Group, why: str) -> None:
        group.left = why
        self._say(group.name, "", why)

    def _say(self, group: str, where: str, why: str) -> None:
        """Show why offsets are not written, once for each reason."""
        if self._told.get((group, where)) != why:
            self._told[group, where] = why
            at = f", {where}" if where else ""
            self._tell(f"group {group!r}{at} is left as it is: {why}")

    # --- second groups ----------------------------------------------------------------------------

    async def delete_unneeded(self, plan: _Plan) -> None:
        """Delete the second groups of groups that the source no longer has."""
        listed = await self._target.list_groups()
        names = [
            each.group_id.removeprefix(self._prefix)
            for each in listed
            if each.group_id.startswith(self._prefix)
        ]
        others = sorted(set(names) - set(plan.groups))
        if others:
            at_source = {each.group_id for each in await self._source.list_groups()}
            others = [name for name in others if name not in at_source]
        for some in _chunks(others, _TOGETHER_MAX):
            # The source does not list groups that the mirror has no right to describe. So the
            # offsets of unlisted groups are requested: a group is missing only if its answer has
            # neither offsets nor an error.
            there = await self._source.list_offsets_of_groups(
                dict.fromkeys(some), raise_errors=False
            )
            gone = [self._second(name) for name in some if there.get(name) == {}]
            noted = await self._target.list_offsets_of_groups(
                dict.fromkeys(gone), raise_errors=False
            )
            # Mirrors of other sources may use the same name as this mirror, and then have the same
            # prefix.
            unneeded = [
                second
                for second, offsets in noted.items()
                if all(plan.has_topic(tp.topic) for tp in offsets)
            ]
            if unneeded:
                await self._target.delete_groups(unneeded, raise_errors=False)


async def delete_notes(target: Admin, topics: Collection[str]) -> list[OdradekError]:
    """Delete the offsets that second groups have in `topics`, which are no longer mirrors. A second
    group that has no other offsets is deleted itself. Returns the failed deletions."""
    listed = await target.list_groups()
    seconds = [each.group_id for each in listed if each.group_id.startswith(SECOND_GROUPS)]
    errors: list[OdradekError] = []
    for some in _chunks(seconds, _TOGETHER_MAX):
        noted = await target.list_offsets_of_groups(dict.fromkeys(some), raise_errors=False)
        empty = []
        for second, offsets in noted.items():
            ours = [tp for tp in offsets if tp.topic in topics]
            if len(ours) == len(offsets):
                empty.append(second)
            elif ours:
                deleted = await target.delete_group_offsets(second, ours, raise_errors=False)
                errors += deleted.errors.values()
        if empty:
            errors += (await target.delete_groups(empty, raise_errors=False)).errors.values()
    return errors


def _chunks(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[at : at + size] for at in range(0, len(names), size))


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
