"""The share groups of a shard: replay, deadlines, the records of share partitions with a state, and
the requests of administrators (rules H-04, H-05, H-16, H-20 to H-31).

The functions for requests of administrators do not change stored state: they return answers and
records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import IntEnum

from odradek_broker.coordinator.groups.partitions import (
    Partitions,
    by_name,
    difference,
    intersection,
    union,
)
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.share import records as make
from odradek_broker.coordinator.groups.share import states
from odradek_broker.coordinator.groups.share.assignor import ASSIGNOR_NAME
from odradek_broker.coordinator.groups.share.group import (
    ShareGroup,
    ShareMember,
    StateTopic,
    partitions_in,
)
from odradek_broker.coordinator.groups.share.heartbeat import (
    ShareProtocol,
)
from odradek_broker.coordinator.runtime import Instant, Record
from odradek_broker.slices import in_pieces, in_sorted_order
from odradek_protocol.common_structs import DescribedAssignment, TopicPartitionsInfo
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import Message
from odradek_protocol.schemas.share_group_describe import (
    DescribedShareGroup,
    DescribedShareMember,
)
from odradek_protocol.stored.share_group import ShareRecordType


@dataclass(frozen=True, slots=True)
class StatesDecision:
    """The decision about a request that changes states. The caller writes `records`, then asks the
    share coordinator to make or delete the states of `partitions`.

    `partitions`: (topic id, index) -> start offset, 0 for a deletion. `topics`: topic id -> name of
    the topics whose states are to be deleted. `codes`: topic name -> error, for topics without
    states. `asked_at`, `noted_at`: the group's `changes` before and after the records.
    """

    records: list[Record] = field(default_factory=list)
    partitions: Mapping[tuple[bytes, int], int] = field(default_factory=dict)
    state_epoch: int = 0
    topics: Mapping[bytes, str] = field(default_factory=dict)
    codes: Mapping[str, ErrorCode] = field(default_factory=dict)
    asked_at: int = 0

    @property
    def noted_at(self) -> int:
        return self.asked_at + len(self.records)


class ShareGroups(ShareProtocol):
    """The share groups of a shard."""

    # --- Replay ---

    def replay(self, kind: IntEnum, key: bytes, value: Message | None) -> str:
        group_id = super().replay(kind, key, value)
        if kind is ShareRecordType.STATE_PARTITIONS and group_id in self.groups:
            self.groups[group_id].states_changed_ms = self._monotonic_ms
        return group_id

    async def restored(self, now: Instant) -> None:
        for group in self.groups.values():
            group.states_changed_ms = now.monotonic_ms
        await super().restored(now)

    # --- States ---

    def initialized(
        self,
        asked: states.Initialization,
        partitions: Partitions,
        failed: Partitions,
        now: Instant,
    ) -> list[Record]:
        """The record to write after the answer to the request `asked`: the states of `partitions`
        exist, the states of `failed` could not be made (H-23). States whose deletion was
        recorded after the request are ignored. Returns no record if the group was removed, or
        nothing changes."""
        self._monotonic_ms = now.monotonic_ms
        group = self.groups.get(asked.group_id)
        if group is None or group.states is None:
            return []
        made, unmade = (
            {
                topic_id: indexes
                for topic_id, indexes in answered.items()
                if group.deleted_at.get(topic_id, 0) <= asked.asked_at
            }
            for answered in (partitions, failed)
        )
        note = states.initialized(group.states, made, self._topics)
        note = states.not_initialized(note, unmade)
        group.unmade = union(group.unmade, intersection(unmade, partitions_in(note.initializing)))
        return [make.states_record(asked.group_id, note)] if note != group.states else []

    def deleted(
        self, group_id: str, deletion: StatesDecision, topic_ids: Collection[bytes], now: Instant
    ) -> list[Record]:
        """The record to write after the states of these topics were deleted (H-26). Topics whose
        deletion was recorded again after `deletion` stay in the record. Returns no record if
        nothing changes."""
        self._monotonic_ms = now.monotonic_ms
        group = self.groups.get(group_id)
        if group is None or group.states is None:
            return []
        gone = [each for each in topic_ids if group.deleted_at.get(each, 0) <= deletion.noted_at]
        note = states.deleted(group.states, gone)
        return [make.states_record(group_id, note)] if note != group.states else []

    def with_states(self) -> list[str]:
        return [group.group_id for group in self.groups.values() if group.states is not None]

    def without_missing_topics(self, group_id: str) -> list[Record]:
        """The record by which a group forgets topics that do not exist any more (H-27), if there
        are such topics."""
        group = self.groups.get(group_id)
        if group is None or group.states is None:
            return []
        gone = {each for each in group.states.topic_ids if self._topics.topic_name(each) is None}
        if not gone:
            return []
        return [make.states_record(group_id, states.without_topics(group.states, gone))]

    # --- Administration ---

    async def describe(self, group_id: str) -> DescribedShareGroup:
        """The group with its members; GROUP_ID_NOT_FOUND with a message if there is no share group
        of this id (H-05)."""
        try:
            group = self.find(group_id)
        except Refusal as refusal:
            return share_not_described(group_id, refusal.error, refusal.message)
        return DescribedShareGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR_NAME,
            members=[
                await self._described(member)
                async for some in in_pieces(group.members.values())
                for member in some
            ],
        )

    async def _described(self, member: ShareMember) -> DescribedShareMember:
        return DescribedShareMember(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=await in_sorted_order(member.topics),
            assignment=DescribedAssignment(
                topic_partitions=[
                    TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=indexes)
                    for name, topic_id, indexes in by_name(member.assigned, self._topics)
                ]
            ),
        )

    def initialized_partitions(self, group_id: str) -> Partitions:
        """The share partitions that have a state; none if there is no such share group (H-24)."""
        group = self.groups.get(group_id)
        if group is None or group.states is None:
            return {}
        return partitions_in(group.states.initialized)

    def alteration(self, group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> StatesDecision:
        """The decision to initialize states again at these start offsets: topic name -> index ->
        offset (H-25). All topics in `offsets` must exist. Raises Refusal if the group has members
        or another type."""
        group = self.groups.get(group_id)
        if group is None:
            if group_id in self._others:
                raise self.missing(group_id)
            group = ShareGroup(group_id)
        _check_empty(group)
        noted: dict[bytes, StateTopic] = {}
        partitions: dict[tuple[bytes, int], int] = {}
        for name, starts in offsets.items():
            topic_id, count = self._topics.topic_id(name), self._topics.partition_count(name)
            valid = {index: start for index, start in starts.items() if 0 <= index < count}
            noted[topic_id] = StateTopic(name, frozenset(valid))
            partitions.update({(topic_id, index): start for index, start in valid.items()})
        if not noted:
            return StatesDecision()
        record = make.states_record(group_id, states.initializing(group.states, noted))
        group.unmade = difference(group.unmade, partitions_in(noted))
        return StatesDecision([record], partitions, group.epoch, asked_at=group.changes)

    def offset_deletion(self, group_id: str, names: Collection[str]) -> StatesDecision:
        """The decision to delete the states of topics (H-26); empty if the group never had a state.
        Raises Refusal if the group does not exist, has members, or has another type."""
        group = self.find(group_id)
        _check_empty(group)
        if group.states is None:
            return StatesDecision()
        found: dict[bytes, frozenset[int]] = {}
        codes: dict[str, ErrorCode] = {}
        for name in names:
            count = self._topics.partition_count(name)
            topic_id = self._topics.topic_id(name) if count else b""
            if topic_id in group.states.initialized:
                found[topic_id] = group.states.initialized[topic_id].partitions
            elif topic_id in group.states.deleting:
                found[topic_id] = frozenset(range(count))
            else:
                codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        records = []
        if found:
            records = [make.states_record(group_id, states.deleting(group.states, found))]
        partitions = {
            (topic_id, index): 0 for topic_id, indexes in found.items() for index in sorted(indexes)
        }
        topics = {topic_id: self._topics.topic_name(topic_id) or "" for topic_id in found}
        return StatesDecision(
            records, partitions, topics=topics, codes=codes, asked_at=group.changes
        )

    def has_members(self, group_id: str) -> bool:
        group = self.groups.get(group_id)
        return group is not None and bool(group.members)

    def deletion_of_states(self, group_id: str) -> StatesDecision:
        """The decision to delete all states of a group without members (H-28); empty if there is no
        such share group, or it has no states."""
        group = self.groups.get(group_id)
        if group is None:
            return StatesDecision()
        if group.states is None:
            return StatesDecision(asked_at=group.changes)
        note, doomed = states.deleting_all(group.states, self._topics)
        partitions = {
            (topic_id, index): 0
            for topic_id, topic in doomed.items()
            for index in sorted(topic.partitions)
        }
        record = make.states_record(group_id, note)
        return StatesDecision([record], partitions, asked_at=group.changes)

    def deletion_error(self, group_id: str, deletion: StatesDecision) -> ErrorCode:
        """The error that forbids the deletion of a group after its states were deleted; NONE if no
        state is left. New states may have been requested during the deletion, by a member that has
        left again or by an administrator (H-28)."""
        group = self.groups.get(group_id)
        if group is None or group.is_without_states(deletion.noted_at):
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP


def _check_empty(group: ShareGroup) -> None:
    if group.members:
        raise Refusal(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def share_not_described(
    group_id: str, error: ErrorCode, message: str | None = None
) -> DescribedShareGroup:
    """The answer for a group that cannot be described."""
    return DescribedShareGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        assignor_name="",
    )
