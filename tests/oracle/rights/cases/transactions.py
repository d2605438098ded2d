"""Transactions, and their descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.oracle.group_steps import group
from tests.oracle.rights.cases.words import (
    READY,
)
from tests.oracle.rights.cells import (
    Case,
    cluster_right,
    group_right,
    id_right,
    topic_right,
)
from tests.oracle.script import (
    Ask,
    producer,
    topic,
)

_PRODUCER = {
    "transactional_id": "@id",
    "producer_id": "$pid",
    "producer_epoch": "$pid_epoch",
}
_TRANSACTION_STATE = Ask(
    "DescribeTransactions",
    {"transactional_ids": ["@id"]},
    ignore=("transaction_states.0.transaction_start_time_ms",),
    either={"transaction_states.0.transaction_state": ("PrepareAbort", "CompleteAbort")},
)


def _added(version: int | None = None, **more: Any) -> Ask:
    topics = [{"name": "@t", "partitions": [0]}]
    return Ask("AddPartitionsToTxn", _add_body(topics), version=version, **more)


def _add_body(topics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": "@id",
        "v3_and_below_producer_id": "$pid",
        "v3_and_below_producer_epoch": "$pid_epoch",
        "v3_and_below_topics": topics,
        "transactions": [{**_PRODUCER, "verify_only": False, "topics": topics}],
    }


_TWO_TOPICS = [{"name": name, "partitions": [0]} for name in ("@t", "@u")]
_TRANSACTIONS = [
    Case(
        "add-partitions",
        "AddPartitionsToTxn",
        _add_body(_TWO_TOPICS),
        [id_right("WRITE"), topic_right("WRITE"), topic_right("WRITE", "@u")],
        before=[*topic(), *topic("@u"), *producer()],
        after=[_TRANSACTION_STATE],
        versions="0-3",
    ),
    Case(
        "add-partitions-as-a-broker",
        "AddPartitionsToTxn",
        _add_body(_TWO_TOPICS),
        [cluster_right("CLUSTER_ACTION")],
        before=[*topic(), *topic("@u"), *producer()],
        after=[_TRANSACTION_STATE],
        versions="4-5",
    ),
    Case(
        "add-offsets",
        "AddOffsetsToTxn",
        {**_PRODUCER, "group_id": "@g"},
        [id_right("WRITE"), group_right("READ")],
        before=[*group(), *producer()],
        after=[_TRANSACTION_STATE],
    ),
    Case(
        "end-transaction",
        "EndTxn",
        {**_PRODUCER, "committed": False},
        [id_right("WRITE")],
        before=[*READY, *producer(), _added(3, quiet=True)],
        # The topics are not compared, because the markers may or may not be written yet.
        after=[
            replace(
                _TRANSACTION_STATE,
                ignore=(*_TRANSACTION_STATE.ignore, "transaction_states.0.topics"),
            )
        ],
        versions="0-4",
    ),
    Case(
        "commit-offsets-in-a-transaction",
        "TxnOffsetCommit",
        {
            **_PRODUCER,
            "group_id": "@g",
            "generation_id": -1,
            "topics": [
                {
                    "name": name,
                    "partitions": [{"partition_index": 0, "committed_offset": 1}],
                }
                for name in ("@t", "@absent")
            ],
        },
        [id_right("WRITE"), group_right("READ"), topic_right("READ")],
        before=[
            *topic(),
            *group(),
            *producer(),
            Ask("AddOffsetsToTxn", {**_PRODUCER, "group_id": "@g"}, version=3, quiet=True),
        ],
        versions="0-4",
    ),
    Case(
        "write-markers",
        "WriteTxnMarkers",
        {
            "markers": [
                {
                    "producer_id": "$pid",
                    "producer_epoch": "$pid_epoch",
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "topics": [{"name": "@t", "partition_indexes": [0]}],
                }
            ]
        },
        [cluster_right("CLUSTER_ACTION")],
        before=[*topic(), *producer(), _added(3, quiet=True)],
        extra={"alters-the-cluster": [cluster_right("ALTER")]},
    ),
    Case(
        "describe-producers",
        "DescribeProducers",
        {
            "topics": [
                {"name": name, "partition_indexes": [0]} for name in ("@t", "@hidden", "@absent")
            ]
        },
        [topic_right("READ")],
        before=[*topic(), *topic("@hidden")],
        extra={"describes": [topic_right("DESCRIBE")]},
    ),
    Case(
        "describe-transactions",
        "DescribeTransactions",
        {"transactional_ids": ["@id", "@absent"]},
        [id_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=[*topic(), *producer(), _added(3, quiet=True)],
        ignore=("transaction_states.*.transaction_start_time_ms",),
    ),
    Case(
        "list-transactions",
        "ListTransactions",
        {},
        [id_right("DESCRIBE")],
        before=producer(),
        mine=True,
    ),
]


CASES: list[Case] = [*_TRANSACTIONS]
