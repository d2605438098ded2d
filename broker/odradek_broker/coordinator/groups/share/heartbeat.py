"""ShareGroupHeartbeat: the checks of the request, and members that join, stay alive, subscribe and
leave (rules H-10 to H-16, KIP-932).

    subscriptions  ->  group epoch  ->  target assignment  ->  current assignment of each member

A member gets its whole target with its next heartbeat: since partitions are shared, no other member
has to give back a partition first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from itertools import chain

from odradek_broker.coordinator.groups.modern.groups import HeartbeatCall, ModernGroups
from odradek_broker.coordinator.groups.partitions import Partitions, difference, listed
from odradek_broker.coordinator.groups.refusals import (
    check_not_empty,
    invalid_request,
    unknown_member,
)
from odradek_broker.coordinator.groups.settings import assignment_interval_ms, may_assign_again
from odradek_broker.coordinator.groups.share import records as make
from odradek_broker.coordinator.groups.share.assignor import assign_simple
from odradek_broker.coordinator.groups.share.group import (
    ShareGroup,
    ShareMember,
    partitions_in,
)
from odradek_broker.coordinator.groups.share.states import (
    Initialization,
    added_partitions,
    initializing,
    is_assignment_pending,
    without_state,
)
from odradek_broker.coordinator.groups.topics_hash import topics_hash
from odradek_broker.coordinator.runtime import CoreOutcome, Instant, Record
from odradek_broker.slices import in_pieces, paced
from odradek_protocol.common_structs import GroupAssignment
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH, NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

#: The limit of the length of a member id.
MEMBER_ID_MAX_CHARS = 36


ShareHeartbeatCall = HeartbeatCall[ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse]


def share_heartbeat_error(
    error: ErrorCode, message: str | None = None
) -> ShareGroupHeartbeatResponse:
    """The answer that refuses a request."""
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message)


class ShareProtocol(
    ModernGroups[ShareGroup, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse]
):
    """The requests of members of share groups. `initializations`: states that heartbeats have
    recorded as initializing, and that the share coordinator has not been asked to make yet."""

    group_class = ShareGroup
    refused = staticmethod(share_heartbeat_error)

    @cached_property
    def initializations(self) -> list[Initialization]:
        return []

    def check_request(self, call: ShareHeartbeatCall) -> None:
        """Raise Refusal for a request that no member may send (H-10)."""
        request = call.request
        if not 0 < len(request.member_id) <= MEMBER_ID_MAX_CHARS:
            raise invalid_request("Invalid member id in the request.")
        check_not_empty(
            ("MemberId", request.member_id),
            ("GroupId", request.group_id),
            ("RackId", request.rack_id),
        )
        if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
            raise invalid_request("SubscribedTopicNames must be set in first request.")
        if request.member_epoch < LEAVE_EPOCH:
            raise invalid_request("MemberEpoch is invalid.")

    async def _heartbeat(
        self, call: ShareHeartbeatCall, out: CoreOutcome, now: Instant
    ) -> ShareGroupHeartbeatResponse:
        request = call.request
        joins = request.member_epoch == JOIN_EPOCH
        group = self._open(request.group_id, joins=joins)
        known = group.members.get(request.member_id)
        if known is None:
            self.check_size(group)
            if not joins:
                raise unknown_member(request.member_id, request.group_id)
        before = known or ShareMember(member_id=request.member_id)
        self.check_epoch(before, request.member_epoch)
        member = _updated(before, call)
        if known is None or member != before:
            out.records.append(await make.member_record(group.group_id, member))
        names = group.subscribers.keys_after(known.topics if known else (), member.topics)
        now_at = (group.changes, self._topics.topics_version)
        epoch, wanted = group.epoch, None
        if group.steady_at != now_at or out.records:
            changed = member.topics != before.topics
            epoch = await self._next_epoch(group, names, out.records, changed=changed)
        after = await self._reconciled(group, member, epoch, now, out.records)
        if group.steady_at != now_at or out.records:
            wanted = await self._note_missing_states(group, names, epoch, now, out.records)
            making = group.states is not None and group.states.initializing
            group.steady_at = None if out.records or making else now_at
        self.deadlines.restart_session(group, after, now)
        self.undo_if_refused(
            group,
            out,
            after.member_id,
            None if wanted is None else lambda: self.initializations.append(wanted),
        )
        response = ShareGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self.heartbeat_interval_ms(group),
        )
        full = joins or request.subscribed_topic_names is not None
        if full or after.assigned != before.assigned:
            response.assignment = GroupAssignment(topic_partitions=await listed(after.assigned))
        return response

    def _open(self, group_id: str, *, joins: bool) -> ShareGroup:
        group = self.groups.get(group_id)
        if group is None:
            if not joins or group_id in self._others:
                raise self.missing(group_id, "Share group")
            group = ShareGroup(group_id)
        return group

    async def _next_epoch(
        self,
        group: ShareGroup,
        names: Collection[str],
        records: list[Record],
        *,
        changed: bool,
    ) -> int:
        """The group epoch after the heartbeat (H-02, H-03, H-07). `names`: the topics to which
        members are subscribed. `changed`: true if the member has changed its subscription."""
        if group.assignment_epoch >= group.epoch:
            changed |= is_assignment_pending(group)
        if not changed and group.topics_version == self._topics.topics_version:
            return group.epoch
        hashed = await topics_hash(names, self._topics)
        group.topics_version = self._topics.topics_version
        if not changed and hashed == group.hashed:
            return group.epoch
        records.append(make.group_record(group.group_id, group.epoch + 1, hashed))
        return group.epoch + 1

    async def _reconciled(
        self,
        group: ShareGroup,
        member: ShareMember,
        epoch: int,
        now: Instant,
        records: list[Record],
    ) -> ShareMember:
        """The member with its assignment and epoch after the heartbeat (H-08)."""
        target, target_epoch = group.target(member.member_id), group.assignment_epoch
        if target_epoch < epoch and self._may_assign(group, now):
            target = await self._assign_targets(group, member, records)
            target_epoch = epoch
            records.append(make.target_epoch_record(group.group_id, epoch, now.wall_ms))
        own = {
            topic_id: indexes
            async for some in in_pieces(target.items())
            for topic_id, indexes in some
            if self._topics.topic_name(topic_id) in member.topics
        }
        after = member
        if member.epoch != target_epoch:
            after = member.at_epoch(target_epoch, own)
        elif epoch != group.epoch:
            after = replace(member, assigned=own)
        if after != member:
            records.append(await make.current_record(group.group_id, after))
        return after

    def _may_assign(self, group: ShareGroup, now: Instant) -> bool:
        """True if the interval between assignments has passed since the last assignment (H-09)."""
        interval_ms = assignment_interval_ms(self._topics, group.group_id, self.group_type)
        return may_assign_again(group.assignment_ms, interval_ms, now.wall_ms)

    async def _assign_targets(
        self,
        group: ShareGroup,
        member: ShareMember,
        records: list[Record],
    ) -> Partitions:
        """Add records of the targets that have changed; returns the target of `member`."""
        topics = self._topics
        members = {**group.members, member.member_id: member}
        ids = {
            names: frozenset(
                [
                    topics.topic_id(name)
                    async for some in in_pieces(names)
                    for name in some
                    if topics.partition_count(name)
                ]
            )
            for names in {each.topics for each in members.values()}
        }
        available = partitions_in(group.states.initialized) if group.states else {}
        targets = await assign_simple(
            {member_id: ids[each.topics] for member_id, each in members.items()},
            group.targets,
            available,
        )
        records += await group.target_records(targets, make.target_record)
        return targets[member.member_id]

    async def _note_missing_states(
        self,
        group: ShareGroup,
        names: Collection[str],
        epoch: int,
        now: Instant,
        records: list[Record],
    ) -> Initialization | None:
        """Record subscribed partitions without a state as initializing. Those that were added to a
        topic whose other partitions are noted begin at the offset 0 (H-21)."""
        missing = await without_state(group, names, self._topics, now.monotonic_ms)
        if not missing:
            return None
        added = added_partitions(group.states, missing)
        records.append(make.states_record(group.group_id, initializing(group.states, missing)))
        group.unmade = difference(group.unmade, partitions_in(missing))
        offsets: dict[tuple[bytes, int], int] = {}
        async for topic_id, topic in paced(missing.items()):
            new = added.get(topic_id, frozenset())
            async for some in in_pieces(sorted(topic.partitions)):
                offsets |= {(topic_id, each): 0 if each in new else NO_OFFSET for each in some}
        return Initialization(group.group_id, group.changes, epoch, offsets)

    @staticmethod
    def _left(member_id: str, epoch: int) -> ShareGroupHeartbeatResponse:
        return ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)

    async def _records_without(self, group: ShareGroup, gone: Collection[str]) -> list[Record]:
        theirs = chain.from_iterable(group.members[each].topics for each in gone)
        hashed = await topics_hash(group.subscribers.keys_after(theirs, ()), self._topics)
        return [make.group_record(group.group_id, group.epoch + 1, hashed)]


def _updated(member: ShareMember, call: ShareHeartbeatCall) -> ShareMember:
    """The member with the fields of the request; fields that are not given keep their value."""
    request, names = call.request, call.request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        topics=member.topics if names is None else frozenset(names),
    )
