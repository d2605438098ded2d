"""Committed offsets of groups, copied to the target.

A mirror writes the offset of a group only where it is the mirror's own last one, or where there is
none: what a consumer or an administrator of the target has committed since then is never taken
back. So that a later run knows its own offsets, they are committed for a second group as well,
`odradek-mirror-NAME.GROUP`: first there, with the offset before it as metadata, then for the group.
A crash in between leaves one of the two offsets in the group, and both are the mirror's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from odradek_client.admin import Admin
from odradek_client.errors import InvalidGroup
from odradek_client.structs import OffsetAndMetadata, TopicPartition

#: The offset of the target for a position of the source, None if it is not copied yet.
Translate = Callable[[TopicPartition, int], int | None]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class _Plan(Protocol):
    """The groups to copy, and the topics whose offsets count."""

    @property
    def groups(self) -> tuple[str, ...]: ...

    def has_topic(self, name: str) -> bool: ...


def verdict(
    wanted: OffsetAndMetadata, there: OffsetAndMetadata | None, ours: frozenset[int]
) -> Literal["write", "equal", "theirs"]:
    """The fate of one offset: `there` is the group's at the target, `ours` are the ones that the
    mirror has written last."""
    if there is None:
        return "write"
    if there == wanted:
        return "equal"
    if there.offset in ours:
        return "write"
    # Another client has committed the same position with other metadata.
    return "equal" if there.offset == wanted.offset else "theirs"


def marks(
    noted: Mapping[TopicPartition, OffsetAndMetadata | None],
) -> dict[TopicPartition, frozenset[int]]:
    """The offsets that the mirror has written last, of its second group."""
    return {
        tp: frozenset(
            {found.offset, *([int(found.metadata)] if found.metadata.isdecimal() else [])}
        )
        for tp, found in noted.items()
        if found is not None
    }


class GroupCopier:
    """Copies the offsets of groups, again and again. `prefix`: of the names of second groups."""

    def __init__(
        self,
        source: Admin,
        target: Admin,
        translate: Translate,
        tell: Callable[[str], None],
        *,
        prefix: str,
        keep_epochs: bool,
    ) -> None:
        self._source, self._target = source, target
        self._translate, self._tell = translate, tell
        self._prefix = prefix
        self._keep_epochs = keep_epochs
        #: The offsets that were copied last, to leave out what has not changed.
        self._copied: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._told: dict[tuple[str, str], str] = {}

    async def copy(self, plan: _Plan) -> int:
        """Copy what has changed; returns the number of groups whose offsets are all at the
        target."""
        complete = 0
        for group in plan.groups:
            committed = {
                tp: found
                for tp, found in (await self._source.list_group_offsets(group)).items()
                if found is not None and plan.has_topic(tp.topic)
            }
            wanted = self._wanted(committed)
            known = self._copied.get(group, {})
            news = {tp: each for tp, each in wanted.items() if known.get(tp) != each}
            done = not news or await self._copy_group(group, news)
            complete += done and len(wanted) == len(committed)
        return complete

    def _wanted(self, committed: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets for the target, of positions whose records are copied."""
        wanted = {}
        for tp, found in committed.items():
            offset = self._translate(tp, found.offset)
            if offset is not None:
                epoch = found.leader_epoch if self._keep_epochs else -1
                wanted[tp] = OffsetAndMetadata(offset, found.metadata, epoch)
        return wanted

    async def _copy_group(self, group: str, news: dict[TopicPartition, OffsetAndMetadata]) -> bool:
        """Copy changed offsets of one group; True if the target has all of them."""
        second = f"{self._prefix}{group}"
        described = await self._target.describe_groups(group, raise_errors=False)
        state = described.get(group)
        if state is not None and state.is_active:
            self._say(group, "", f"it has members at the target ({state.state})")
            return False
        there = await self._target.list_group_offsets(group, news)
        ours = marks(await self._target.list_group_offsets(second, news))
        copied = self._copied.setdefault(group, {})
        to_write = {}
        for tp, each in news.items():
            found = verdict(each, there.get(tp), ours.get(tp, frozenset()))
            if found == "write":
                to_write[tp] = each
            elif found == "equal":
                copied[tp] = each
            else:
                at = there[tp]
                self._say(
                    group,
                    f"{tp.topic}-{tp.partition}",
                    f"somebody else has committed offset {at.offset if at else '-'} at the target",
                )
        try:
            await self._write(group, second, to_write, there)
        except InvalidGroup:
            self._say(group, "", "it has members at the target")
            return False
        copied.update(to_write)
        return all(tp in copied and copied[tp] == each for tp, each in news.items())

    async def _write(
        self,
        group: str,
        second: str,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        there: Mapping[TopicPartition, OffsetAndMetadata | None],
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

    def _say(self, group: str, where: str, why: str) -> None:
        """Tell why offsets are left as they are, once for each reason."""
        if self._told.get((group, where)) != why:
            self._told[group, where] = why
            at = f", {where}" if where else ""
            self._tell(f"group {group!r}{at} is left as it is: {why}")
