"""The positions of a group: its committed offsets, and the records that it has not read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek_client.errors import InvalidGroup
from odradek_client.structs import OffsetAndMetadata, TopicPartition
from odradek_testkit.assertions.failures import section

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.admin.groups import GroupDescription


@dataclass(frozen=True)
class GroupPositions:
    """The committed offsets of a group, and the ends of all partitions that it reads."""

    group: GroupDescription | None
    committed: dict[TopicPartition, OffsetAndMetadata | None]
    #: The first unread offset and the end offset of each partition that may have unread records.
    behind: dict[TopicPartition, tuple[int, int]]

    def told(self) -> list[str]:
        """The lines about the group in the text of a failure."""
        if self.group is None:
            return ["the group does not exist"]
        offsets = [
            f"{tp.topic}-{tp.partition}: "
            + ("nothing committed" if found is None else f"committed {found.offset}")
            + (f", {end - start} behind the end, {end}" if start < end else "")
            for tp, found in sorted(self.committed.items())
            for start, end in [self.behind.get(tp, (0, 0))]
        ]
        members = [
            f"{each.client_id} at {each.host} has "
            + (", ".join(f"{tp.topic}-{tp.partition}" for tp in each.assignment) or "no partition")
            for each in self.group.members
        ]
        return [
            *section("its offsets:", offsets or ["none"]),
            *section(f"its members (state {self.group.state}):", members or ["none"]),
        ]


async def group_positions(
    admin: Admin, group_id: str, topics: Collection[str] | None
) -> GroupPositions:
    """The present positions of a group in `topics`; None: in all topics that the group reads."""
    group = await _described(admin, group_id)
    if group is None:
        return GroupPositions(None, {}, {})
    committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
    committed.update(await admin.list_group_offsets(group_id))
    read = {topic for member in group.members for topic in member.topics} | {*(topics or ())}
    for topic in sorted(read):
        described = (await admin.describe_topics(topic, raise_errors=False)).get(topic)
        for each in described.partitions if described is not None else ():
            committed.setdefault(TopicPartition(topic, each.partition), None)
    wanted = [tp for tp in committed if topics is None or tp.topic in topics]
    committed = {tp: committed[tp] for tp in sorted(wanted)}
    ends = await admin.list_offsets(
        dict.fromkeys(wanted, "latest"), read_committed=True, raise_errors=False
    )
    unread = [tp for tp in wanted if committed[tp] is None]
    starts = await admin.list_offsets(dict.fromkeys(unread, "earliest"), raise_errors=False)
    behind = {}
    for tp in wanted:
        found, end, first = committed[tp], ends.get(tp), starts.get(tp)
        start = found.offset if found is not None else first.offset if first is not None else 0
        if end is not None and start < end.offset:
            behind[tp] = (start, end.offset)
    return GroupPositions(group, committed, behind)


async def _described(admin: Admin, group_id: str) -> GroupDescription | None:
    try:
        found = (await admin.describe_groups(group_id))[group_id]
    except InvalidGroup:
        # The group does not exist, or it is not a consumer group.
        return None
    return None if found.state == "Dead" else found
