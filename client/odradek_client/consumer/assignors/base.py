"""Assignor, the interface of assignment strategies, and the members that get the partitions (K-50
to K-55)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek_client.structs import TopicPartition

MemberAssignment = dict[str, list[TopicPartition]]
"""Member id to partitions; every member is in it."""


@dataclass(frozen=True)
class GroupMember:
    """A member in the leader's view, with its subscription and the partitions that it owned
    before."""

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
    user_data: bytes | None = field(default=None, repr=False)

    @property
    def rank(self) -> tuple[int, str]:
        """The sort key of a member: static members by instance id, then the others by member id."""
        if self.group_instance_id is not None:
            return 0, self.group_instance_id
        return 1, self.member_id


class Assignor(ABC):
    """The interface of an assignment strategy: subclass it for your own strategy.

    `name`: the name in the protocol; all members must use the same name. An assignment must give
    every partition of every subscribed topic to exactly one subscribed member (K-55); a cooperative
    assignor may leave out partitions that their owner must revoke first (K-53).

    `cooperative`: true if members may keep their partitions while the group rebalances. Members
    keep them if every assignor in their list is cooperative (K-54).
    """

    name: str
    cooperative: bool = False

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], members: Iterable[GroupMember]
    ) -> MemberAssignment:
        """The partitions of each member. `partition_counts`: the number of partitions of each
        existing topic; other topics are not assigned."""

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Bytes that this member's subscription carries to the leader of the group."""
        return None

    def on_assignment(  # noqa: B027  there is nothing that every assignor must do
        self, assignment: list[TopicPartition], user_data: bytes | None, generation_id: int
    ) -> None:
        """Called in every member after it has received its assignment (K-32)."""
