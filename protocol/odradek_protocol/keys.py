"""The table of APIs: key, name, messages and versions, in key order.

Each row has the served versions of an API. A module of `schemas/` declares the messages of the API.
An API is served if `odradek_broker/handlers/` has a module of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import Any

from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import M, Message, Versions


class ApiKey(IntEnum):
    """The types of requests, with their numbers in the protocol: all types of Kafka 4.3, served or
    not, and Odradek's own types."""

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
    SASL_HANDSHAKE = 17
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
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    #: Odradek's own API, with a number far from Kafka's. The API is advertised like all others,
    #: because clients ignore unknown keys (docs/compatibility.md).
    DESCRIBE_HISTORY = 10_000
    DESCRIBE_BROKER = 10_001
    DESCRIBE_CLIENT_TELEMETRY = 10_002
    APPEND_MIRROR_RECORDS = 10_003
    PROMOTE_MIRROR_TOPICS = 10_004


PRIVATE_KEYS = frozenset(key for key in ApiKey if key >= 10_000)


@dataclass(frozen=True)
class Api:
    """An API: its versions, and the messages that its schema module declares.

    `versions`: the served versions; `flexible`: the versions in the encoding of KIP-482.
    `advertised` differs from `versions` only for Produce: librdkafka takes a minimum above 0 as a
    broker without compression (KAFKA-18659), so 0 is advertised, and requests in versions 0 to 2
    close the connection.
    """

    key: ApiKey
    versions: Versions
    flexible: Versions
    advertised: Versions

    @property
    def schema(self) -> str:
        """The name of the API's module in `schemas/`, and also of the module of its handler."""
        return self.key.name.lower()

    @cached_property
    def name(self) -> str:
        """Kafka's name, such as ListOffsets."""
        return "".join(word.capitalize() for word in self.schema.split("_"))

    @cached_property
    def request(self) -> type[Message]:
        """The class of the API's requests. The first use imports the schema module, because most
        processes use only some of the APIs.
        """
        return self._declared("Request")

    @cached_property
    def response(self) -> type[Message]:
        """The class of the API's responses."""
        return self._declared("Response")

    def _declared(self, kind: str) -> type[Message]:
        module = import_module(f"odradek_protocol.schemas.{self.schema}")
        declared: type[Message] = getattr(module, self.name + kind)
        return declared

    def request_header_version(self, version: int) -> int:
        return 2 if version in self.flexible else 1

    def response_header_version(self, version: int) -> int:
        """The version of the response header; 0 for every answer to ApiVersions, because the client
        does not know the broker's versions yet."""
        if self.key is ApiKey.API_VERSIONS:
            return 0
        return 1 if version in self.flexible else 0


def _api(key: ApiKey, versions: str, flexible: str = "none", advertised: str = "") -> Api:
    served = Versions.parse(versions)
    return Api(key, served, Versions.parse(flexible), Versions.parse(advertised or versions))


_ROWS = (
    _api(ApiKey.PRODUCE, "3-13", "9+", advertised="0-13"),
    _api(ApiKey.FETCH, "4-18", "12+"),
    _api(ApiKey.LIST_OFFSETS, "1-11", "6+"),
    _api(ApiKey.METADATA, "0-13", "9+"),
    _api(ApiKey.OFFSET_COMMIT, "2-10", "8+"),
    _api(ApiKey.OFFSET_FETCH, "1-10", "6+"),
    _api(ApiKey.FIND_COORDINATOR, "0-6", "3+"),
    _api(ApiKey.JOIN_GROUP, "0-9", "6+"),
    _api(ApiKey.HEARTBEAT, "0-4", "4+"),
    _api(ApiKey.LEAVE_GROUP, "0-5", "4+"),
    _api(ApiKey.SYNC_GROUP, "0-5", "4+"),
    _api(ApiKey.DESCRIBE_GROUPS, "0-6", "5+"),
    _api(ApiKey.LIST_GROUPS, "0-5", "3+"),
    _api(ApiKey.SASL_HANDSHAKE, "0-1"),
    _api(ApiKey.API_VERSIONS, "0-4", "3+"),
    _api(ApiKey.CREATE_TOPICS, "2-7", "5+"),
    _api(ApiKey.DELETE_TOPICS, "1-6", "4+"),
    _api(ApiKey.DELETE_RECORDS, "0-2", "2+"),
    _api(ApiKey.INIT_PRODUCER_ID, "0-6", "2+"),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", "4+"),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", "3+"),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", "3+"),
    _api(ApiKey.END_TXN, "0-5", "3+"),
    _api(ApiKey.WRITE_TXN_MARKERS, "1-2", "1+"),
    _api(ApiKey.TXN_OFFSET_COMMIT, "0-5", "3+"),
    _api(ApiKey.DESCRIBE_ACLS, "1-3", "2+"),
    _api(ApiKey.CREATE_ACLS, "1-3", "2+"),
    _api(ApiKey.DELETE_ACLS, "1-3", "2+"),
    _api(ApiKey.DESCRIBE_CONFIGS, "1-4", "4+"),
    _api(ApiKey.ALTER_CONFIGS, "0-2", "2+"),
    _api(ApiKey.ALTER_REPLICA_LOG_DIRS, "1-2", "2+"),
    _api(ApiKey.DESCRIBE_LOG_DIRS, "1-5", "2+"),
    _api(ApiKey.SASL_AUTHENTICATE, "0-2", "2+"),
    _api(ApiKey.CREATE_PARTITIONS, "0-3", "2+"),
    _api(ApiKey.CREATE_DELEGATION_TOKEN, "1-3", "2+"),
    _api(ApiKey.RENEW_DELEGATION_TOKEN, "1-2", "2+"),
    _api(ApiKey.EXPIRE_DELEGATION_TOKEN, "1-2", "2+"),
    _api(ApiKey.DESCRIBE_DELEGATION_TOKEN, "1-3", "2+"),
    _api(ApiKey.DELETE_GROUPS, "0-2", "2+"),
    _api(ApiKey.ELECT_LEADERS, "0-2", "2+"),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", "1+"),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1", "0+"),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0", "0+"),
    _api(ApiKey.OFFSET_DELETE, "0"),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1", "1+"),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, "0-1", "1+"),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0", "0+"),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0", "0+"),
    _api(ApiKey.DESCRIBE_QUORUM, "0-2", "0+"),
    _api(ApiKey.UPDATE_FEATURES, "0-2", "0+"),
    _api(ApiKey.DESCRIBE_CLUSTER, "0-2", "0+"),
    _api(ApiKey.DESCRIBE_PRODUCERS, "0", "0+"),
    _api(ApiKey.UNREGISTER_BROKER, "0", "0+"),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, "0", "0+"),
    _api(ApiKey.LIST_TRANSACTIONS, "0-2", "0+"),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", "0+"),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", "0+"),
    _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "0", "0+"),
    _api(ApiKey.PUSH_TELEMETRY, "0", "0+"),
    _api(ApiKey.LIST_CONFIG_RESOURCES, "0-1", "0+"),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", "0+"),
    _api(ApiKey.SHARE_GROUP_HEARTBEAT, "1", "0+"),
    _api(ApiKey.SHARE_GROUP_DESCRIBE, "1", "0+"),
    _api(ApiKey.SHARE_FETCH, "1-2", "0+"),
    _api(ApiKey.SHARE_ACKNOWLEDGE, "1-2", "0+"),
    _api(ApiKey.ADD_RAFT_VOTER, "0-1", "0+"),
    _api(ApiKey.REMOVE_RAFT_VOTER, "0", "0+"),
    _api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "0", "0+"),
    _api(ApiKey.READ_SHARE_GROUP_STATE, "0", "0+"),
    _api(ApiKey.WRITE_SHARE_GROUP_STATE, "0-1", "0+"),
    _api(ApiKey.DELETE_SHARE_GROUP_STATE, "0", "0+"),
    _api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "0-1", "0+"),
    _api(ApiKey.STREAMS_GROUP_HEARTBEAT, "0", "0+"),
    _api(ApiKey.STREAMS_GROUP_DESCRIBE, "0", "0+"),
    _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "0-1", "0+"),
    _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "0", "0+"),
    _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "0", "0+"),
    _api(ApiKey.DESCRIBE_HISTORY, "0", "0+"),
    _api(ApiKey.DESCRIBE_BROKER, "0", "0+"),
    _api(ApiKey.DESCRIBE_CLIENT_TELEMETRY, "0", "0+"),
    _api(ApiKey.APPEND_MIRROR_RECORDS, "0", "0+"),
    _api(ApiKey.PROMOTE_MIRROR_TOPICS, "0", "0+"),
)

#: The APIs with a schema, in the order of their keys.
APIS: dict[ApiKey, Api] = {api.key: api for api in _ROWS}


def api_of(request: Message | type[Message]) -> Api:
    """The API of a request. Raises KeyError if its class is no message of an API."""
    key: Any = request.api_key
    return APIS[key]


def api_message(key: ApiKey) -> Callable[[M], M]:
    """Declare the request or the response of an API, in the versions of its row of `APIS`."""
    api = APIS[key]

    def decorate(cls: M) -> M:
        cls.api_key, cls.versions, cls.flexible = key, api.versions, api.flexible
        return cls

    return decorate
