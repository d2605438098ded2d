"""Share groups in a `GroupWorld`, and the requests of their members and administrators."""

from __future__ import annotations

from functools import cached_property

from fake_share_partitions import FakeSharePartitions
from group_world import GROUP, GroupWorld
from handler_calls import handled
from odradek_broker.coordinator.groups.administration import GroupSummary
from odradek_broker.coordinator.groups.share.group import ShareGroup
from odradek_broker.deferred import Deferred
from odradek_broker.explain.sentences import sentence
from odradek_protocol.schemas.share_group_describe import DescribedShareGroup
from odradek_protocol.schemas.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

__all__ = ["GROUP", "O", "ShareGroupWorld", "T"]

#: The ids of the topics `topic` and `other`.
T, O = b"T" * 16, b"O" * 16


class ShareGroupWorld(GroupWorld):
    """The node of a group coordinator, with a share coordinator in memory."""

    @cached_property
    def share_partitions(self) -> FakeSharePartitions:
        return FakeSharePartitions()

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = GROUP,
        topics: list[str] | None = None,
        rack: str | None = None,
        client: str = "client",
    ) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat. Returns the response."""
        asked = self.ask(member_id, epoch, group=group, topics=topics, rack=rack, client=client)
        return asked.result()

    def ask(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = GROUP,
        topics: list[str] | None = None,
        rack: str | None = None,
        client: str = "client",
    ) -> Deferred[ShareGroupHeartbeatResponse]:
        """Send a heartbeat. Returns the deferred response."""
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=topics,
        )
        return self.groups.share.heartbeat(request, client, "/127.0.0.1")

    def share_join(
        self, member_id: str, topics: list[str], *, group: str = GROUP, rack: str | None = None
    ) -> None:
        """Let a member join and send heartbeats until it has partitions."""
        answer = self.beat(member_id, 0, topics=topics, group=group, rack=rack)
        for _ in range(3):
            if self.share_group(group).members[member_id].assigned:
                return
            self.wait(1_000)
            answer = self.beat(member_id, answer.member_epoch, group=group)

    def share_group(self, group: str = GROUP) -> ShareGroup:
        found = self.groups.share_group(group)
        assert found is not None
        return found

    def epoch(self, member_id: str, group: str = GROUP) -> int:
        return self.share_group(group).members[member_id].epoch

    @staticmethod
    def assigned(answer: ShareGroupHeartbeatResponse) -> dict[bytes, list[int]]:
        assert answer.assignment is not None
        return {part.topic_id: part.partitions for part in answer.assignment.topic_partitions}

    def described(self, group: str = GROUP) -> DescribedShareGroup:
        return self.groups.share.describe(group).result()

    def listed(self) -> list[GroupSummary]:
        _, found = handled(self.groups.list_groups())
        listed: list[GroupSummary] = found
        return listed

    def history(self, group: str = GROUP) -> list[str]:
        events = self.group_history.about(group).events
        return [sentence(event.kind, event.fields) for event in events]
