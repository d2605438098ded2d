"""StreamsGroupHeartbeat (key 88): a member of a streams group joins, stays alive, reports its tasks
and leaves (KIP-1071).

Of note: the topology is only sent with epoch 0, and the list of tasks only when it has changed.
Kafka 4.3 refuses some of the fields: instance ids, regular expressions for source topics, warm-up
tasks and the offsets of tasks.
"""

from __future__ import annotations

from odradek_protocol.common_structs import (
    PartitionsOfTopic,
    StreamsProperty,
    StreamsSubtopology,
    StreamsTaskIds,
    TaskOffset,
    UserEndpoint,
)
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, STRING


class StreamsTopology(Struct):
    """The topology of the application, in the version `epoch`."""

    epoch: int = field(INT32)
    subtopologies: list[StreamsSubtopology] = field(array(StreamsSubtopology))


@api_message(ApiKey.STREAMS_GROUP_HEARTBEAT)
class StreamsGroupHeartbeatRequest(Message):
    """The request. `member_epoch` 0 joins, -1 leaves.

    Null means that the value of a field has not changed since the member last sent it.
    """

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    endpoint_information_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    topology: StreamsTopology | None = field(StreamsTopology, nullable="0+", default=None)
    active_tasks: list[StreamsTaskIds] | None = field(
        array(StreamsTaskIds), nullable="0+", default=None
    )
    standby_tasks: list[StreamsTaskIds] | None = field(
        array(StreamsTaskIds), nullable="0+", default=None
    )
    warmup_tasks: list[StreamsTaskIds] | None = field(
        array(StreamsTaskIds), nullable="0+", default=None
    )
    process_id: str | None = field(STRING, nullable="0+", default=None)
    user_endpoint: UserEndpoint | None = field(UserEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsProperty] | None = field(
        array(StreamsProperty), nullable="0+", default=None
    )
    task_offsets: list[TaskOffset] | None = field(array(TaskOffset), nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field(
        array(TaskOffset), nullable="0+", default=None
    )
    shutdown_application: bool = field(BOOL, default=False)


class StreamsStatus(Struct):
    """A status that the member should know; see `StreamsStatusCode`."""

    status_code: int = field(INT8)
    status_detail: str = field(STRING)


class EndpointToPartitions(Struct):
    """A client with an address, and the source partitions of its tasks."""

    user_endpoint: UserEndpoint = field(UserEndpoint)
    active_partitions: list[PartitionsOfTopic] = field(array(PartitionsOfTopic))
    standby_partitions: list[PartitionsOfTopic] = field(array(PartitionsOfTopic))


@api_message(ApiKey.STREAMS_GROUP_HEARTBEAT)
class StreamsGroupHeartbeatResponse(Message):
    """The response. Tasks null: unchanged since the last answer. `partitions_by_user_endpoint`
    null: unchanged since the member last received them."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    acceptable_recovery_lag: int = field(INT32)
    task_offset_interval_ms: int = field(INT32)
    status: list[StreamsStatus] | None = field(array(StreamsStatus), nullable="0+")
    active_tasks: list[StreamsTaskIds] | None = field(
        array(StreamsTaskIds), nullable="0+", default=None
    )
    standby_tasks: list[StreamsTaskIds] | None = field(
        array(StreamsTaskIds), nullable="0+", default=None
    )
    warmup_tasks: list[StreamsTaskIds] | None = field(
        array(StreamsTaskIds), nullable="0+", default=None
    )
    endpoint_information_epoch: int = field(INT32)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        array(EndpointToPartitions), nullable="0+", default=None
    )
