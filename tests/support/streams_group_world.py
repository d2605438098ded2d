"""Streams groups in a `GroupWorld`, and the requests of their members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.streams.group import StreamsGroup
from odradek_broker.coordinator.groups.streams.heartbeat import StreamsAnswer
from odradek_protocol.common_structs import (
    CopartitionGroup,
    InternalTopicInfo,
    StreamsSubtopology,
    StreamsTaskIds,
)
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsTopology,
)

__all__ = ["GROUP", "StreamsGroupWorld", "internal", "subtopology", "tasks", "topology"]


def internal(name: str, partitions: int = 0) -> InternalTopicInfo:
    return InternalTopicInfo(name=name, partitions=partitions, replication_factor=0)


def subtopology(
    subtopology_id: str = "0",
    sources: Iterable[str] = ("topic",),
    *,
    changelogs: Iterable[InternalTopicInfo] = (),
    sinks: Iterable[str] = (),
    repartitioned: Iterable[InternalTopicInfo] = (),
    together: Iterable[CopartitionGroup] = (),
) -> StreamsSubtopology:
    return StreamsSubtopology(
        subtopology_id=subtopology_id,
        source_topics=list(sources),
        state_changelog_topics=list(changelogs),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(repartitioned),
        copartition_groups=list(together),
    )


def topology(*subtopologies: StreamsSubtopology, epoch: int = 0) -> StreamsTopology:
    return StreamsTopology(epoch=epoch, subtopologies=list(subtopologies or [subtopology()]))


def tasks(**partitions: Iterable[int]) -> list[StreamsTaskIds]:
    """Tasks by subtopology, from keywords such as `_0=(0, 1)`."""
    return [
        StreamsTaskIds(subtopology_id=name.removeprefix("_"), partitions=list(indexes))
        for name, indexes in partitions.items()
    ]


class StreamsGroupWorld(GroupWorld):
    """A node with a group coordinator. Assignments of streams groups are computed without a
    delay."""

    def __init__(self, *, delay_ms: int = 0, interval_ms: int = 0, **settings: Any) -> None:
        super().__init__(group_streams_initial_rebalance_delay_ms=delay_ms, **settings)
        self.metadata.streams_assignment_interval_ms = interval_ms

    def beat(self, member_id: str, epoch: int = 0, **more: Any) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat. Returns the response."""
        return self.ask(member_id, epoch, **more).response

    def ask(
        self, member_id: str, epoch: int = 0, *, group: str = GROUP, **more: Any
    ) -> StreamsAnswer:
        """Send a heartbeat. Returns the response with the internal topics to create."""
        fields: dict[str, Any] = {}
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": 60_000,
                "process_id": member_id,
                "topology": topology(),
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
            }
        fields |= more
        request = StreamsGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, **fields
        )
        return self.groups.streams_heartbeat(request, "client", "/127.0.0.1").result()

    def report(self, member_id: str, epoch: int, **partitions: Iterable[int]) -> int:
        """Send a heartbeat that reports the member's active tasks. Returns the member epoch in the
        response."""
        answer = self.beat(
            member_id,
            epoch,
            active_tasks=tasks(**partitions),
            standby_tasks=[],
            warmup_tasks=[],
        )
        return answer.member_epoch

    def create(self, name: str, partitions: int) -> None:
        self.metadata.counts[name] = partitions
        self.metadata.ids[name] = name.ljust(16, "-").encode()
        self.metadata.topics_version += 1

    def streams_group(self, group: str = GROUP) -> StreamsGroup:
        found = self.groups.streams_group(group)
        assert found is not None
        return found

    @staticmethod
    def active(answer: StreamsGroupHeartbeatResponse) -> dict[str, list[int]]:
        assert answer.active_tasks is not None
        return {each.subtopology_id: each.partitions for each in answer.active_tasks}

    @staticmethod
    def statuses(answer: StreamsGroupHeartbeatResponse) -> list[int]:
        return [each.status_code for each in answer.status or ()]
