"""Members of a consumer group (KIP-848) in a `GroupWorld`: their state and their heartbeats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.shard import GroupShard
from odradek_broker.deferred import Deferred
from odradek_protocol.common_structs import PartitionsOfTopicId
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

TopicIdPartitions = frozenset[tuple[bytes, int]]
E = ErrorCode
#: Enough heartbeats of every member to finish any reassignment.
ROUNDS_MAX = 30


def topic_id_partitions(*indexes: int, topic: bytes = b"T" * 16) -> TopicIdPartitions:
    """Partitions of a topic, by default of "topic"."""
    return frozenset((topic, index) for index in indexes)


def listed(owned: TopicIdPartitions) -> list[PartitionsOfTopicId]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(owned):
        by_topic.setdefault(topic_id, []).append(index)
    return [
        PartitionsOfTopicId(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_topic.items()
    ]


def assigned(answer: ConsumerGroupHeartbeatResponse) -> TopicIdPartitions | None:
    if answer.assignment is None:
        return None
    return frozenset(
        (part.topic_id, index)
        for part in answer.assignment.topic_partitions
        for index in part.partitions
    )


def send(world: GroupWorld, **fields: Any) -> Deferred[ConsumerGroupHeartbeatResponse]:
    """Send a heartbeat of this version with exactly these fields."""
    version = fields.pop("version", 1)
    request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
    work = world.groups.consumer_heartbeat(request, version, "client", "/127.0.0.1")
    return world.slices.deferred(work)


def shard(world: GroupWorld) -> GroupShard:
    (runtime,) = world.groups.shards
    return runtime.core


def consumer_group(world: GroupWorld, group: str = GROUP) -> ConsumerGroup:
    return shard(world).consumers[group]


def stored(world: GroupWorld, member_id: str, group: str = GROUP) -> ConsumerMember:
    """The coordinator's state of the member."""
    return consumer_group(world, group).members[member_id]


@dataclass
class FakeMember:
    """A correct client: it revokes the partitions that the coordinator tells it to revoke, and
    acknowledges the revocation."""

    world: GroupWorld
    member_id: str
    instance: str | None = None
    topics: list[str] | None = field(default_factory=lambda: ["topic"])
    pattern: str | None = None
    assignor: str | None = None
    rebalance_ms: int = 60_000
    epoch: int = 0
    owned: TopicIdPartitions = frozenset()
    told: bool = False

    def request(self, full: bool = False, **changes: Any) -> dict[str, Any]:
        """Make a heartbeat: with all fields if the member joins or `full` is set, else with the
        changed fields."""
        fields: dict[str, Any] = {"member_id": self.member_id, "member_epoch": self.epoch}
        if self.epoch == 0 or full:
            fields |= {
                "instance_id": self.instance,
                "rebalance_timeout_ms": self.rebalance_ms,
                "subscribed_topic_names": self.topics,
                "subscribed_topic_regex": self.pattern,
                "server_assignor": self.assignor,
                "topic_partitions": listed(self.owned),
            }
        elif not self.told:
            fields["topic_partitions"] = listed(self.owned)
        return fields | changes

    def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, and act on its response."""
        answer = send(self.world, **self.request(**changes)).result()
        self.take(answer)
        return answer

    def take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code == E.NONE:
            self.told = True
            self.epoch = answer.member_epoch
            given = assigned(answer)
            if given is not None and given != self.owned:
                self.owned, self.told = given, False
        elif answer.error_code in (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID):
            self.owned, self.epoch, self.told = frozenset(), 0, False

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        fields = {"member_id": self.member_id, "member_epoch": epoch, "instance_id": self.instance}
        answer = send(self.world, **fields).result()
        self.owned, self.epoch, self.told = frozenset(), 0, False
        return answer


def settle(*members: FakeMember) -> None:
    """Send heartbeats of all members until nothing changes."""
    for _ in range(ROUNDS_MAX):
        before = [(member.epoch, member.owned, member.told) for member in members]
        for member in members:
            assert member.beat().error_code == E.NONE
        if before == [(member.epoch, member.owned, member.told) for member in members]:
            return
    raise AssertionError("the group does not come to rest")


def joined(world: GroupWorld, *names: str, **how: Any) -> list[FakeMember]:
    """Let members join until they have their final assignment."""
    members = [FakeMember(world, name, **how) for name in names]
    for member in members:
        assert member.beat().error_code == E.NONE
    settle(*members)
    return members


def grow(world: GroupWorld, topic: str, count: int) -> None:
    """Add partitions to a topic."""
    world.metadata.counts[topic] = count
    world.metadata.topics_version += 1
