"""The table of APIs: key, name, messages and versions, in key order.

Which versions a broker offers is here and nowhere else. What a row's request means is in
`schemas/<api>.py`, what a broker does with it in `odradek_broker/handlers/<api>.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from odradek_protocol.message import Message, Versions
from odradek_protocol.schemas.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from odradek_protocol.schemas.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from odradek_protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_protocol.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek_protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from odradek_protocol.schemas.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_protocol.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek_protocol.schemas.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek_protocol.schemas.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from odradek_protocol.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek_protocol.schemas.describe_history import (
    DescribeHistoryRequest,
    DescribeHistoryResponse,
)
from odradek_protocol.schemas.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek_protocol.schemas.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from odradek_protocol.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek_protocol.schemas.end_txn import EndTxnRequest, EndTxnResponse
from odradek_protocol.schemas.fetch import FetchRequest, FetchResponse
from odradek_protocol.schemas.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek_protocol.schemas.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_protocol.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek_protocol.schemas.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek_protocol.schemas.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataResponse
from odradek_protocol.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_protocol.schemas.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek_protocol.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek_protocol.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from odradek_protocol.schemas.produce import ProduceRequest, ProduceResponse
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from odradek_protocol.schemas.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class ApiKey(IntEnum):
    """Request types, by the number on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_HISTORY = 10_000


#: Ours, not Kafka's, in numbers that Kafka is far from. They are advertised like all others: clients
#: pass over keys that they do not know (docs/compatibility.md).
PRIVATE_KEYS = frozenset({ApiKey.DESCRIBE_HISTORY})


@dataclass(frozen=True)
class Api:
    """One row: the messages of a key, and the versions served and advertised.

    `advertised` differs from `versions` for Produce only: librdkafka takes a minimum above 0 for a
    broker without compression (KAFKA-18659), so 0 is advertised and 0-2 close the connection.
    """

    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    versions: Versions
    advertised: Versions

    def request_header_version(self, version: int) -> int:
        return 2 if version in self.request.flexible else 1

    def response_header_version(self, version: int) -> int:
        """0 for every ApiVersions answer: its reader does not know the broker yet."""
        if self.key is ApiKey.API_VERSIONS:
            return 0
        return 1 if version in self.request.flexible else 0


def _row(
    key: ApiKey,
    request: type[Message],
    response: type[Message],
    *,
    advertised: str = "",
) -> Api:
    shown = Versions.parse(advertised) if advertised else request.versions
    return Api(
        key, request.__name__.removesuffix("Request"), request, response, request.versions, shown
    )


APIS: dict[ApiKey, Api] = {
    api.key: api
    for api in (
        _row(ApiKey.PRODUCE, ProduceRequest, ProduceResponse, advertised="0-13"),
        _row(ApiKey.FETCH, FetchRequest, FetchResponse),
        _row(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse),
        _row(ApiKey.METADATA, MetadataRequest, MetadataResponse),
        _row(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse),
        _row(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse),
        _row(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse),
        _row(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse),
        _row(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse),
        _row(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse),
        _row(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse),
        _row(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse),
        _row(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse),
        _row(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse),
        _row(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse),
        _row(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse),
        _row(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse),
        _row(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse),
        _row(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            OffsetForLeaderEpochRequest,
            OffsetForLeaderEpochResponse,
        ),
        _row(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
        _row(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
        _row(ApiKey.END_TXN, EndTxnRequest, EndTxnResponse),
        _row(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest, WriteTxnMarkersResponse),
        _row(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
        _row(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse),
        _row(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse),
        _row(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse),
        _row(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse),
        _row(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse),
        _row(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            IncrementalAlterConfigsRequest,
            IncrementalAlterConfigsResponse,
        ),
        _row(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse),
        _row(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse),
        _row(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse),
        _row(
            ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse
        ),
        _row(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse),
        _row(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest,
            ConsumerGroupHeartbeatResponse,
        ),
        _row(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ConsumerGroupDescribeRequest,
            ConsumerGroupDescribeResponse,
        ),
        _row(ApiKey.DESCRIBE_HISTORY, DescribeHistoryRequest, DescribeHistoryResponse),
    )
}

#: The row of a request class.
API_OF_REQUEST: dict[type[Message], Api] = {api.request: api for api in APIS.values()}
