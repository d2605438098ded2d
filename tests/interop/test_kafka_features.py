"""Feature levels that are lowered and raised again, in Apache Kafka and in our broker: the
responses must be the same (N-53).

Each test starts its own broker, because the levels apply to the whole broker.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.judge import OUR_SETTINGS
from tests.oracle.play import play
from tests.oracle.script import Ask, Scenario

from broker_process import BrokerProcess
from kafka_cluster import KafkaCluster

pytestmark = pytest.mark.kafka

UPGRADE, SAFE, UNSAFE = 1, 2, 3
TRANSACTIONS, GROUPS = "transaction.version", "group.version"


def _update(*updates: tuple[str, int, int], check: bool = False) -> Ask:
    wanted = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind}
        for name, level, kind in updates
    ]
    body = {"timeout_ms": 10_000, "feature_updates": wanted, "validate_only": check}
    return Ask("UpdateFeatures", body)


def _level(name: str, most: int) -> list[Ask]:
    """Requests that show the level of a feature: which changes are accepted as upgrades and as
    downgrades."""
    return [
        _update((name, level, kind), check=True)
        for level in range(most + 1)
        for kind in (UPGRADE, SAFE, UNSAFE)
    ]


def _changed(*updates: tuple[str, int, int]) -> list[Ask]:
    return [_update(*updates), *_level(TRANSACTIONS, 2), *_level(GROUPS, 1)]


_HEARTBEAT: dict[str, Any] = {
    "group_id": "@g",
    "member_id": "11111111-1111-1111-1111-111111111111",
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["@t"],
    "topic_partitions": [],
}

CHANGES = Scenario(
    "features-that-change",
    "UpdateFeatures",
    [
        *_level(TRANSACTIONS, 2),
        *_changed((TRANSACTIONS, 1, SAFE)),
        *_changed((TRANSACTIONS, 0, UNSAFE), (GROUPS, 0, SAFE)),
        *_changed((GROUPS, 1, UPGRADE), ("no.such", 1, UPGRADE)),
        # The request is repeated until this response: the broker learns of the new level a moment
        # later.
        Ask("ConsumerGroupHeartbeat", _HEARTBEAT, until={"error_code": "UNSUPPORTED_VERSION"}),
        Ask("ConsumerGroupDescribe", {"group_ids": ["@g"]}),
        *_changed((TRANSACTIONS, 1, UPGRADE), (TRANSACTIONS, 2, UPGRADE)),
        *_changed((TRANSACTIONS, 2, UPGRADE), (TRANSACTIONS, 1, UNSAFE)),
        *_changed((GROUPS, 1, UPGRADE)),
        *_changed((TRANSACTIONS, 2, UPGRADE)),
    ],
    versions="2",
)


def _answers(port: int) -> Any:
    (answers,) = asyncio.run(play("127.0.0.1", port, [(CHANGES, 2)], "f")).values()
    return answers


def test_n53_feature_levels_change_as_in_kafka(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    broker = BrokerProcess(folder, OUR_SETTINGS)
    broker.start()
    try:
        ours = _answers(broker.port)
        broker.stop()
        broker.start()
        assert _answers(broker.port) == ours, (
            "all levels are up again, before the restart and behind it"
        )
    finally:
        broker.kill()
    with KafkaCluster(tmp_path / "kafka") as cluster:
        theirs = _answers(cluster.nodes[0].port)
    assert isinstance(theirs, list), theirs
    for one, other in zip(theirs, ours, strict=True):
        assert _without_text(one) == _without_text(other)


def _without_text(answer: Any) -> Any:
    """The response without error messages: some of our broker's are longer than Kafka's."""
    if isinstance(answer, dict):
        return {k: _without_text(v) for k, v in answer.items() if k != "error_message"}
    return [_without_text(each) for each in answer] if isinstance(answer, list) else answer
