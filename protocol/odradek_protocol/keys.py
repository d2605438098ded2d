"""The table of APIs: key, name, messages and versions, in key order.

Its rows are the modules of `schemas/`, one for each API, with the served versions. An API is served
if `odradek_broker/handlers/` has a module of the same name.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from enum import IntEnum
from importlib import import_module

from odradek_protocol import schemas
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import Message, Versions


class ApiKey(IntEnum):
    """The types of requests by their number in the protocol: all of Kafka 4.3, served or not, and
    Odradek's own."""

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
    #: Odradek's own, with a number that is far from Kafka's. It is advertised like all others:
    #: clients ignore unknown keys (docs/compatibility.md).
    DESCRIBE_HISTORY = 10_000
    DESCRIBE_BROKER = 10_001
    DESCRIBE_CLIENT_TELEMETRY = 10_002
    APPEND_MIRROR_RECORDS = 10_003
    PROMOTE_MIRROR_TOPICS = 10_004


PRIVATE_KEYS = frozenset(key for key in ApiKey if key >= 10_000)


@dataclass(frozen=True)
class Api:
    """The messages of an API key, and the versions served and advertised.

    `advertised` differs from `versions` for Produce only: for librdkafka a minimum above 0 means a
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
        """The version of the response header; 0 for every answer to ApiVersions, whose reader does
        not know the broker yet."""
        if self.key is ApiKey.API_VERSIONS:
            return 0
        return 1 if version in self.request.flexible else 0


def _row(name: str) -> Api:
    """The API of one schema module. KeyError or AttributeError if its names do not match."""
    module = import_module(f"{schemas.__name__}.{name}")
    key = ApiKey[name.upper()]
    api_name = "".join(word.capitalize() for word in name.split("_"))
    request: type[Message] = getattr(module, f"{api_name}Request")
    response: type[Message] = getattr(module, f"{api_name}Response")
    return Api(key, api_name, request, response, request.versions, request.advertised)


def _rows() -> Iterator[Api]:
    for info in pkgutil.iter_modules(schemas.__path__):
        yield _row(info.name)


APIS: dict[ApiKey, Api] = {api.key: api for api in sorted(_rows(), key=lambda api: api.key)}

#: The API of a request class.
API_OF_REQUEST: dict[type[Message], Api] = {api.request: api for api in APIS.values()}
