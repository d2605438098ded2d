"""StreamsGroupDescribe (key 89): streams groups with their topologies, members and tasks
(KIP-1071).

Of note: Kafka 4.3 fills neither the offsets of tasks nor `is_classic`.
"""

from __future__ import annotations

from odradek_protocol.common_structs import (
    InternalTopicInfo,
    StreamsProperty,
    StreamsTaskIds,
    TaskOffset,
    UserEndpoint,
)
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, STRING


@api_message(ApiKey.STREAMS_GROUP_DESCRIBE)
class StreamsGroupDescribeRequest(Message):
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL)


class DescribedSubtopology(Struct):
    """A subtopology with its topics."""

    subtopology_id: str = field(STRING)
    source_topics: list[str] = field(array(STRING))
    repartition_sink_topics: list[str] = field(array(STRING))
    state_changelog_topics: list[InternalTopicInfo] = field(array(InternalTopicInfo))
    repartition_source_topics: list[InternalTopicInfo] = field(array(InternalTopicInfo))


class DescribedTopology(Struct):
    """The topology of the group, in the version `epoch`."""

    epoch: int = field(INT32)
    subtopologies: list[DescribedSubtopology] | None = field(
        array(DescribedSubtopology), nullable="0+", default=None
    )


class DescribedTasks(Struct):
    """Tasks of a member, by kind."""

    active_tasks: list[StreamsTaskIds] = field(array(StreamsTaskIds))
    standby_tasks: list[StreamsTaskIds] = field(array(StreamsTaskIds))
    warmup_tasks: list[StreamsTaskIds] = field(array(StreamsTaskIds))


class DescribedStreamsMember(Struct):
    """A member of the group, with its present tasks and the tasks of its target assignment."""

    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    topology_epoch: int = field(INT32)
    process_id: str = field(STRING)
    user_endpoint: UserEndpoint | None = field(UserEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsProperty] = field(array(StreamsProperty))
    task_offsets: list[TaskOffset] = field(array(TaskOffset))
    task_end_offsets: list[TaskOffset] = field(array(TaskOffset))
    assignment: DescribedTasks = field(DescribedTasks)
    target_assignment: DescribedTasks = field(DescribedTasks)
    is_classic: bool = field(BOOL)


class DescribedStreamsGroup(Struct):
    """A streams group, or the error for its id."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    topology: DescribedTopology | None = field(DescribedTopology, nullable="0+", default=None)
    members: list[DescribedStreamsMember] = field(array(DescribedStreamsMember))
    authorized_operations: int = field(INT32, default=-2147483648)


@api_message(ApiKey.STREAMS_GROUP_DESCRIBE)
class StreamsGroupDescribeResponse(Message):
    throttle_time_ms: int = field(INT32)
    groups: list[DescribedStreamsGroup] = field(array(DescribedStreamsGroup))
