"""Names that are given twice in one request."""

from __future__ import annotations

from typing import Any

from tests.oracle.script import (
    Ask,
    Batch,
    coordinator,
    fetch_body,
    produced,
    producer,
    scenarios_of,
    topic,
)


def _list(name: str, *timestamps: int, partition: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": [
            {"partition_index": partition, "timestamp": timestamp} for timestamp in timestamps
        ],
    }


def _ends(name: str, partition: int = 0) -> Ask:
    return Ask("ListOffsets", {"replica_id": -1, "topics": [_list(name, -1, partition=partition)]})


def _produced(name: str, *values: str) -> dict[str, Any]:
    return {
        "name": name,
        "partition_data": [{"index": 0, "records": Batch([value])} for value in values],
    }


def _trimmed(name: str, *offsets: int) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": [{"partition_index": 0, "offset": offset} for offset in offsets],
    }


def _fetched(*offsets: int) -> dict[str, Any]:
    return {
        "topic": "@t",
        "topic_id": "$t",
        "partitions": [
            {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
            for offset in offsets
        ],
    }


def _sent(topics: Any) -> Ask:
    return Ask("Produce", {"acks": -1, "timeout_ms": 10_000, "topic_data": topics})


def _marker(*topics: Any) -> dict[str, Any]:
    return {
        "producer_id": 77,
        "producer_epoch": 0,
        "transaction_result": True,
        "coordinator_epoch": 0,
        "topics": topics,
    }


def _nowhere(*partitions: int) -> dict[str, Any]:
    return {"name": "@unknown", "partition_indexes": partitions}


def _transaction(*topics: Any) -> dict[str, Any]:
    return {
        "transactional_id": "@id",
        "producer_id": "$pid",
        "producer_epoch": "$pid_epoch",
        "verify_only": False,
        "topics": topics,
    }


def _config(resource_type: int, name: str, *keys: str) -> dict[str, Any]:
    return {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}


def _committed(name: str, *offsets: int) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": [
            {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
            for offset in offsets
        ],
    }


SCENARIOS = scenarios_of(
    {
        ("repeated-list-offsets", "ListOffsets"): [
            *topic(partitions=2),
            *topic("@u"),
            produced(Batch(["a", "b"])),
            Ask("ListOffsets", {"replica_id": -1, "topics": [_list("@t", -1, -2)]}),
            Ask("ListOffsets", {"replica_id": -1, "topics": [_list("@t", -1), _list("@t", -1)]}),
            Ask(
                "ListOffsets",
                {
                    "replica_id": -1,
                    "topics": [
                        _list("@t", -1),
                        _list("@u", -2),
                        _list("@unknown", -2),
                        _list("@t", -1, partition=1),
                        _list("@u", -2),
                    ],
                },
            ),
            Ask("ListOffsets", {"replica_id": -1, "topics": [_list("@unknown", -1, -1)]}),
        ],
        ("repeated-produce", "Produce", "9"): [
            *topic(),
            *topic("@u"),
            _sent([_produced("@t", "first", "second")]),
            _sent([_produced("@t", "third"), _produced("@u", "x"), _produced("@t", "fourth")]),
            _sent([_produced("@unknown", "a", "b")]),
            Ask("Fetch", fetch_body(), version=12),
            Ask("Fetch", fetch_body("@u"), version=12),
        ],
        ("repeated-delete-records", "DeleteRecords"): [
            *topic(),
            produced(Batch(["a", "b", "c"])),
            Ask("DeleteRecords", {"timeout_ms": 10_000, "topics": [_trimmed("@t", 2, 1)]}),
            Ask(
                "DeleteRecords",
                {"timeout_ms": 10_000, "topics": [_trimmed("@t", 3), _trimmed("@t", 2)]},
            ),
            Ask(
                "DeleteRecords",
                {"timeout_ms": 10_000, "topics": [_trimmed("@unknown", 1, 1)]},
            ),
        ],
        ("repeated-fetch", "Fetch"): [
            *topic(),
            produced(Batch(["a"])),
            produced(Batch(["b"])),
            Ask("Fetch", {**fetch_body(), "topics": [_fetched(0, 1)]}),
            Ask("Fetch", {**fetch_body(), "topics": [_fetched(1), _fetched(0)]}),
        ],
        ("repeated-markers", "WriteTxnMarkers", "1"): [
            Ask(
                "WriteTxnMarkers",
                {"markers": [_marker(_nowhere(0, 0), _nowhere(0, 1))]},
            ),
            Ask(
                "WriteTxnMarkers",
                {"markers": [_marker(_nowhere(0)), _marker(_nowhere(0))]},
            ),
        ],
        ("repeated-add-partitions", "AddPartitionsToTxn", "4"): [
            *topic(),
            *producer(),
            Ask(
                "AddPartitionsToTxn",
                {
                    "transactions": [
                        _transaction(
                            {"name": "@t", "partitions": [0, 0]}, {"name": "@t", "partitions": [0]}
                        )
                    ]
                },
            ),
        ],
        ("repeated-names", "Metadata", "12"): [
            *topic(),
            coordinator("@g"),
            coordinator("@h"),
            *producer(),
            Ask("Metadata", {"topics": [{"name": "@t"}, {"name": "@t"}]}),
            Ask("Metadata", {"topics": [{"topic_id": "$t", "name": None}, {"name": "@t"}]}),
            Ask("DescribeGroups", {"groups": ["@g", "@g"]}),
            Ask("ConsumerGroupDescribe", {"group_ids": ["@g", "@g"]}),
            Ask(
                "DescribeTransactions",
                {"transactional_ids": ["@id", "@id"]},
            ),
            Ask(
                "DescribeConfigs",
                {
                    "resources": [
                        _config(2, "@t", "cleanup.policy"),
                        _config(2, "@t", "cleanup.policy"),
                    ]
                },
                ignore=["results.*.error_message"],
            ),
            Ask("DescribeProducers", {"topics": [{"name": "@t", "partition_indexes": [0, 0]}]}),
            Ask(
                "OffsetFetch",
                {
                    "groups": [
                        {"group_id": "@g", "topics": [{"name": "@t", "partition_indexes": [0, 0]}]},
                        {"group_id": "@g", "topics": None},
                    ]
                },
                version=9,
            ),
            Ask(
                "FindCoordinator",
                {"key_type": 0, "coordinator_keys": ["@g", "@g"]},
                version=4,
                ignore=["coordinators.*.error_message"],
            ),
            Ask("OffsetCommit", {"group_id": "@g", "topics": [_committed("@t", 1, 2)]}, version=8),
            Ask(
                "OffsetCommit",
                {"group_id": "@g", "topics": [_committed("@t", 2), _committed("@t", 1)]},
                version=8,
            ),
            Ask(
                "OffsetForLeaderEpoch",
                {
                    "replica_id": -1,
                    "topics": [
                        {
                            "topic": "@t",
                            "partitions": [
                                {"partition": 0, "leader_epoch": 0},
                                {"partition": 0, "leader_epoch": 1},
                            ],
                        }
                    ],
                },
            ),
            Ask("OffsetCommit", {"group_id": "@h", "topics": [_committed("@t", 1)]}, version=8),
            Ask(
                "OffsetDelete",
                {
                    "group_id": "@h",
                    "topics": [
                        {
                            "name": "@t",
                            "partitions": [{"partition_index": 0}, {"partition_index": 0}],
                        }
                    ],
                },
            ),
            Ask("DeleteGroups", {"groups_names": ["@g", "@g"]}),
        ],
        ("repeated-topics", "DeleteTopics", "6"): [
            *topic(),
            *topic("@u"),
            Ask(
                "CreateTopics",
                {
                    "timeout_ms": 10_000,
                    "topics": [
                        {"name": "@n", "num_partitions": 1, "replication_factor": 1},
                        {"name": "@n", "num_partitions": 1, "replication_factor": 1},
                    ],
                },
            ),
            Ask(
                "IncrementalAlterConfigs",
                {
                    "resources": [
                        {
                            "resource_type": 2,
                            "resource_name": "@t",
                            "configs": [{"name": "retention.ms", "value": "1"}],
                        }
                    ]
                    * 2
                },
            ),
            Ask(
                "CreatePartitions",
                {
                    "timeout_ms": 10_000,
                    "topics": [
                        {"name": "@t", "count": 2, "assignments": None},
                        {"name": "@t", "count": 3, "assignments": None},
                    ],
                },
            ),
            Ask(
                "DeleteTopics",
                {"timeout_ms": 10_000, "topics": [{"name": "@t"}, {"name": "@t"}]},
            ),
            Ask(
                "DeleteTopics",
                {"timeout_ms": 10_000, "topics": [{"topic_id": "$t"}, {"topic_id": "$t"}]},
            ),
            Ask(
                "DeleteTopics",
                {"timeout_ms": 10_000, "topics": [{"name": "@t"}, {"topic_id": "$t"}]},
            ),
            Ask(
                "DeleteTopics",
                {"timeout_ms": 10_000, "topics": [{"topic_id": "$t"}, {"name": "@t"}]},
            ),
            Ask(
                "DeleteTopics",
                {
                    "timeout_ms": 10_000,
                    "topics": [{"name": "@no"}, {"name": "@no"}, {"name": "@u"}],
                },
            ),
        ],
    }
)
