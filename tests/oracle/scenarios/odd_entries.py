"""Entries of requests that are repeated, empty, or far from those that exist: random requests have
shown how they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.oracle.group_steps import group
from tests.oracle.random_scenarios.borders import REQUESTS
from tests.oracle.scenarios.fetch import list_offset
from tests.oracle.scenarios.groups_share import alter_share_offsets
from tests.oracle.scenarios.groups_streams import STREAMS_START, streams_heartbeat
from tests.oracle.scenarios.offsets import commit_offsets, delete_offsets
from tests.oracle.scenarios.share_fetch import FILLED, share_fetch
from tests.oracle.scenarios.transactions import commit_in_transaction
from tests.oracle.script import (
    NO_SUCH_ID,
    Ask,
    Batch,
    Scenario,
    Step,
    Wait,
    fetch_body,
    produce_body,
    produced,
    producer,
    scenarios_of,
    topic,
)

_MOST = (1 << 31) - 1
_TWO: list[Step] = [*topic(partitions=2), *topic("@u"), produced(Batch(["a"]))]


def _configs(*types: int) -> Ask:
    resources = [
        {"resource_type": 2, "resource_name": "@t", "configuration_keys": ["retention.ms"]}
    ]
    resources += [{"resource_type": each, "resource_name": "@x"} for each in types]
    return Ask(
        "DescribeConfigs",
        {"resources": resources},
        ignore=("results.*.configs.*.documentation",),
    )


def _verify(*topics: tuple[str, Sequence[int]], name: str = "@id") -> Ask:
    named = [{"name": topic_name, "partitions": list(parts)} for topic_name, parts in topics]
    who = {"producer_id": "$pid", "producer_epoch": "$pid_epoch"}
    transaction = {"transactional_id": name, **who, "verify_only": True, "topics": named}
    return Ask("AddPartitionsToTxn", {"transactions": [transaction]})


def _add(*topics: tuple[str, Sequence[int]]) -> Ask:
    named = [{"name": topic_name, "partitions": list(parts)} for topic_name, parts in topics]
    who = {"transactional_id": "@id", "producer_id": "$pid", "producer_epoch": "$pid_epoch"}
    body = {f"v3_and_below_{key}": value for key, value in {**who, "topics": named}.items()}
    transaction = {**who, "verify_only": False, "topics": named}
    return Ask("AddPartitionsToTxn", {**body, "transactions": [transaction]})


def _markers(**more: Any) -> Ask:
    marker = {**REQUESTS["WriteTxnMarkers"]["markers"][0], **more}
    return Ask("WriteTxnMarkers", {"markers": [marker]})


def _described(*topics: tuple[str, Sequence[int]], group_id: str = "@g") -> Ask:
    named = [{"topic_name": name, "partitions": list(parts)} for name, parts in topics]
    return Ask("DescribeShareGroupOffsets", {"groups": [{"group_id": group_id, "topics": named}]})


def _deleted(*topics: tuple[str | None, Any]) -> Ask:
    named = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    return Ask("DeleteTopics", {"timeout_ms": 10_000, "topics": named})


def _reassigned(*topics: str, may_change: bool) -> Ask:
    partitions = [{"partition_index": 0, "replicas": [1]}]
    named = [{"name": name, "partitions": partitions} for name in topics]
    body = {"timeout_ms": 10_000, "allow_replication_factor_change": may_change, "topics": named}
    return Ask("AlterPartitionReassignments", body)


_REPEATED = scenarios_of(
    {
        ("verified-partitions-named-twice", "AddPartitionsToTxn", "4-5"): [
            *_TWO,
            *producer(),
            _verify(("@t", [0, 0])),
            _verify(("@t", [0]), ("@u", [0]), ("@t", [0, 1])),
            _verify(("@t", [])),
            _verify(("@t", []), ("@u", [0])),
            _verify(("@t", [0, 7, 0])),
            _verify(("@t", [0]), name=""),
            _verify(("@t", [0, 7]), name=""),
        ],
        ("added-partitions-named-twice", "AddPartitionsToTxn"): [
            *_TWO,
            *producer(),
            *(
                _add(*topics)
                for topics in (
                    [("@t", [0, 0, 7])],
                    [("@t", [0]), ("@none", [0]), ("@t", [1, 0])],
                    [("@none", [0]), ("@none", [0])],
                    [("@t", []), ("@t", [7])],
                    [("@t", []), ("@u", [0]), ("@u", [0])],
                )
            ),
        ],
        ("share-offsets-altered-twice", "AlterShareGroupOffsets"): [
            *_TWO,
            *group(),
            Wait(300),
            alter_share_offsets(("@t", {0: 0}), ("@u", {0: 0}), ("@t", {0: 1})),
            alter_share_offsets(("@t", {0: 0}), ("@t", {1: 0})),
            alter_share_offsets(("@none", {0: 0}), ("@t", {0: 0}), ("@none", {1: 0})),
        ],
        ("share-offsets-described-twice", "DescribeShareGroupOffsets"): [
            *_TWO,
            *group(),
            Wait(300),
            _described(("@t", [0]), ("@u", [0]), ("@t", [0])),
            _described(("@t", [0]), ("@t", [1])),
            _described(("@none", [0]), ("@t", [0]), ("@none", [1])),
        ],
        ("delete-topics-named-by-both-twice", "DeleteTopics", "6"): [
            *_TWO,
            _deleted(("@t", "$t"), ("@t", "$t")),
            _deleted((None, bytes(16)), (None, bytes(16))),
            _deleted(("@t", "$t"), ("@t", "$t"), (None, NO_SUCH_ID), (None, NO_SUCH_ID)),
        ],
        ("offsets-of-repeated-topics-with-an-unknown-isolation-level", "ListOffsets", "2-11"): [
            *_TWO,
            *(
                replace(ask, body={**ask.body, "topics": [*ask.body["topics"], *more]})
                for ask in [list_offset(-1, isolation=127)]
                for more in ([], ask.body["topics"], [{"name": "@u"}])
            ),
        ],
    }
)

_DELETIONS: Sequence[Sequence[tuple[str, Sequence[int]]]] = (
    [("@t", [])],
    [("@t", []), ("@u", [0])],
    [("@none", [])],
    [("@t", [1]), ("@t", [1])],
    [("@t", [1]), ("@u", [0]), ("@t", [1, 9])],
)
_REPEATED += [
    Scenario(
        "list-transactions-of-repeated-states",
        "ListTransactions",
        [
            Ask(
                "ListTransactions",
                {"state_filters": ["", "x", ""], "producer_id_filters": [1 << 40]},
            ),
            Ask(
                "ListTransactions",
                {"state_filters": ["Empty"] * 2, "producer_id_filters": [1 << 40]},
            ),
        ],
    ),
]
_EMPTY = scenarios_of(
    {
        ("offset-delete-without-partitions", "OffsetDelete"): [
            *_TWO,
            *group(),
            Ask("OffsetCommit", commit_offsets(("@t", [(0, 5)])).body, version=8, quiet=True),
            *(delete_offsets(*given) for given in _DELETIONS),
        ],
        ("markers-without-partitions", "WriteTxnMarkers"): [
            *_TWO,
            *producer(),
            _markers(topics=[]),
            _markers(topics=[{"name": "@t"}]),
            _markers(topics=[{"name": "@t"}, {"name": "@u", "partition_indexes": [0]}]),
        ],
        ("markers-of-negative-coordinator-epochs", "WriteTxnMarkers"): [
            *_TWO,
            *producer(),
            *(_markers(coordinator_epoch=epoch) for epoch in (-2, -1, 3, -1, 2, -_MOST)),
        ],
        ("reassign-nothing", "AlterPartitionReassignments", "1"): [
            *_TWO,
            *(
                _reassigned(*topics, may_change=may_change)
                for may_change in (False, True)
                for topics in ((), ("@t",), ("@none",))
            ),
        ],
        ("transactional-commit-without-an-id", "TxnOffsetCommit"): [
            *_TWO,
            *group(),
            *producer(),
            commit_in_transaction(name=""),
        ],
    }
)

_FAR = scenarios_of(
    {
        ("fetch-in-a-session-with-an-unknown-isolation-level", "Fetch", "4-18"): [
            *_TWO,
            *(
                Ask("Fetch", {**fetch_body(isolation_level=127), "session_id": session})
                for session in (0, 2, -1)
            ),
        ],
        ("commit-with-the-longest-retention", "OffsetCommit", "2-4"): [
            *_TWO,
            *group(),
            *(
                commit_offsets(("@t", [(0, 5)]), retention_time_ms=ms)
                for ms in ((1 << 63) - 1, 1 << 62, 0, -1, -2)
            ),
        ],
        ("describe-configs-of-an-unknown-type", "DescribeConfigs"): [
            *_TWO,
            *(_configs(each) for each in (0, 1, 3, -1, 127)),
            _configs(32, 1),
            _configs(32),
        ],
    }
)

#: Kafka answers these with UNKNOWN_SERVER_ERROR, or a number overflows.
_FAILING = scenarios_of(
    {
        ("fetch-session-ids-at-the-edges", "Fetch", "18"): [
            *_TWO,
            *(
                Ask("Fetch", {**fetch_body(), "session_id": session})
                for session in (-1, 1, _MOST, -_MOST - 1)
            ),
        ],
        ("share-offsets-described-at-the-edges", "DescribeShareGroupOffsets"): [
            *_TWO,
            *group(),
            Wait(300),
            _described(("@t", [])),
            _described(("@t", [-1])),
            _described(("@t", [0]), group_id=""),
        ],
        ("share-fetch-with-limits-below-zero", "ShareFetch"): [
            *FILLED,
            share_fetch(0, max_bytes=-1, wait_ms=300),
        ],
        ("share-fetch-in-batches-of-nothing", "ShareFetch"): [
            *FILLED,
            share_fetch(0, batch_size=0, wait_ms=300),
        ],
        ("share-fetch-in-an-unknown-mode", "ShareFetch", "2"): [
            *FILLED,
            share_fetch(0, share_acquire_mode=2, wait_ms=300),
        ],
        ("describe-topic-partitions-from-the-last", "DescribeTopicPartitions"): [
            *_TWO,
            Ask(
                "DescribeTopicPartitions",
                {
                    "topics": [{"name": "@t"}, {"name": "@u"}],
                    "response_partition_limit": 5,
                    "cursor": {"topic_name": "@t", "partition_index": _MOST},
                },
            ),
        ],
        ("streams-topology-of-a-negative-epoch", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(
                topology={**REQUESTS["StreamsGroupHeartbeat"]["topology"], "epoch": -1}
            ),
        ],
        ("produce-a-broken-batch-beside-another", "Produce", "13"): [
            *_TWO,
            Ask(
                "Produce",
                {
                    **produce_body(None),
                    "topic_data": [
                        produce_body(records, name)["topic_data"][0]
                        for records, name in ((bytes(61), "@t"), (Batch(["a"]), "@u"))
                    ],
                },
            ),
        ],
        ("markers-of-no-producer", "WriteTxnMarkers"): [
            *_TWO,
            *producer(),
            _markers(producer_id=-2),
            _markers(producer_id=-1),
            _markers(producer_epoch=-2),
            _markers(producer_epoch=-1),
        ],
    }
)

SCENARIOS = [*_REPEATED, *_EMPTY, *_FAR, *_FAILING]
