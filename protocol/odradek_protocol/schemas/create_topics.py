"""CreateTopics (key 19): creates topics.

Versions: 4 accepts -1 for the broker's defaults; 5 is flexible, and its answer has the
configuration; the answer of 7 has the topic id.

Left out: replicas. A replication factor above 1 is refused (INVALID_REPLICATION_FACTOR); with
`replication.factor.policy=accept` it is accepted, and one copy is kept.

Of note: the answer has the settings as they are understood (`1`, `true`); Kafka repeats the texts
of the request (` 1 `, `True`).
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, STRING, UUID

#: From this version on the error of a topic may be THROTTLING_QUOTA_EXCEEDED (KIP-599).
QUOTA_ERROR_SINCE = 6


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


class CreatableTopicConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class CreatableTopic(Struct):
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


@api_message(ApiKey.CREATE_TOPICS)
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL, "1+")


class CreatableTopicConfigs(Struct):
    name: str = field(STRING, "5+")
    value: str | None = field(STRING, "5+", nullable="5+")
    read_only: bool = field(BOOL, "5+")
    config_source: int = field(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "5+")


class CreatableTopicResult(Struct):
    name: str = field(STRING)
    topic_id: bytes = field(UUID, "7+", ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = field(INT16, "5+", tag=0, tagged="5+", ignorable=True)
    num_partitions: int = field(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


@api_message(ApiKey.CREATE_TOPICS)
class CreateTopicsResponse(Message):
    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
