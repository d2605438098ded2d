"""Requests that several cases share."""

from __future__ import annotations

from typing import Any

from tests.oracle.script import (
    Ask,
    Batch,
    Step,
    produced,
    topic,
)

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
#: The fields about the cluster, which differ between brokers.
CLUSTER = ("brokers", "cluster_id", "controller_id")
READY: list[Step] = [*topic(), produced(Batch(["a", "b"]))]


def new(*names: str) -> dict[str, Any]:
    return {
        "timeout_ms": 10_000,
        "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names],
    }


def log_ends(name: str = "@t") -> Ask:
    partition = {"partition_index": 0, "timestamp": -1}
    topics = [{"name": name, "partitions": [partition]}]
    return Ask("ListOffsets", {"replica_id": -1, "topics": topics}, version=6)


def exist(*names: str) -> Ask:
    """A request whose answer shows which of these topics exist."""
    body = {**new(*names), "validate_only": True}
    return Ask("CreateTopics", body, version=5, ignore=("topics.*.configs",))
