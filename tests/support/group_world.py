"""A group coordinator in a `CoordinatorWorld`, and the requests of clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from coordinator_world import CoordinatorWorld, Topics
from ended_log import ended_log
from odradek_broker.coordinator.groups.classic.group import ClassicGroup, GroupState
from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.groups.offsets import (
    CommitCall,
    CommitPart,
    FetchedOffsets,
)
from odradek_broker.coordinator.shards import Shards
from odradek_broker.deferred import Deferred
from odradek_broker.explain.groups import GroupRecorder
from odradek_broker.explain.history import History
from odradek_broker.explain.verdicts import GroupVerdicts
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.topic_partition import TopicPartition
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
from share_states_in_memory import ShareStatesInMemory

RANGE = [("range", b"meta")]
GROUP = "group"


@dataclass(frozen=True)
class Settings:
    """The broker's settings, but without an initial rebalance delay, so that tests need not
    wait."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = 2**31 - 1
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_size: int = 200
    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_max_size: int = 2**31 - 1
    group_streams_num_standby_replicas: int = 0
    group_streams_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000


class GroupWorld(CoordinatorWorld):
    """The node of a group coordinator. `states`: every state that a group has entered, in order."""

    def __init__(self, *, partitions: int = 1, topic: bool = True, **settings: Any) -> None:
        metadata = Topics({"topic": 10, "other": 10}, {"topic": b"T" * 16, "other": b"O" * 16})
        super().__init__(metadata, OFFSETS_TOPIC, partitions=partitions, topic_exists=topic)
        self.config = replace(Settings(), **settings)
        self.states: list[GroupState] = []
        self.share_states = ShareStatesInMemory()
        self.end_offsets: dict[TopicPartition, int | ErrorCode] = {}
        self.connections = SimpleNamespace(peers={})
        self.audit = SimpleNamespace(denials={})
        self.start()

    def partition(self, topic: str, index: int) -> None:
        """Return None: no partition has a log."""

    def log_of(self, where: TopicPartition) -> None:
        """Return None: no partition has a log."""

    def _new_coordinator(self) -> Shards[Any]:
        self.group_history = History(self.clock.wall_ms)
        recorder = GroupRecorder(self.group_history, self.metadata, self.config)
        self.groups = groups = self.new_groups(
            observer=recorder.record, state_observer=self._observe
        )
        self.verdicts = GroupVerdicts(
            lambda: [each.group_id for each in groups.groups() if each.offsets],
            groups.commits,
            lambda where: ended_log(self.end_offsets.get(where)),
        )
        return self.groups.shards

    def new_groups(self, **observers: Any) -> GroupCoordinator:
        return GroupCoordinator(
            self.config,
            metadata=self.metadata,
            internal_partition=self.internal_partition,
            clock=self.clock,
            scheduler=self,
            slices=self.slices,
            randomness=self.random,
            share_states=self.share_states,
            end_offset=lambda topic, index: self.end_offsets.get((topic, index), 0),
            **observers,
        )

    def _observe(self, group: ClassicGroup, before: GroupState, after: GroupState) -> None:
        self.states.append(after)

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
    ) -> Deferred[JoinGroupResponse]:
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
        """The id that a new dynamic member gets (KIP-394)."""
        answer = self.join(**how).result()
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def enter(self, **how: Any) -> tuple[str, Deferred[JoinGroupResponse]]:
        """Let a new dynamic member join; this takes two requests (KIP-394)."""
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
    ) -> Deferred[SyncGroupResponse]:
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
        origin: str = "",
    ) -> Deferred[list[ErrorCode]]:
        call = CommitCall(
            group, generation, member_id, instance, version, retention_ms, list(parts), origin
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

    def delete_topic(self, name: str = "topic") -> Deferred[None]:
        """Remove a topic from the metadata, durably, and tell the coordinator."""
        self.metadata.counts.pop(name, None)
        return self.groups.topic_deleted(self.metadata.ids.pop(name, bytes(16)))

    # --- State ---

    def group(self, group: str = GROUP) -> ClassicGroup:
        found = self.groups.group(group)
        assert found is not None
        return found

    def state(self, group: str = GROUP) -> GroupState:
        return self.group(group).state

    # --- Ready-made groups ---

    def stable(self, size: int = 2, **how: Any) -> list[str]:
        """A stable group of dynamic members; the first member is the leader."""
        members: list[str] = []
        for _ in range(size):
            members.append(self.enter(**how)[0])
            if len(members) > 1:
                for held in members[:-1]:
                    self.join(held, **how)
        self.complete(members, group=how.get("group", GROUP))
        return members

    def complete(self, members: list[str], group: str = GROUP) -> None:
        """Send SyncGroup for all members; each member's assignment is its own name."""
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
    topic_id: bytes = bytes(16),
) -> CommitPart:
    """An offset to commit. `topic_id`: by default that of the topic in a `GroupWorld`."""
    known = {"topic": b"T" * 16, "other": b"O" * 16}.get(topic, topic_id)
    return CommitPart(
        topic, partition, offset, epoch, metadata, topic_id if any(topic_id) else known
    )


def static_group(world: GroupWorld, version: int = 9) -> tuple[str, str]:
    """A stable group of two static members. Returns the ids of the leader and the other member."""
    leader = world.join(instance="one", version=version).result().member_id
    second = world.join(instance="two", version=version)
    world.join(leader, instance="one", version=version)
    follower = second.result().member_id
    world.sync(leader, 2, {leader: b"L", follower: b"F"}, instance="one")
    assert world.sync(follower, 2, instance="two").result().assignment == b"F"
    world.states.clear()
    return leader, follower
