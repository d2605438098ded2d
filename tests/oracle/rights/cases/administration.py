"""Topics, settings, quotas, credentials and the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.rights.cases.words import (
    BROKER,
    CLUSTER,
    GROUP,
    METRICS,
    READY,
    TOPIC,
    exist,
    new,
)
from tests.oracle.rights.cells import (
    Case,
    Right,
    cluster_right,
    group_right,
    topic_right,
)
from tests.oracle.script import (
    NO_SUCH_ID,
    topic,
)

from odradek_protocol.acls import AclOperation, AclResourceType

_TOPICS = [
    Case(
        "create-topics",
        "CreateTopics",
        new("@new", "@t"),
        [topic_right("CREATE", "@new")],
        before=topic(),
        after=[exist("@new")],
        ignore=("topics.*.configs",),
        extra={
            "creates-any": [cluster_right("CREATE")],
            "sees-configs": [cluster_right("CREATE"), topic_right("DESCRIBE_CONFIGS", "@new")],
        },
    ),
    Case(
        "delete-topics",
        "DeleteTopics",
        {
            "timeout_ms": 10_000,
            "topic_names": ["@t", "@hidden", "@absent"],
            "topics": [{"name": name} for name in ("@t", "@hidden", "@absent")],
        },
        [topic_right("DELETE")],
        before=[*topic(), *topic("@hidden")],
        after=[exist("@t", "@hidden")],
        extra={
            "describes": [topic_right("DESCRIBE"), topic_right("DESCRIBE", "@absent")],
            "all-of-the-cluster": [cluster_right("ALL")],
        },
    ),
    Case(
        "delete-topics-by-id",
        "DeleteTopics",
        {
            "timeout_ms": 10_000,
            "topics": [{"topic_id": each} for each in ("$t", "$hidden", NO_SUCH_ID)],
        },
        [topic_right("DELETE")],
        before=[*topic(), *topic("@hidden")],
        extra={
            "describes": [topic_right("DESCRIBE")],
            "all-of-the-cluster": [cluster_right("ALL")],
        },
        versions="6-6",
    ),
    Case(
        "delete-records",
        "DeleteRecords",
        {
            "timeout_ms": 10_000,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "offset": 1}]}
                for name in ("@t", "@hidden", "@absent")
            ],
        },
        [topic_right("DELETE")],
        before=[*READY, *topic("@hidden")],
    ),
    Case(
        "create-partitions",
        "CreatePartitions",
        {
            "timeout_ms": 10_000,
            "topics": [
                {"name": name, "count": 2, "assignments": None}
                for name in ("@t", "@hidden", "@absent")
            ],
        },
        [topic_right("ALTER")],
        before=[*topic(), *topic("@hidden")],
    ),
]


def _asked(kind: int, name: str, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    }


def _set_to(kind: int, name: str, key: str, value: str, **more: Any) -> dict[str, Any]:
    return {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": key, "value": value, **more}],
            }
        ],
        "validate_only": True,
    }


_DOCUMENTATION = ("results.*.configs.*.documentation",)
#: (name, type and name of a resource, one of its settings, a value, the function that makes its
#: rights).
_CONFIGURED: list[tuple[str, int, str, str, str, Any]] = [
    ("topic", TOPIC, "@t", "retention.ms", "5", topic_right),
    ("group", GROUP, "@g", "consumer.session.timeout.ms", "46000", group_right),
    ("broker", BROKER, "1", "log.cleaner.threads", "1", cluster_right),
    ("client-metrics", METRICS, "@m", "interval.ms", "1000", cluster_right),
]
_CONFIGS = [
    case
    for what, kind, name, key, value, right in _CONFIGURED
    for case in (
        Case(
            f"describe-configs-of-a-{what}",
            "DescribeConfigs",
            _asked(kind, name, [key]),
            [right("DESCRIBE_CONFIGS")],
            before=topic(),
            ignore=_DOCUMENTATION,
            extra={"describes": [right("DESCRIBE")]},
        ),
        Case(
            f"alter-configs-of-a-{what}",
            "IncrementalAlterConfigs",
            _set_to(kind, name, key, value, config_operation=0),
            [right("ALTER_CONFIGS")],
            before=topic(),
            extra={"alters": [right("ALTER")]} if what == "topic" else {},
        ),
        Case(
            f"replace-configs-of-a-{what}",
            "AlterConfigs",
            _set_to(kind, name, key, value),
            [right("ALTER_CONFIGS")],
            before=topic(),
        ),
    )
] + [
    Case(
        "describe-configs-of-no-topic",
        "DescribeConfigs",
        _asked(TOPIC, "@absent", ["retention.ms"]),
        [topic_right("DESCRIBE_CONFIGS", "@absent")],
    ),
    Case(
        "alter-configs-of-no-topic",
        "IncrementalAlterConfigs",
        _set_to(TOPIC, "@absent", "retention.ms", "5", config_operation=0),
        [topic_right("ALTER_CONFIGS", "@absent")],
    ),
]


def _quota(value: float) -> dict[str, Any]:
    return {
        "entries": [
            {
                "entity": [{"entity_type": "client-id", "entity_name": "@c"}],
                "ops": [{"key": "producer_byte_rate", "value": value, "remove": False}],
            }
        ],
        "validate_only": True,
    }


_CLUSTER_CASES = [
    Case(
        "list-config-resources",
        "ListConfigResources",
        {"resource_types": [METRICS]},
        [cluster_right("DESCRIBE_CONFIGS")],
        ignore=("config_resources",),
        extra={
            "describes": [cluster_right("DESCRIBE")],
            "alters": [cluster_right("ALTER_CONFIGS")],
        },
    ),
    Case(
        "describe-quorum",
        "DescribeQuorum",
        {"topics": [{"topic_name": "@t", "partitions": [{"partition_index": 0}]}]},
        [cluster_right("DESCRIBE")],
        extra={"describes-configs": [cluster_right("DESCRIBE_CONFIGS")]},
    ),
    Case(
        "update-features",
        "UpdateFeatures",
        {
            "feature_updates": [
                {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}
            ]
        },
        [cluster_right("ALTER")],
        extra={
            "describes": [cluster_right("DESCRIBE")],
            "alters-configs": [cluster_right("ALTER_CONFIGS")],
        },
    ),
    Case(
        "describe-loggers",
        "DescribeConfigs",
        {"resources": [{"resource_type": 8, "resource_name": "1", "configuration_keys": ["root"]}]},
        [cluster_right("DESCRIBE_CONFIGS")],
        extra={
            "alters": [cluster_right("ALTER_CONFIGS")],
            "describes": [cluster_right("DESCRIBE")],
        },
    ),
    Case(
        "alter-loggers",
        "IncrementalAlterConfigs",
        {
            "resources": [
                {
                    "resource_type": 8,
                    "resource_name": "1",
                    "configs": [{"name": "root", "config_operation": 0, "value": "INFO"}],
                }
            ]
        },
        [cluster_right("ALTER_CONFIGS")],
        extra={
            "describes": [cluster_right("DESCRIBE_CONFIGS")],
            "alters": [cluster_right("ALTER")],
        },
    ),
    Case(
        "unregister-broker",
        "UnregisterBroker",
        {"broker_id": 99},
        [cluster_right("ALTER")],
        extra={"describes": [cluster_right("DESCRIBE")]},
    ),
    Case(
        "add-voter",
        "AddRaftVoter",
        {
            "cluster_id": "no such cluster",
            "voter_id": 2,
            "voter_directory_id": NO_SUCH_ID,
            "listeners": [{"name": "CONTROLLER", "host": "a", "port": 1}],
        },
        [cluster_right("ALTER")],
        extra={"describes": [cluster_right("DESCRIBE")]},
    ),
    Case(
        "remove-voter",
        "RemoveRaftVoter",
        {"cluster_id": "no such cluster", "voter_id": 2, "voter_directory_id": NO_SUCH_ID},
        [cluster_right("ALTER")],
        extra={"describes": [cluster_right("DESCRIBE")]},
    ),
    Case(
        "describe-cluster",
        "DescribeCluster",
        {"include_cluster_authorized_operations": True},
        [cluster_right("DESCRIBE")],
        ignore=CLUSTER,
        extra={
            "alters": [cluster_right("ALTER"), cluster_right("ALTER_CONFIGS")],
            "acts": [cluster_right("CLUSTER_ACTION")],
            "may-all": [cluster_right("ALL")],
        },
    ),
    Case(
        "describe-log-dirs",
        "DescribeLogDirs",
        {"topics": [{"topic": "@t", "partitions": [0]}]},
        [cluster_right("DESCRIBE")],
        before=topic(),
        ignore=(
            "results.*.log_dir",
            "results.*.total_bytes",
            "results.*.usable_bytes",
            "results.*.topics.*.partitions.*.partition_size",
        ),
    ),
    Case(
        "alter-log-dirs",
        "AlterReplicaLogDirs",
        {"dirs": [{"path": "/nowhere", "topics": [{"name": "@t", "partitions": [0]}]}]},
        [cluster_right("ALTER")],
        before=topic(),
    ),
    Case(
        "describe-quotas",
        "DescribeClientQuotas",
        {
            "components": [{"entity_type": "client-id", "match_type": 0, "match": "@c"}],
            "strict": True,
        },
        [cluster_right("DESCRIBE_CONFIGS")],
    ),
    Case(
        "describe-credentials",
        "DescribeUserScramCredentials",
        {"users": [{"name": "@u"}]},
        [cluster_right("DESCRIBE")],
    ),
    Case(
        "alter-credentials",
        "AlterUserScramCredentials",
        {
            "deletions": [],
            "upsertions": [{"name": "@v", "mechanism": 1, "iterations": 1, "salt": b"salt"}],
        },
        [cluster_right("ALTER")],
        extra={"describes": [cluster_right("DESCRIBE")]},
    ),
    Case(
        "alter-quotas",
        "AlterClientQuotas",
        _quota(1000.0),
        [cluster_right("ALTER_CONFIGS")],
    ),
]


def _leaders_of(*names: str) -> dict[str, Any]:
    return {
        "timeout_ms": 10_000,
        "topic_partitions": [{"topic": name, "partitions": [0]} for name in names],
    }


_REASSIGNED = [
    Case(
        "elect-leaders",
        "ElectLeaders",
        _leaders_of("@t", "@absent"),
        [cluster_right("ALTER")],
        before=topic(),
        extra={"alters-topics": [topic_right("ALTER"), topic_right("ALTER", "@absent")]},
    ),
    Case(
        "elect-leaders-of-all",
        "ElectLeaders",
        {"timeout_ms": 10_000, "topic_partitions": None},
        [cluster_right("ALTER")],
        before=topic(),
        only=["nobody", "granted"],
        mine=True,
    ),
    Case(
        "list-reassignments",
        "ListPartitionReassignments",
        {
            "timeout_ms": 10_000,
            "topics": [{"name": name, "partition_indexes": [0]} for name in ("@t", "@absent")],
        },
        [cluster_right("DESCRIBE")],
        before=topic(),
        extra={"describes-topics": [topic_right("DESCRIBE")], "alters": [cluster_right("ALTER")]},
    ),
    Case(
        "alter-reassignments",
        "AlterPartitionReassignments",
        {
            "timeout_ms": 10_000,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "replicas": [1]}]}
                for name in ("@t", "@absent")
            ],
        },
        [cluster_right("ALTER")],
        before=topic(),
        extra={"alters-topics": [topic_right("ALTER"), topic_right("ALTER", "@absent")]},
    ),
]


_TOKEN = {"hmac": b"no such token"}
#: The fields with the token's owner and requester.
_OWNERS = ("principal_name", "token_requester_principal_name")
#: The requests name a token that does not exist: brokers check the rights before they look it up.
_TOKENS = [
    Case(
        "create-token",
        "CreateDelegationToken",
        {"renewers": [], "max_lifetime_ms": 60_000},
        ignore=_OWNERS,
        only=["nobody", "super", "anonymous"],
    ),
    Case(
        "create-token-of-another",
        "CreateDelegationToken",
        {
            "owner_principal_type": "User",
            "owner_principal_name": "someone",
            "renewers": [],
            "max_lifetime_ms": 60_000,
        },
        [Right(AclResourceType.USER, AclOperation.CREATE_TOKENS, "User:someone")],
        ignore=_OWNERS,
        versions="3-3",
        only=["nobody", "super", "anonymous", "granted", "other-user"],
        extra={"other-user": [Right(AclResourceType.USER, AclOperation.CREATE_TOKENS, "User:x")]},
    ),
    Case(
        "renew-token",
        "RenewDelegationToken",
        {**_TOKEN, "renew_period_ms": 1_000},
        only=["nobody", "super", "anonymous"],
    ),
    Case(
        "expire-token",
        "ExpireDelegationToken",
        {**_TOKEN, "expiry_time_period_ms": 1_000},
        only=["nobody", "super", "anonymous"],
    ),
    Case(
        "describe-tokens",
        "DescribeDelegationToken",
        {"owners": None},
        only=["nobody", "super", "anonymous"],
    ),
    Case(
        "describe-tokens-of-another",
        "DescribeDelegationToken",
        {"owners": [{"principal_type": "User", "principal_name": "@u"}]},
        only=["nobody", "super", "anonymous"],
    ),
]
CASES: list[Case] = [*_TOPICS, *_CONFIGS, *_CLUSTER_CASES, *_REASSIGNED, *_TOKENS]
