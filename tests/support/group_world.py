"""A group coordinator on virtual time over partitions that are lists, durable when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from odradek_broker.authorizer import ALLOW_EVERYTHING, Authorizer
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from odradek_broker.coordinator.groups.group import ClassicGroup
from odradek_broker.coordinator.groups.offsets import (
    CommitCall,
    CommitPart,
    FetchedOffsets,
)
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.fault_points import NO_FAULTS
from odradek_broker.later import Later
from odradek_broker.partition import StoredRecord
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.schemas.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek_protocol.stored.control_marker import ControlType, encode_key, encode_marker

WALL_OFFSET_MS = 1_700_000_000_000
RANGE = [("range", b"meta")]
GROUP = "group"


@dataclass(frozen=True)
class Settings:
    """Like the broker's, but without the initial delay, so that sequences are exact."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = 2**31 - 1
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000


class ListPartition:
    """An internal partition. With `hold`, appends are durable only after `flush`."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []
        self.durable = 0
        self.hold = False
        self.refuse: ErrorCode = ErrorCode.NONE
        self.append_times_ms: list[int] = []
        #: offset -> (producer id, is it a marker)
        self.producers: dict[int, tuple[int, bool]] = {}
        self._waiting: list[tuple[int, Later[ErrorCode]]] = []

    def append_internal(
        self, records: list[tuple[bytes | None, bytes | None]], now_ms: int
    ) -> Later[ErrorCode]:
        return self._append(records, now_ms)

    def append_transactional(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer_id: int,
        producer_epoch: int,
    ) -> Later[ErrorCode]:
        if self.refuse is ErrorCode.NONE:
            start = len(self.records)
            for offset in range(start, start + len(records)):
                self.producers[offset] = (producer_id, False)
        return self._append(records, now_ms)

    def append_marker(self, producer_id: int, commit: bool) -> Later[ErrorCode]:
        """What the partition's leader does; the coordinator must be told by the test."""
        self.producers[len(self.records)] = (producer_id, True)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        return self._append([(encode_key(kind), encode_marker(0))], 0)

    def _append(
        self, records: Sequence[tuple[bytes | None, bytes | None]], now_ms: int
    ) -> Later[ErrorCode]:
        assert records
        if self.refuse is not ErrorCode.NONE:
            return Later.of(self.refuse)
        self.records += records
        self.append_times_ms.append(now_ms)
        later: Later[ErrorCode] = Later()
        if self.hold:
            self._waiting.append((len(self.records), later))
        else:
            self.durable = len(self.records)
            later.resolve(ErrorCode.NONE)
        return later

    def read_all(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        for record in self.read_stored():
            if not record.is_control:
                yield record.offset, record.key, record.value

    def read_stored(self) -> Iterator[StoredRecord]:
        for offset, (key, value) in enumerate(self.records):
            yield StoredRecord(offset, key, value, *self.producers.get(offset, (-1, False)))

    def flush(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The disk answers for everything that was appended."""
        waiting, self._waiting = self._waiting, []
        if error is ErrorCode.NONE:
            self.durable = len(self.records)
        for _, later in waiting:
            later.resolve(error)

    def crash(self) -> None:
        """What was not durable is lost, and nobody waits for it any more."""
        del self.records[self.durable :]
        self.producers = {at: who for at, who in self.producers.items() if at < self.durable}
        self._waiting = []


class VirtualClock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_OFFSET_MS + self.now_ms


class CountedIds:
    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, bound: int) -> int:
        return 0


@dataclass
class Topics:
    """The cluster metadata, as far as groups ask."""

    counts: dict[str, int] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    leader: int = 1
    topics_version: int = 0
    #: (group, name of a setting) -> milliseconds
    group_settings: dict[tuple[str, str], int] = field(default_factory=dict)

    def group_setting_ms(self, group_id: str, name: str) -> int | None:
        return self.group_settings.get((group_id, name))

    def topic_names(self) -> list[str]:
        return list(self.ids)

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def leader_of(self, name: str, partition: int) -> int | None:
        return self.leader if 0 <= partition < self.counts.get(name, 0) else None

    def topic_id(self, name: str) -> bytes:
        return self.ids.get(name, bytes(16))

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, held in self.ids.items() if held == topic_id), None)


class NoTimer:
    def cancel(self) -> None: ...


class GroupWorld:
    """The node of one coordinator. `states`: every state a group entered, in order."""

    def __init__(self, *, partitions: int = 1, topic: bool = True, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.random = CountedIds()
        self.metadata = Topics({"topic": 10, "other": 10}, {"topic": b"T" * 16, "other": b"O" * 16})
        self.config = replace(Settings(), **settings)
        self.authorizer: Authorizer = ALLOW_EVERYTHING
        self.faults = NO_FAULTS
        self.node_id = 1
        self.advertised = ("host", 9092)
        self.topic_partitions = [ListPartition() for _ in range(partitions)]
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.states: list[GroupState] = []
        if topic:
            self.metadata.counts[OFFSETS_TOPIC] = partitions
        self.groups = GroupCoordinator(self, self.config, self._observe)
        self.groups.load()

    def _observe(self, group: ClassicGroup, before: GroupState, after: GroupState) -> None:
        self.states.append(after)

    # --- What a node gives ---

    def internal_partition(self, topic: str, index: int) -> ListPartition | None:
        if self.metadata.partition_count(topic) == 0 or self.metadata.leader != self.node_id:
            return None
        return self.topic_partitions[index]

    def ensure_internal_topic(self, name: str) -> Later[None]:
        self.metadata.counts.setdefault(name, len(self.topic_partitions))
        return Later.of(None)

    def call_at(self, monotonic_ms: float, callback: Callable[[], None]) -> NoTimer:
        self.timers.append((monotonic_ms, callback))
        return NoTimer()

    # --- Time and disk ---

    @property
    def log(self) -> ListPartition:
        """The only partition."""
        assert len(self.topic_partitions) == 1
        return self.topic_partitions[0]

    def wait(self, duration_ms: int) -> None:
        """Let time pass; every deadline is met at its moment."""
        end_ms = self.clock.now_ms + duration_ms
        while (next_ms := self.groups.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.clock.now_ms = max(self.clock.now_ms, next_ms)
            self.groups.advance(self.clock.now_ms)
        self.clock.now_ms = end_ms

    def restart(self) -> None:
        """Kill and start again: only what was durable is there."""
        for partition in self.topic_partitions:
            partition.crash()
        self.groups = GroupCoordinator(self, self.config, self._observe)
        self.groups.load()

    # --- Requests ---

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        protocols: list[tuple[str, bytes]] | None = None,
        protocol_type: str = "consumer",
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client: str = "client",
    ) -> Later[JoinGroupResponse]:
        offered = RANGE if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered
            ],
        )
        return self.groups.join(request, version, client, "/127.0.0.1")

    def new_id(self, **how: Any) -> str:
        """The id that a new dynamic member is given (KIP-394)."""
        answer = self.join(**how).result()
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def enter(self, **how: Any) -> tuple[str, Later[JoinGroupResponse]]:
        """A new dynamic member, id handshake included."""
        member_id = self.new_id(**how)
        return member_id, self.join(member_id, **how)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Later[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=held, assignment=data)
                for held, data in (assignments or {}).items()
            ],
        )
        return self.groups.sync(request)

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return ErrorCode(self.groups.heartbeat(request).result().error_code)

    def leave(self, *member_ids: str, group: str = GROUP) -> list[ErrorCode]:
        return self.leave_as(*[MemberIdentity(member_id=held) for held in member_ids], group=group)

    def leave_as(self, *members: MemberIdentity, group: str = GROUP) -> list[ErrorCode]:
        request = LeaveGroupRequest(group_id=group, members=list(members))
        answer = self.groups.leave(request, 5).result()
        assert answer.error_code == ErrorCode.NONE
        return [ErrorCode(member.error_code) for member in answer.members]

    def commit_later(
        self,
        *parts: CommitPart,
        group: str = GROUP,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 9,
        retention_ms: int = -1,
    ) -> Later[list[ErrorCode]]:
        call = CommitCall(
            group, generation, member_id, instance, version, retention_ms, list(parts)
        )
        return self.groups.commit_offsets(call)

    def commit(self, offset: int = 5, **how: Any) -> ErrorCode:
        """Commit one position in partition 0 of "topic"."""
        return self.commit_later(part(offset), **how).result()[0]

    def fetch(
        self,
        *places: tuple[str, int],
        group: str = GROUP,
        everything: bool = False,
        stable: bool = False,
    ) -> FetchedOffsets:
        asked = None if everything else list(places)
        return self.groups.fetch_offsets(group, asked, stable).result()

    def committed(self, group: str = GROUP, topic: str = "topic", partition: int = 0) -> int:
        return self.fetch((topic, partition), group=group).parts[0].offset

    # --- Looking ---

    def group(self, group: str = GROUP) -> ClassicGroup:
        found = self.groups.group(group)
        assert found is not None
        return found

    def state(self, group: str = GROUP) -> GroupState:
        return self.group(group).state

    # --- Ready-made groups ---

    def stable(self, size: int = 2, **how: Any) -> list[str]:
        """A stable group of dynamic members, the first one leading."""
        members: list[str] = []
        for _ in range(size):
            members.append(self.enter(**how)[0])
            if len(members) > 1:
                for held in members[:-1]:
                    self.join(held, **how)
        self.complete(members, group=how.get("group", GROUP))
        return members

    def complete(self, members: list[str], group: str = GROUP) -> None:
        """Everyone syncs; each is assigned its own name."""
        held = self.group(group)
        assert self.state(group) is GroupState.COMPLETING_REBALANCE
        assert held.leader_id is not None
        given = {member_id: member_id.encode() for member_id in members}
        self.sync(held.leader_id, held.generation, given, group=group)
        for member_id in members:
            answer = self.sync(member_id, held.generation, group=group).result()
            assert answer.error_code == ErrorCode.NONE
            assert answer.assignment == member_id.encode()
        assert self.state(group) is GroupState.STABLE


def part(
    offset: int = 5,
    topic: str = "topic",
    partition: int = 0,
    *,
    epoch: int = -1,
    metadata: str = "",
) -> CommitPart:
    return CommitPart(topic, partition, offset, epoch, metadata)


def context(version: int) -> RequestContext:
    return RequestContext(version, "client", "/127.0.0.1", 1)
