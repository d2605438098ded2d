"""Metadata (key 3): brokers, topics, partitions and their leaders.

Versions: since 1 a null list means all topics (in 0, an empty list); 4 can forbid auto creation; 7
has leader epochs; 8 has authorized operations; 10 has topic ids; 11 no longer has the cluster's
authorized operations; 12 allows an id with a null name; 13 has a top-level error.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, STRING, UUID

#: From this version on a null list asks for all topics; before it, an empty list asks for all.
NULL_MEANS_ALL_SINCE = 1
#: Before this version, a request for a topic always creates the topic if the broker allows auto
#: creation.
AUTO_CREATION_SWITCH_SINCE = 4
#: From this version on topics may be requested by id. Versions 10 and 11 have the field, but refuse
#: requests that use it.
TOPIC_IDS_SINCE = 12


class MetadataRequestTopic(Struct):
    topic_id: bytes = field(UUID, "10+", ignorable=True)
    name: str | None = field(STRING, nullable="10+")


@api_message(ApiKey.METADATA)
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, "8-10")
    include_topic_authorized_operations: bool = field(BOOL, "8+")


class MetadataResponseBroker(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, "1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable="12+")
    topic_id: bytes = field(UUID, "10+", ignorable=True)
    is_internal: bool = field(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, "8+", default=-2147483648)


@api_message(ApiKey.METADATA)
class MetadataResponse(Message):
    throttle_time_ms: int = field(INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, "8-10", default=-2147483648)
    error_code: int = field(INT16, "13+", ignorable=True)
