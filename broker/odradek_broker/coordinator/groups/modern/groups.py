"""The modern groups of a shard: the common steps of their heartbeats, the replay of their records,
and the removal of members that leave or are silent.

Each type of group adds the checks of its requests, the computation of the targets, and the steps of
a member from its present assignment to its target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from odradek_broker.coordinator.groups.deadlines import GroupTimer, GroupTimerName, MemberDeadlines
from odradek_broker.coordinator.groups.events import (
    GroupRequestRefused,
    MemberRemovalReason,
    MemberRemoved,
    Observer,
    RecordReplayed,
    Removal,
)
from odradek_broker.coordinator.groups.modern.group import ModernGroup, ModernMember
from odradek_broker.coordinator.groups.refusals import (
    Refusal,
    fenced_epoch,
    group_full,
    missing_group,
    unknown_member,
)
from odradek_broker.coordinator.groups.settings import (
    CoordinatorMetadata,
    GroupSettings,
    Visible,
    every_topic,
    group_setting,
)
from odradek_broker.coordinator.runtime import CoreOutcome, Decision, Instant, Record, Reply
from odradek_broker.coordinator.timers import Timers
from odradek_broker.deferred import Deferred
from odradek_broker.slices import in_pieces
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.message import Message
from odradek_protocol.stored.modern_groups import decode_key

_E = ErrorCode

_REASONS = {
    GroupTimer.MEMBER_SESSION: MemberRemovalReason.SESSION_TIMEOUT,
    GroupTimer.MEMBER_REVOCATION: MemberRemovalReason.REVOCATION_TIMEOUT,
    GroupTimer.MEMBER_REJOIN: MemberRemovalReason.REJOIN_TIMEOUT,
    GroupTimer.MEMBER_SYNC: MemberRemovalReason.SYNC_TIMEOUT,
}


class ModernHeartbeat(Protocol):
    """The fields that the heartbeats of all types of groups have."""

    group_id: str
    member_id: str
    member_epoch: int


Q = TypeVar("Q", bound=ModernHeartbeat)
A = TypeVar("A")
G = TypeVar("G", bound=ModernGroup[Any, Any])


class HeartbeatCall(NamedTuple, Generic[Q, A]):
    """A heartbeat, with the data of its connection and the topics that its user may see."""

    request: Q
    deferred: Deferred[A]
    client_id: str
    client_host: str
    api_version: int = 0
    visible: Visible = every_topic
    #: What the regular expressions match that the heartbeat may need.
    matches: Any = None


class ModernGroups(ABC, Generic[G, Q, A]):
    """The groups of one type on a shard. G: the group; Q: its heartbeat request; A: the answer.
    `groups` (by id) and `timers` belong to the shard; `others`: the ids of groups of all types."""

    group_class: ClassVar[type[ModernGroup[Any, Any]]]

    def __init__(
        self,
        config: GroupSettings,
        topics: CoordinatorMetadata,
        observer: Observer,
        groups: dict[str, G],
        timers: Timers[GroupTimerName],
        others: Container[str],
    ) -> None:
        self.groups = groups
        self.group_type = self.group_class.protocol_type
        self.deadlines = MemberDeadlines(config, topics, timers, self.group_type)
        self._interval_setting = f"{self.group_type}.heartbeat.interval.ms"
        self._config = config
        self._topics = topics
        self._observer = observer
        self._others = others
        self._active = False
        #: The monotonic time of the last decision, for the replay of the decision's records.
        self._monotonic_ms = 0

    # --- Replay ---

    def replay(self, kind: IntEnum, key: bytes, value: Message | None) -> str:
        """Apply one record; returns the id of its group. A group exists from its first record to
        the tombstone of its own record (J-02)."""
        named: Any = decode_key(kind, key)
        group_id: str = named.group_id
        group = self.groups.get(group_id)
        if group is None:
            if value is None:
                return group_id
            made: Any = self.group_class(group_id)
            group = self.groups[group_id] = made
        member_id = getattr(named, "member_id", "")
        before = group.members.get(member_id)
        group.replay(kind, named, value)
        if self._active and value is not None:
            self._observer(RecordReplayed(kind, group, before, group.members.get(member_id)))
        if value is None and kind.name == "GROUP":
            del self.groups[group_id]
            self.deadlines.forget_all(group)
        return group_id

    async def restored(self, now: Instant) -> None:
        """Begin all deadlines after a load."""
        self._active = True
        self._monotonic_ms = now.monotonic_ms
        async for some in in_pieces(self.groups.values()):
            for group in some:
                await self.deadlines.restored(group, now)

    # --- Heartbeats ---

    async def heartbeat(self, call: HeartbeatCall[Q, A], now: Instant) -> CoreOutcome:
        """Answer a heartbeat; a refusal writes nothing."""
        out = CoreOutcome()
        request = call.request
        self._monotonic_ms = now.monotonic_ms
        try:
            self.check_request(call)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                answer = await self._leave(request, out, now)
            else:
                answer = await self._heartbeat(call, out, now)
        except Refusal as refusal:
            out.records.clear()
            answer = self.refused(refusal.error, refusal.message)
            self._observe_refusal(call, refusal)
        out.replies.append(Reply(call.deferred, answer, self.refused))
        return out

    def _observe_refusal(self, call: HeartbeatCall[Q, A], refusal: Refusal) -> None:
        self._observer(
            GroupRequestRefused(
                call.request.group_id,
                f"{self.group_type.capitalize()}GroupHeartbeat",
                refusal.error,
                call.request.member_id,
                getattr(call.request, "instance_id", None),
                client=(call.client_id, call.client_host),
                message=refusal.message,
            )
        )

    @abstractmethod
    def check_request(self, call: HeartbeatCall[Q, A]) -> None:
        """Refuse a request that no member may send."""

    @abstractmethod
    async def _heartbeat(self, call: HeartbeatCall[Q, A], out: CoreOutcome, now: Instant) -> A:
        """The answer to a member that joins or stays."""

    @staticmethod
    @abstractmethod
    def refused(error: ErrorCode, message: str | None = None) -> A:
        """The answer that refuses a heartbeat."""

    @staticmethod
    @abstractmethod
    def _left(member_id: str, epoch: int) -> A:
        """The answer to a member that has left."""

    def missing(self, group_id: str, name: str = "Group") -> Refusal:
        """The refusal for an id without a group of this type (H-30, J-16)."""
        if group_id in self._others:
            message = missing_group(group_id, self.group_type, exists=True)
        else:
            message = f"{name} {group_id} not found."
        return Refusal(_E.GROUP_ID_NOT_FOUND, message)

    def find(self, group_id: str) -> G:
        """The group with an id. Raises Refusal if no group of this type has the id."""
        group = self.groups.get(group_id)
        if group is None:
            raise self.missing(group_id)
        return group

    def check_size(self, group: G) -> None:
        """Refuse a new member if the group is full (G-112, H-11)."""
        size_max: int = getattr(self._config, f"group_{self.group_type}_max_size")
        if len(group.members) >= size_max:
            raise group_full(self.group_type, size_max)

    def check_epoch(self, member: ModernMember, epoch: int, owned: Any = None) -> None:
        """Refuse an epoch other than the member's. The member's previous epoch is accepted if the
        answer with the present epoch may have been lost (G-114, G-115, H-13, J-14). `owned`: the
        partitions or tasks that the member reports as owned.

        A join is always accepted, because a member that joins owns nothing.
        """
        if epoch in (JOIN_EPOCH, member.epoch):
            return
        lost_answer = epoch == member.previous_epoch and epoch < member.epoch
        if not lost_answer or not member.may_own(owned):
            detail = member.epoch_detail if epoch < member.epoch else ""
            raise fenced_epoch(self.group_type, member.epoch, epoch, detail)

    def heartbeat_interval_ms(self, group: G) -> int:
        """The interval between heartbeats of a member."""
        return group_setting(self._config, self._topics, group.group_id, self._interval_setting)

    # --- Removal ---

    async def _leave(self, request: Q, out: CoreOutcome, now: Instant) -> A:
        group = self.find(request.group_id)
        if request.member_id not in group.members:
            raise unknown_member(request.member_id, request.group_id)
        removal = Removal(MemberRemovalReason.LEFT_BY_HEARTBEAT)
        await self.remove(group, {request.member_id: removal}, out, now)
        return self._left(request.member_id, request.member_epoch)

    async def on_timer(self, name: GroupTimerName, out: CoreOutcome, now: Instant) -> None:
        """Remove a member whose session, or whose deadline for revoking, rejoining or syncing, has
        expired (G-123, G-124, H-16, J-19)."""
        self._monotonic_ms = now.monotonic_ms
        group = self.groups.get(name.group_id)
        member = None if group is None else group.members.get(name.member_id)
        if group is None or member is None:
            return
        if (
            name.kind is not GroupTimer.MEMBER_REVOCATION
            or member.revocation_timeout_ms is not None
        ):
            removals = {member.member_id: Removal(_REASONS[name.kind])}
            await self.remove(group, removals, out, now)

    async def remove(
        self, group: G, removals: Mapping[str, Removal], out: CoreOutcome, now: Instant
    ) -> None:
        """Remove members: their partitions or tasks become free, and the group epoch grows once
        (G-101, H-15, J-03).

        `removals`: the reasons by member id.
        """
        async for some in in_pieces(removals.items()):
            for member_id, removal in some:
                self._observer(MemberRemoved(group.group_id, group.members[member_id], removal))
                self.deadlines.forget(group, member_id)
        if await self._converts_without(group, set(removals), out, now):
            return
        async for gone in in_pieces(removals):
            for member_id in gone:
                out.records += group.member_tombstones(member_id)
        out.records += await self._records_without(group, removals)
        self.undo_if_refused(group, out)

    async def _converts_without(
        self, group: G, gone: set[str], out: CoreOutcome, now: Instant
    ) -> bool:
        """Convert the group to another protocol if that is allowed after the removal of these
        members; True if the records of the conversion were added to `out`."""
        return False

    @abstractmethod
    async def _records_without(self, group: G, gone: Collection[str]) -> list[Record]:
        """The records of the group's next epoch, in which it does not have the members `gone`."""

    def undo_if_refused(
        self,
        group: G,
        out: CoreOutcome,
        member_id: str = "",
        then: Callable[[], None] | None = None,
    ) -> None:
        """Undo the changes of soft state if the records are refused. `member_id`: the member that
        joined or sent a heartbeat, "" for a removal. The function `then` is called when the records
        are durable."""

        if not out.records:
            return

        async def undo(now: Instant) -> CoreOutcome:
            group.forget_topics()
            if member_id not in group.members:
                self.deadlines.forget(group, member_id)
            if self.groups.get(group.group_id) is group:
                await self.deadlines.restore(group, member_id, now)
            return CoreOutcome()

        def after_append(error: ErrorCode, now: Instant) -> Decision:
            if error is not _E.NONE:
                return undo(now)
            made = self.groups.get(group.group_id)
            if made is not None and made.topics_version is None:
                # The records have made the group, whose topics were looked at before.
                made.topics_version = group.topics_version
            if then is not None:
                then()
            return CoreOutcome()

        out.after_append = after_append
