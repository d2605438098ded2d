"""StreamsGroupDescribe (key 89): streams groups with their topologies, members and tasks
(KIP-1071).

Of note: Kafka 4.3 fills neither the offsets of tasks nor `is_classic`.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, INT64, STRING, UINT16


@api_message(ApiKey.STREAMS_GROUP_DESCRIBE)
class StreamsGroupDescribeRequest(Message):
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL)


class DescribedProperty(Struct):
    """A setting of an internal topic, or a tag of a client."""

    key: str = field(STRING)
    value: str = field(STRING)


class DescribedInternalTopic(Struct):
    """An internal topic of a subtopology; 0 partitions or replicas mean that the broker decides."""

    name: str = field(STRING)
    partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    topic_configs: list[DescribedProperty] = field(array(DescribedProperty))


class DescribedSubtopology(Struct):
    """A subtopology with its topics."""

    subtopology_id: str = field(STRING)
    source_topics: list[str] = field(array(STRING))
    repartition_sink_topics: list[str] = field(array(STRING))
    state_changelog_topics: list[DescribedInternalTopic] = field(array(DescribedInternalTopic))
    repartition_source_topics: list[DescribedInternalTopic] = field(array(DescribedInternalTopic))


class DescribedTopology(Struct):
    """The topology of the group, in the version `epoch`."""

    epoch: int = field(INT32)
    subtopologies: list[DescribedSubtopology] | None = field(
        array(DescribedSubtopology), nullable="0+", default=None
    )


class DescribedEndpoint(Struct):
    """The address at which a client answers interactive queries."""

    host: str = field(STRING)
    port: int = field(UINT16)


class DescribedTaskOffset(Struct):
    """The sum of a task's offsets in its changelogs."""

    subtopology_id: str = field(STRING)
    partition: int = field(INT32)
    offset: int = field(INT64)


class DescribedTaskIds(Struct):
    """Tasks of one subtopology."""

    subtopology_id: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribedTasks(Struct):
    """Tasks of a member, by kind."""

    active_tasks: list[DescribedTaskIds] = field(array(DescribedTaskIds))
    standby_tasks: list[DescribedTaskIds] = field(array(DescribedTaskIds))
    warmup_tasks: list[DescribedTaskIds] = field(array(DescribedTaskIds))


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
    user_endpoint: DescribedEndpoint | None = field(DescribedEndpoint, nullable="0+", default=None)
    client_tags: list[DescribedProperty] = field(array(DescribedProperty))
    task_offsets: list[DescribedTaskOffset] = field(array(DescribedTaskOffset))
    task_end_offsets: list[DescribedTaskOffset] = field(array(DescribedTaskOffset))
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
