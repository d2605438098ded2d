"""Frames that are cut or too long, or that have wrong lengths, or null where it is not allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracle.malformed import spoiled
from tests.oracle.script import APIS_BY_NAME, Ask, Scenario

_TOPIC = "no-such-topic"
_PARTITIONS: Mapping[str, Any] = {"partition_index": 0}
_PRODUCER: Mapping[str, Any] = {
    "transactional_id": "no-such-id",
    "producer_id": 1,
    "producer_epoch": 0,
}

#: For each API a request that changes nothing in any broker, with one element in each list.
_REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "Produce": {
        "acks": -1,
        "timeout_ms": 1_000,
        "topic_data": [{"name": _TOPIC, "partition_data": [{"index": 0, "records": b""}]}],
    },
    "Fetch": {
        "max_wait_ms": 1,
        "max_bytes": 1_000,
        "session_epoch": -1,
        "topics": [{"topic": _TOPIC, "partitions": [{"partition": 0}]}],
    },
    "ListOffsets": {
        "replica_id": -1,
        "topics": [{"name": _TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    },
    "Metadata": {"topics": [{"name": "a b"}]},
    "OffsetCommit": {
        "group_id": "no-such-group",
        "member_id": "m",
        "topics": [{"name": _TOPIC, "partitions": [{"committed_metadata": "m"}]}],
    },
    "OffsetFetch": {
        "group_id": "no-such-group",
        "topics": [{"name": _TOPIC, "partition_indexes": [0]}],
        "groups": [
            {
                "group_id": "no-such-group",
                "topics": [{"name": _TOPIC, "partition_indexes": [0]}],
            }
        ],
    },
    "FindCoordinator": {"key": "k", "key_type": 0, "coordinator_keys": ["k"]},
    "JoinGroup": {
        "group_id": "no-such-group",
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    },
    "Heartbeat": {"group_id": "no-such-group", "member_id": "m"},
    "LeaveGroup": {
        "group_id": "no-such-group",
        "member_id": "m",
        "members": [{"member_id": "m"}],
    },
    "SyncGroup": {
        "group_id": "no-such-group",
        "member_id": "m",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "m", "assignment": b"a"}],
    },
    "DescribeGroups": {"groups": ["no-such-group"]},
    "ListGroups": {"states_filter": ["Dead"], "types_filter": ["classic"]},
    "CreateTopics": {
        "timeout_ms": 1_000,
        "validate_only": True,
        "topics": [
            {
                "name": "a b",
                "assignments": [{"partition_index": 0, "broker_ids": [1]}],
                "configs": [{"name": "retention.ms", "value": "1"}],
            }
        ],
    },
    "DeleteTopics": {"topic_names": [_TOPIC], "topics": [{"name": _TOPIC}], "timeout_ms": 1_000},
    "DeleteRecords": {
        "timeout_ms": 1_000,
        "topics": [{"name": _TOPIC, "partitions": [_PARTITIONS]}],
    },
    "OffsetForLeaderEpoch": {
        "topics": [{"topic": _TOPIC, "partitions": [{"partition": 0}]}],
    },
    "InitProducerId": {"transactional_id": "", "transaction_timeout_ms": 1_000},
    "AddPartitionsToTxn": {
        **{f"v3_and_below_{k}": v for k, v in _PRODUCER.items()},
        "v3_and_below_topics": [{"name": _TOPIC, "partitions": [0]}],
        "transactions": [{**_PRODUCER, "topics": [{"name": _TOPIC, "partitions": [0]}]}],
    },
    "AddOffsetsToTxn": {**_PRODUCER, "group_id": "no-such-group"},
    "EndTxn": _PRODUCER,
    "TxnOffsetCommit": {
        **_PRODUCER,
        "group_id": "no-such-group",
        "topics": [{"name": _TOPIC, "partitions": [{"committed_metadata": "m"}]}],
    },
    "DescribeConfigs": {
        "resources": [
            {"resource_type": 2, "resource_name": _TOPIC, "configuration_keys": ["retention.ms"]}
        ]
    },
    "CreatePartitions": {
        "timeout_ms": 1_000,
        "topics": [{"name": _TOPIC, "count": 2, "assignments": [{"broker_ids": [1]}]}],
    },
    "DeleteGroups": {"groups_names": ["no-such-group"]},
    "IncrementalAlterConfigs": {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": _TOPIC,
                "configs": [{"name": "retention.ms", "value": "1"}],
            }
        ]
    },
    "OffsetDelete": {
        "group_id": "no-such-group",
        "topics": [{"name": _TOPIC, "partitions": [_PARTITIONS]}],
    },
    "DescribeCluster": {"endpoint_type": 7},
    "DescribeProducers": {"topics": [{"name": _TOPIC, "partition_indexes": [0]}]},
    "DescribeTransactions": {"transactional_ids": ["no-such-id"]},
    "ListTransactions": {"state_filters": ["Dead"], "producer_id_filters": [1]},
    "ConsumerGroupHeartbeat": {
        "group_id": "no-such-group",
        "member_id": "m",
        "member_epoch": 5,
        "subscribed_topic_names": [_TOPIC],
        "topic_partitions": [{"partitions": [0]}],
    },
    "ConsumerGroupDescribe": {"group_ids": ["no-such-group"]},
    "ElectLeaders": {
        "election_type": 0,
        "topic_partitions": [{"topic": _TOPIC, "partitions": [0]}],
        "timeout_ms": 1_000,
    },
    "AlterPartitionReassignments": {
        "timeout_ms": 1_000,
        "topics": [{"name": _TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    },
    "ListPartitionReassignments": {
        "timeout_ms": 1_000,
        "topics": [{"name": _TOPIC, "partition_indexes": [0]}],
    },
    "DescribeQuorum": {
        "topics": [{"topic_name": _TOPIC, "partitions": [_PARTITIONS]}],
    },
    "UpdateFeatures": {
        "timeout_ms": 1_000,
        "feature_updates": [
            {"feature": "no.such", "max_version_level": 1, "upgrade_type": 1},
        ],
    },
    "UnregisterBroker": {"broker_id": 7},
    "ListConfigResources": {"resource_types": [16]},
    "DescribeTopicPartitions": {
        "topics": [{"name": _TOPIC}],
        "response_partition_limit": 5,
        "cursor": {"topic_name": _TOPIC, "partition_index": 0},
    },
    "AddRaftVoter": {
        "cluster_id": "another",
        "timeout_ms": 1_000,
        "voter_id": 3,
        "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 9}],
    },
    "RemoveRaftVoter": {"cluster_id": "another", "voter_id": 3},
}


def _versions(api_name: str) -> list[int]:
    """The oldest and the newest version, the last version that is not flexible, and the first
    flexible one."""
    api = APIS_BY_NAME[api_name]
    all_versions = list(api.versions)
    if api_name == "InitProducerId":
        # Kafka serves the newest version only if unstable versions are enabled.
        all_versions.remove(6)
    flexible = [each for each in all_versions if each in api.request.flexible]
    rigid = [each for each in all_versions if each not in api.request.flexible]
    return sorted({*rigid[:1], *rigid[-1:], *flexible[:1], *flexible[-1:]})


def _frame(data: bytes) -> Ask:
    return Ask("Metadata", {"topics": []}, version=1, edit_frame=lambda _: data)


def _header(key: int, version: int, client_id: bytes = b"\x00\x01x", body: bytes = b"") -> Ask:
    content = b"".join(number.to_bytes(2, "big", signed=True) for number in (key, version))
    content += b"\0\0\0\x01" + client_id + body
    return _frame(len(content).to_bytes(4, "big") + content)


SCENARIOS = [
    *(
        Scenario(
            f"malformed-{name}-{version}",
            name,
            list(spoiled(name, version, values)),
            versions=str(version),
        )
        for name, values in _REQUESTS.items()
        for version in _versions(name)
    ),
    Scenario(
        "malformed-headers",
        "Metadata",
        [
            _header(999, 0),
            _header(-1, 0),
            _header(32_767, 0),
            _header(3, 99),
            _header(3, -1),
            _header(3, 1, client_id=b"\x00\x05x"),
            _header(3, 1, client_id=b"\xff\xfe"),
            _header(3, 1, client_id=b""),
            _header(3, 9, body=b"\x05"),
            _frame(b"\0\0\0\0"),
            _frame(b"\0\0\0\x01\0"),
            _frame(b"\0\0\0\x07\0\x03\0\x01\0\0\0"),
            _frame(b"\xff\xff\xff\xff"),
            _frame(b"\x80\0\0\0"),
            _frame(b"\x7f\xff\xff\xff"),
            _frame((100 * 1024 * 1024 + 1).to_bytes(4, "big")),
            _frame(b"GET / HTTP/1.1\r\n\r\n"),
            _frame(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        ],
        versions="1",
    ),
]
