"""Structs that several messages have in common (Kafka's definitions repeat them).

A struct is coded by the version of its message, and all of these have the same fields in all
versions.
"""

from __future__ import annotations

from odradek_protocol.message import Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, INT64, STRING, UINT16, UUID


class PartitionError(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TopicErrors(Struct):
    name: str = field(STRING)
    partitions: list[PartitionError] = field(array(PartitionError))


class PartitionsOfTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class PartitionsOfTopicId(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class GroupAssignment(Struct):
    topic_partitions: list[PartitionsOfTopicId] = field(array(PartitionsOfTopicId))


class TopicPartitionsInfo(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribedAssignment(Struct):
    topic_partitions: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))


class StreamsProperty(Struct):
    """A setting of an internal topic, or a tag of a client."""

    key: str = field(STRING)
    value: str = field(STRING)


class InternalTopicInfo(Struct):
    """An internal topic of a subtopology; 0 partitions or replicas mean that the broker decides."""

    name: str = field(STRING)
    partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    topic_configs: list[StreamsProperty] = field(array(StreamsProperty))


class CopartitionGroup(Struct):
    """Topics that must have the same number of partitions, as indexes into the lists of the
    subtopology."""

    source_topics: list[int] = field(array(INT16))
    source_topic_regex: list[int] = field(array(INT16))
    repartition_source_topics: list[int] = field(array(INT16))


class StreamsSubtopology(Struct):
    """A part of a topology; each of its tasks reads one partition of every source."""

    subtopology_id: str = field(STRING)
    source_topics: list[str] = field(array(STRING))
    source_topic_regex: list[str] = field(array(STRING))
    state_changelog_topics: list[InternalTopicInfo] = field(array(InternalTopicInfo))
    repartition_sink_topics: list[str] = field(array(STRING))
    repartition_source_topics: list[InternalTopicInfo] = field(array(InternalTopicInfo))
    copartition_groups: list[CopartitionGroup] = field(array(CopartitionGroup))


class StreamsTaskIds(Struct):
    """Tasks of one subtopology."""

    subtopology_id: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class TaskOffset(Struct):
    """The sum of a task's offsets in its changelogs."""

    subtopology_id: str = field(STRING)
    partition: int = field(INT32)
    offset: int = field(INT64)


class UserEndpoint(Struct):
    """The address at which a client answers interactive queries."""

    host: str = field(STRING)
    port: int = field(UINT16)


class AcknowledgementBatch(Struct):
    """Acknowledgements of a range of offsets: one type for all offsets, or one type for each
    offset.

    Types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    """

    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    acknowledge_types: list[int] = field(array(INT8))


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class NodeEndpoint(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


class ShareStateBatch(Struct):
    """The state of consecutive records; `last_offset` is included."""

    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class SharePartitionError(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class ShareTopicErrors(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[SharePartitionError] = field(array(SharePartitionError))


class ReadPartition(Struct):
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


class ReadTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadPartition] = field(array(ReadPartition))


class QuotaEntityPart(Struct):
    """A part of a quota's entity: a user, a client id or an address. A null name means the default
    entity."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")


class TokenPrincipal(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
