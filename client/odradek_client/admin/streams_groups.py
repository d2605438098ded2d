"""The call of the admin client about streams groups, with their topologies, members and tasks
(KIP-1071).

`list_groups(types=["streams"])` lists streams groups, `list_group_offsets` reads their committed
offsets, and `delete_groups` deletes those without members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from odradek_client.admin.groups import group_outcomes
from odradek_client.admin.requests import AdminPart
from odradek_client.admin.results import Outcomes, Results
from odradek_protocol.common_structs import StreamsTaskIds
from odradek_protocol.constants import GROUP_COORDINATOR
from odradek_protocol.schemas.streams_group_describe import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedTasks,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


@dataclass(frozen=True, order=True)
class StreamsTask:
    """A task: the work on one partition of a subtopology."""

    subtopology: str
    partition: int


@dataclass(frozen=True)
class StreamsTasks:
    """Tasks of a member, by kind."""

    active: list[StreamsTask] = field(default_factory=list)
    standby: list[StreamsTask] = field(default_factory=list)
    warmup: list[StreamsTask] = field(default_factory=list)


@dataclass(frozen=True)
class StreamsMember:
    """A member of a streams group, with its present tasks and the tasks of its target assignment.

    `host`: the client's address, in the form that the broker uses. Members with the same
    `process_id` are threads of one process.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    process_id: str
    epoch: int
    topology_epoch: int
    tasks: StreamsTasks
    target: StreamsTasks


@dataclass(frozen=True)
class Subtopology:
    """A subtopology with the names of its topics."""

    name: str
    sources: list[str]
    repartition_sinks: list[str]
    repartition_sources: list[str]
    changelogs: list[str]


@dataclass(frozen=True)
class StreamsGroupDescription:
    """A streams group in detail. `topology_epoch` is None, and there are no subtopologies, until a
    member has sent a topology. `coordinator` is a node id."""

    group_id: str
    coordinator: int
    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: list[Subtopology]
    members: list[StreamsMember]


class StreamsGroupAdmin(AdminPart):
    """The call about streams groups."""

    async def describe_streams_groups(
        self, group_ids: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, StreamsGroupDescription]:
        """State, topology and members of streams groups, by name.

        Raises InvalidGroup for a group that does not exist or is no streams group,
        GroupAuthorizationFailed, UnsupportedByBroker.
        """

        async def ask(node_id: int, names: list[str]) -> Outcomes[str, StreamsGroupDescription]:
            request = StreamsGroupDescribeRequest(group_ids=names)
            response: StreamsGroupDescribeResponse = await self.network.send(node_id, request)
            return group_outcomes(
                self.requests, response.groups, lambda answer: _description(node_id, answer)
            )

        return await self.requests.for_each_coordinated(
            group_ids, GROUP_COORDINATOR, ask, raise_errors
        )


def _description(node_id: int, answer: DescribedStreamsGroup) -> StreamsGroupDescription:
    topology = answer.topology
    return StreamsGroupDescription(
        group_id=answer.group_id,
        coordinator=node_id,
        state=answer.group_state,
        epoch=answer.group_epoch,
        assignment_epoch=answer.assignment_epoch,
        topology_epoch=None if topology is None else topology.epoch,
        subtopologies=[
            Subtopology(
                each.subtopology_id,
                sorted(each.source_topics),
                sorted(each.repartition_sink_topics),
                sorted(topic.name for topic in each.repartition_source_topics),
                sorted(topic.name for topic in each.state_changelog_topics),
            )
            for each in (None if topology is None else topology.subtopologies) or ()
        ],
        members=[_member(each) for each in answer.members],
    )


def _member(answer: DescribedStreamsMember) -> StreamsMember:
    return StreamsMember(
        member_id=answer.member_id,
        instance_id=answer.instance_id,
        client_id=answer.client_id,
        host=answer.client_host,
        process_id=answer.process_id,
        epoch=answer.member_epoch,
        topology_epoch=answer.topology_epoch,
        tasks=_tasks(answer.assignment),
        target=_tasks(answer.target_assignment),
    )


def _tasks(answer: DescribedTasks) -> StreamsTasks:
    return StreamsTasks(
        _sorted(answer.active_tasks), _sorted(answer.standby_tasks), _sorted(answer.warmup_tasks)
    )


def _sorted(answer: Sequence[StreamsTaskIds]) -> list[StreamsTask]:
    return sorted(
        StreamsTask(each.subtopology_id, partition)
        for each in answer
        for partition in each.partitions
    )
