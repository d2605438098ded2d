"""The core of one partition of `__consumer_offsets`: its groups and offsets. A runtime runs the
core."""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Collection, Mapping
from enum import IntEnum
from itertools import repeat
from struct import Struct as Packer
from typing import Any

from odradek_broker.coordinator.groups.administration import (
    AnyGroup,
    GroupAdministration,
    GroupsByType,
)
from odradek_broker.coordinator.groups.classic.group import (
    ClassicGroup,
    GroupState,
    JoinCall,
    StateObserver,
)
from odradek_broker.coordinator.groups.classic.join_phase import Rebalances
from odradek_broker.coordinator.groups.classic.membership import ClassicMembers
from odradek_broker.coordinator.groups.consumer.classic_members import ClassicProtocolMembers
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup
from odradek_broker.coordinator.groups.consumer.heartbeat import ConsumerGroups
from odradek_broker.coordinator.groups.conversion import GroupConversion
from odradek_broker.coordinator.groups.deadlines import (
    MEMBER_DEADLINES,
    GroupTimer,
    GroupTimerName,
    MemberDeadlines,
)
from odradek_broker.coordinator.groups.events import (
    GroupRemoved,
    GroupRequestRefused,
    Observer,
)
from odradek_broker.coordinator.groups.modern.groups import ModernGroups
from odradek_broker.coordinator.groups.offset_expiration import (
    EXPIRY_PAUSE_MS,
    EXPIRY_SLICE_GROUPS,
    TOMBSTONES_MAX,
    expire,
)
from odradek_broker.coordinator.groups.offsets import (
    NOT_A_MEMBER,
    OFFSET_APPEND_ERRORS,
    CommitCall,
    FetchingMember,
    OffsetStore,
    OffsetsView,
    check_commit,
    check_consumer_commit,
    check_fetch,
    check_streams_commit,
    commit_records,
)
from odradek_broker.coordinator.groups.responses import join_refused
from odradek_broker.coordinator.groups.settings import CoordinatorMetadata, GroupSettings
from odradek_broker.coordinator.groups.share.group import ShareGroup
from odradek_broker.coordinator.groups.share.groups import ShareGroups
from odradek_broker.coordinator.groups.streams.group import StreamsGroup
from odradek_broker.coordinator.groups.streams.groups import StreamsGroups
from odradek_broker.coordinator.runtime import (
    CoreOutcome,
    Decision,
    Instant,
    ProducerIdentity,
    Record,
    Reply,
)
from odradek_broker.coordinator.timers import Timers
from odradek_broker.deferred import Deferred
from odradek_broker.platform.seams import Randomness
from odradek_broker.slices import in_pieces, pause, with_pauses
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_protocol.stored import group_metadata, modern_groups, offset_commit
from odradek_protocol.stored.group_metadata import GroupMetadataValue
from odradek_protocol.stored.offset_commit import OffsetCommitValue

_MINUTE_MS = 60_000

#: The limit of groups without a record. A group without a record has only assigned member ids, or
#: is in its first join phase. When the limit is reached, new members get a retriable error, so that
#: clients that request ids and never join take a limited amount of memory.
UNRECORDED_GROUPS_MAX = 10_000
_INT16 = Packer(">h")

#: A placeholder: nothing reads the time at which a group entered Dead.
_NO_INSTANT = Instant(0, 0)


class GroupShard:
    """The core of one partition of `__consumer_offsets`; see `runtime.Core`."""

    def __init__(
        self,
        config: GroupSettings,
        random: Randomness,
        topics: CoordinatorMetadata,
        observer: Observer,
        state_observer: StateObserver | None = None,
    ) -> None:
        self.timers: Timers[GroupTimerName] = Timers()
        self.groups: dict[str, ClassicGroup] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self.shares: dict[str, ShareGroup] = {}
        self.streams: dict[str, StreamsGroup] = {}
        self.by_type: GroupsByType = (self.groups, self.consumers, self.shares, self.streams)
        self.offsets = OffsetStore(topics.topic_id)
        self._unrecorded: set[str] = set()
        #: The groups that the present check for expired offsets has yet to look at.
        self._unchecked: deque[tuple[Mapping[str, AnyGroup], str]] = deque()
        self._config = config
        self._topics = topics
        self._observer = observer
        self._state_observer = state_observer
        self._active = False
        self._rebalances = Rebalances(config, self.timers, observer)
        self._classic = ClassicMembers(
            config, self.groups, self._rebalances, random, self._create, observer
        )
        everyone = ChainMap[str, Any](self.groups, self.consumers, self.shares, self.streams)
        self._conversion = GroupConversion(
            config,
            topics,
            self.groups,
            self.consumers,
            ChainMap[str, Any](self.shares, self.streams),
            self._rebalances,
            MemberDeadlines(config, topics, self.timers, ConsumerGroup.protocol_type),
            observer,
            state_observer,
        )
        parts = config, topics, observer
        self.consumer = ConsumerGroups(
            *parts, self.consumers, self.timers, everyone, random, self._conversion
        )
        self._consumer_classic = ClassicProtocolMembers(config, topics, self.consumer, random)
        self.share = ShareGroups(*parts, self.shares, self.timers, everyone)
        self.stream = StreamsGroups(
            *parts, self.streams, self.timers, everyone, self._conversion.retire
        )
        self._modern: tuple[ModernGroups[Any, Any, Any], ...] = (
            self.consumer,
            self.share,
            self.stream,
        )
        self._of_record: dict[int, tuple[IntEnum, ModernGroups[Any, Any, Any]]] = {
            kind: (kind, groups)
            for groups in self._modern
            for kind in groups.group_class.record_types
        }
        self.administration = GroupAdministration(
            config,
            topics,
            self.groups,
            self.consumers,
            self.by_type,
            self.offsets,
            observer,
        )

    def _create(self, group_id: str, now: Instant) -> ClassicGroup | None:
        if len(self._unrecorded) >= UNRECORDED_GROUPS_MAX:
            return None
        self._unrecorded.add(group_id)
        group = ClassicGroup(group_id, state_since_ms=now.wall_ms, observer=self._state_observer)
        self.groups[group_id] = group
        return group

    # --- Replay: the only place where durable state changes ---

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record. Unknown types are skipped (O-02).

        Raises DecodeError for a record of a known type that cannot be read.
        """
        self._replay_record(key, value, NO_PRODUCER_ID)

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply one record of an open transaction: a pending offset (O-17)."""
        self._replay_record(key, value, producer_id)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Commit or drop the pending offsets of the producer, whose transaction has ended (O-17).
        The next check for expired offsets removes a group that has neither members nor offsets."""
        self.offsets.end_transaction(producer_id, commit)

    async def replay_in_pieces(self, key: bytes, value: bytes) -> None:
        """Like `replay`, for a record with a large value."""
        kind = _INT16.unpack_from(key)[0]
        if kind == group_metadata.KEY_TYPE:
            decoded = await with_pauses(group_metadata.decode_value_with_pauses(value))
            self._replay_group(group_metadata.decode_key(key).group, decoded)
        elif kind in self._of_record:
            made = await with_pauses(modern_groups.decode_value_with_pauses(kind, value))
            await pause()
            self._replay_modern(kind, key, made)
        else:
            self.replay(key, value)

    def _replay_record(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        kind = _INT16.unpack_from(key)[0] if len(key) >= _INT16.size else -1
        if kind == group_metadata.KEY_TYPE:
            group = None if value is None else group_metadata.decode_value(value)
            self._replay_group(group_metadata.decode_key(key).group, group)
        elif kind in (offset_commit.LEGACY_KEY_TYPE, offset_commit.KEY_TYPE):
            where = offset_commit.decode_key(key)
            committed = None if value is None else offset_commit.decode_value(value)
            if committed is not None and committed.topic_id == ZERO_UUID:
                self._set_topic_id(where.topic, committed)
            partition = (where.topic, where.partition)
            self.offsets.replay(where.group, partition, committed, producer_id)
            if committed is None:
                self._drop_if_void(where.group)
            elif where.group not in self.consumers and where.group not in self.streams:
                self._known(where.group)
        elif kind in self._of_record:
            decoded = None if value is None else modern_groups.decode_value(kind, value)
            self._replay_modern(kind, key, decoded)

    def _replay_modern(self, kind: int, key: bytes, value: Message | None) -> None:
        record_type, groups = self._of_record[kind]
        existed = len(groups.groups)
        group_id = groups.replay(record_type, key, value)
        self._follow_type(group_id, len(groups.groups) - existed)

    def _set_topic_id(self, topic: str, value: OffsetCommitValue) -> None:
        """Give an offset without a topic id the id of the present topic. At a load only if the
        offset is not from the time before that topic was made (O-24)."""
        if self._active or value.commit_timestamp >= self._topics.topic_made_ms(topic):
            value.topic_id = self._topics.topic_id(topic)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self._known(group_id).replay(value)
        elif group_id in self.groups:
            group = self.groups[group_id]
            group.stored = None
            if group_id in self.consumers or group_id in self.streams:
                self._retire_classic(group_id)
                return
            if not group.members:
                # The removed group has no record and no members, so its pending member ids are also
                # dropped.
                self._rebalances.timers.forget_pending(group)
            self._drop_if_void(group_id)

    def _follow_type(self, group_id: str, made: int) -> None:
        """Follow the creation (`made` 1) or removal (-1) of a modern group. After a creation,
        remove the classic group with the same id. After a removal, create a classic group if the id
        still has offsets."""
        if made > 0:
            self._retire_classic(group_id)
        elif made < 0 and self.offsets.has(group_id):
            self._known(group_id)

    def _retire_classic(self, group_id: str) -> None:
        """Remove the classic group if it has no record, because a group of another type now has its
        id (G-156, J-16)."""
        group = self.groups.get(group_id)
        if group is None or group.stored is not None:
            return
        del self.groups[group_id]
        self._unrecorded.discard(group_id)
        self._rebalances.timers.forget(group)
        group.transition_to(GroupState.DEAD, _NO_INSTANT)

    def _known(self, group_id: str) -> ClassicGroup:
        self._unrecorded.discard(group_id)
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, observer=self._state_observer)
        return group

    def _drop_if_void(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is None or group.state is not GroupState.EMPTY or not group.is_void:
            return
        if not self.offsets.has(group_id):
            del self.groups[group_id]
            self._unrecorded.discard(group_id)
            group.transition_to(GroupState.DEAD, _NO_INSTANT)
            if self._active:
                self._observer(GroupRemoved(group_id))

    async def loaded(self, now: Instant) -> CoreOutcome:
        """Build the soft state and the deadlines of every group (G-90)."""
        async for some in in_pieces(self.groups.values()):
            for group in some:
                group.state_since_ms = now.wall_ms
                await group.restore(now)
                await self._rebalances.restored(group, now)
        for groups in self._modern:
            await groups.restored(now)
        self._active = True
        self._set_expiry(now)
        return CoreOutcome()

    def closed(self, error: ErrorCode) -> CoreOutcome:
        """End the shard: this broker does not coordinate its groups any more."""
        out = CoreOutcome()
        for group in self.groups.values():
            for member in group.members.values():
                out.replies += self._rebalances.release(group, member, error)
            self._rebalances.timers.forget(group)
            if group.state is not GroupState.DEAD:
                group.transition_to(GroupState.DEAD, _NO_INSTANT)
        return out

    # --- Membership ---

    async def join(self, call: JoinCall, now: Instant) -> CoreOutcome:
        group_id = call.request.group_id
        consumer, streams = self.consumers.get(group_id), self.streams.get(group_id)
        if consumer is not None and consumer.members:
            return await self._consumer_classic.join(consumer, call, now)
        if group_id in self.shares or (streams is not None and streams.members):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return CoreOutcome(replies=[join_refused(call.deferred, error, "")])
        empty = consumer or streams
        # A join that is refused without looking at the group must not convert it.
        if (
            empty is not None
            and not call.request.member_id
            and call.error(self._config) is ErrorCode.NONE
        ):
            return await self._conversion.join_empty(
                empty, lambda: self._classic.join(call, now), now
            )
        return self._tidied(group_id, await self._classic.join(call, now))

    def sync(
        self, request: SyncGroupRequest, deferred: Deferred[SyncGroupResponse], now: Instant
    ) -> Decision:
        consumer = self.consumers.get(request.group_id)
        if consumer is not None:
            return self._consumer_classic.sync(consumer, request, deferred, now)
        return self._classic.sync(request, deferred, now)

    def heartbeat(
        self, request: HeartbeatRequest, deferred: Deferred[HeartbeatResponse], now: Instant
    ) -> CoreOutcome:
        consumer = self.consumers.get(request.group_id)
        if consumer is not None:
            return self._consumer_classic.heartbeat(consumer, request, deferred, now)
        return self._classic.heartbeat(request, deferred, now)

    async def leave(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        deferred: Deferred[LeaveGroupResponse],
        now: Instant,
    ) -> CoreOutcome:
        consumer = self.consumers.get(request.group_id)
        if consumer is not None:
            return await self._consumer_classic.leave(consumer, request, api_version, deferred, now)
        return self._tidied(
            request.group_id, await self._classic.leave(request, api_version, deferred, now)
        )

    def end_sessions(self, group_id: str, member: str | None, now_ms: int) -> list[str]:
        """Expire sessions immediately: the session of the member with this member id, the sessions
        of the members with this client id, or all sessions."""
        group = next((each[group_id] for each in self.by_type if group_id in each), None)
        ended = []
        for member_id, each in group.members.items() if group else ():
            if member not in (None, member_id, each.client_id):
                continue
            for kind in (GroupTimer.SESSION, GroupTimer.MEMBER_SESSION):
                name = GroupTimerName(kind, group_id, member_id)
                if name in self.timers:
                    self.timers.set(name, now_ms)
                    ended.append(member_id)
        return ended

    async def on_timer(self, name: GroupTimerName, now: Instant) -> CoreOutcome:
        if name.kind is GroupTimer.EXPIRY:
            return await self._expire(now)
        out = CoreOutcome()
        if name.kind in MEMBER_DEADLINES or name.kind is GroupTimer.STREAMS_DELAY:
            for groups in self._modern:
                await groups.on_timer(name, out, now)
            return out
        group = self.groups.get(name.group_id)
        if group is None:
            return out
        if name.kind is GroupTimer.SESSION:
            out = await self._rebalances.on_session_end(group, name.member_id, now)
        elif name.kind is GroupTimer.PENDING:
            out = await self._rebalances.on_pending_end(group, name.member_id, now)
        elif name.kind is GroupTimer.JOIN:
            out = await self._rebalances.on_join_end(group, now)
        else:
            out = await self._rebalances.on_sync_end(group, now)
        return self._tidied(name.group_id, out)

    def _tidied(self, group_id: str, out: CoreOutcome) -> CoreOutcome:
        """Remove the group if nothing of it is left and `out` has no records."""
        if not out.records:
            self._drop_if_void(group_id)
        return out

    # --- Offsets ---

    def commit(
        self,
        call: CommitCall,
        deferred: Deferred[list[ErrorCode]],
        now: Instant,
        producer: ProducerIdentity | None = None,
    ) -> CoreOutcome:
        """Commit offsets (O-03 to O-07); with a producer, as part of its transaction (O-05, O-17).

        The answer has one code for each part of the call.
        """

        def refused(error: ErrorCode) -> list[ErrorCode]:
            return [error] * len(call.parts)

        group = self.groups.get(call.group_id)
        consumer = self.consumers.get(call.group_id)
        streams = self.streams.get(call.group_id)
        transactional, metadata_max = producer is not None, self._config.offset_metadata_max_bytes
        if call.group_id in self.shares:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif streams is not None:
            error = check_streams_commit(streams, call, transactional, metadata_max)
        elif consumer is not None:
            topic_id = self._topics.topic_id
            error = check_consumer_commit(consumer, call, transactional, metadata_max, topic_id)
        else:
            error = check_commit(group, call, transactional)
        if error is not ErrorCode.NONE:
            self._observe_refusal(call, error, producer)
            return CoreOutcome(replies=[Reply(deferred, refused(error), refused)])
        if producer is None and group is not None and call.member_id in group.members:
            member = group.members[call.member_id]
            self._rebalances.timers.restart_session(group, member, now)
        records, errors = commit_records(call, self._topics.topic_id, metadata_max, now.wall_ms)
        if call.origin:
            of_members = bool(streams or consumer or (group and group.protocol_type))
            reset = self.offsets.reset_by(call, errors, of_members=of_members)
            if reset is not None:
                self._observer(reset)

        def keep_own(error: ErrorCode) -> list[ErrorCode]:
            return [error if own is ErrorCode.NONE else own for own in errors]

        return CoreOutcome(
            records=records,
            replies=[Reply(deferred, errors, keep_own)],
            append_errors=OFFSET_APPEND_ERRORS,
            producer=producer,
        )

    def _observe_refusal(
        self, call: CommitCall, error: ErrorCode, producer: ProducerIdentity | None
    ) -> None:
        self._observer(
            GroupRequestRefused(
                call.group_id,
                "OffsetCommit" if producer is None else "TxnOffsetCommit",
                error,
                call.member_id,
                call.instance_id,
                self.groups.get(call.group_id),
                call.generation,
            )
        )

    def view_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None,
        member: FetchingMember = NOT_A_MEMBER,
    ) -> OffsetsView:
        """The offsets of a group, for a member or another client (O-10, O-21)."""
        group = self.consumers.get(group_id) or self.streams.get(group_id)
        error = ErrorCode.NONE if group is None else check_fetch(group, member)
        return OffsetsView(error=error) if error else self.offsets.view(group_id, partitions)

    # --- Expiry (O-11 to O-13) ---

    def _set_expiry(self, now: Instant) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self.timers.set(GroupTimerName(GroupTimer.EXPIRY), now.monotonic_ms + interval_ms)

    async def _expire(self, now: Instant) -> CoreOutcome:
        """Remove expired offsets, and groups that have neither members nor offsets."""
        retention_ms = self._config.offsets_retention_minutes * _MINUTE_MS
        records: list[Record] = []
        if not self._unchecked:
            by_id: tuple[Mapping[str, AnyGroup], ...] = self.groups, self.consumers, self.streams
            for each in by_id:
                self._unchecked.extend(zip(repeat(each), each))
        for _ in range(EXPIRY_SLICE_GROUPS):
            if not self._unchecked or len(records) >= TOMBSTONES_MAX:
                break
            groups, group_id = self._unchecked[0]
            group = groups.get(group_id)
            if group is not None:
                records += await expire(
                    group, self.offsets, retention_ms, now.wall_ms, self._observer
                )
                self._drop_if_void(group_id)
            if len(records) < TOMBSTONES_MAX:
                # Otherwise more offsets of this group may have expired.
                self._unchecked.popleft()
        if not self._unchecked:
            self._set_expiry(now)
        else:
            pause_ms = EXPIRY_PAUSE_MS if len(records) >= TOMBSTONES_MAX else 0
            self.timers.set(GroupTimerName(GroupTimer.EXPIRY), now.monotonic_ms + pause_ms)
        return CoreOutcome(records=records)
