"""A client of the classic protocol in a `GroupWorld`, for groups that change their protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from consumer_group_world import (
    FakeMember,
    TopicIdPartitions,
    topic_id_partitions,
)
from group_world import GroupWorld
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import JoinGroupResponse
from odradek_protocol.stored.assignment import (
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import (
    ConsumerSubscription,
    OwnedPartitions,
    encode_subscription,
)

E = ErrorCode
S = GroupState
ALL = frozenset(range(10))


@dataclass
class ClassicMember:
    """A client of the classic protocol. `eager`: the member revokes all partitions before it
    joins."""

    world: GroupWorld
    instance: str | None = None
    eager: bool = False
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] = field(default_factory=frozenset)
    session_ms: int = 10_000

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        owned = [OwnedPartitions(topic="topic", partitions=sorted(self.owned))]
        subscription = ConsumerSubscription(
            topics=["topic"], owned_partitions=[] if self.eager or not self.owned else owned
        )
        return [("range", encode_subscription(subscription))]

    def how(self) -> dict[str, Any]:
        return {
            "protocols": self.protocols,
            "instance": self.instance,
            "session_ms": self.session_ms,
        }

    def enter(self) -> JoinGroupResponse:
        """Join as a new member of a classic group or of a consumer group."""
        if self.instance is None:
            self.member_id = self.world.new_id(**self.how())
        return self.join()

    def join(self) -> JoinGroupResponse:
        if self.eager:
            self.owned = frozenset()
        answer = self.world.join(self.member_id, **self.how()).result()
        if answer.error_code == E.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, give: frozenset[int] | None = None) -> ErrorCode:
        """Send SyncGroup. `give`: the partitions that a classic group's leader assigns to
        itself."""
        given = {self.member_id: assignment(give)} if give is not None else {}
        answer = self.world.sync(
            self.member_id, self.generation, given, instance=self.instance
        ).result()
        if answer.error_code == E.NONE:
            parts = decode_assignment(answer.assignment).assigned_partitions
            self.owned = frozenset(index for part in parts for index in part.partitions)
        return ErrorCode(answer.error_code)

    def beat(self) -> ErrorCode:
        return self.world.heartbeat(self.member_id, self.generation, instance=self.instance)

    def go_on(self) -> None:
        """Send a heartbeat, and do what its response requires."""
        before = self.owned
        if self.beat() is E.REBALANCE_IN_PROGRESS:
            assert self.join().error_code == E.NONE
            assert self.sync() is E.NONE
            if not self.eager and before - self.owned:
                # Cooperative: the member revokes the partitions that it lost, and joins again.
                assert self.join().error_code == E.NONE
                assert self.sync() is E.NONE

    @property
    def topic_id_partitions(self) -> TopicIdPartitions:
        return topic_id_partitions(*self.owned)


def assignment(indexes: frozenset[int], user_data: bytes | None = None) -> bytes:
    part = PartitionsOfTopic(topic="topic", partitions=sorted(indexes))
    return encode_assignment(ConsumerAssignment(assigned_partitions=[part], user_data=user_data))


def classic_group(world: GroupWorld, **how: Any) -> ClassicMember:
    """A stable classic group whose only member owns all partitions."""
    member = ClassicMember(world, **how)
    assert member.enter().error_code == E.NONE
    assert member.sync(ALL) is E.NONE
    assert world.state() is S.STABLE
    return member


def rest(*members: ClassicMember | FakeMember) -> None:
    """Send heartbeats of all members until nothing changes; fails if a partition ever has
    two owners."""
    for _ in range(12):
        for member in members:
            if isinstance(member, ClassicMember):
                member.go_on()
            else:
                assert member.beat().error_code == E.NONE
            held = [
                place
                for other in members
                for place in (
                    other.topic_id_partitions if isinstance(other, ClassicMember) else other.owned
                )
            ]
            assert len(held) == len(set(held))
    assert len(held) == 10


def mixed(world: GroupWorld) -> tuple[ClassicMember, FakeMember]:
    old, new = classic_group(world), FakeMember(world, "new")
    new.beat()
    rest(old, new)
    return old, new
