"""Consume, transform, produce in transactions, while workers and the broker are killed at random.

The committed output must equal the input: each record once, in order per partition and key. The
test runs with librdkafka (transactions v1) and our own client (v2), with assigned partitions and in
a group that rebalances (`subscribe`, KIP-447). In the group one of three workers is a static
member, and some workers are stopped until the group has reassigned their partitions: the records
that the stopped workers had read must not be committed.

ODRADEK_LONG=1 runs the long form: 200,000 records and two minutes of kills. ODRADEK_SEED chooses
another sequence of kills.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import budget
from eos_run import KEYS, PARTITIONS, REST_S, Plan, Result, run
from eos_worker import HEARTBEAT_MS, SESSION_MS

LONG = os.environ.get("ODRADEK_LONG") == "1"
RECORDS_EACH = 50_000 if LONG else 5_000
KILLING_S = 120.0 if LONG else 10.0
TIMEOUT_S = KILLING_S + 3 * REST_S

BY_HAND = {"worker-0": ["0", "1"], "worker-1": ["2"], "worker-2": ["3"]}

#: Rebalance protocol -> the arguments of the workers.
SUBSCRIBED: dict[str, dict[str, list[str]]] = {
    "eager": {"worker-0": [], "worker-1": [], "worker-2": ["static"]},
    "cooperative": {
        "worker-0": ["cooperative"],
        "worker-1": ["cooperative"],
        "worker-2": ["static", "cooperative"],
    },
    "next": {"worker-0": ["next"], "worker-1": ["next"], "worker-2": ["static", "next"]},
}


def _judge(result: Result) -> None:
    assert result.deaths.workers > 0
    assert result.deaths.brokers > 0
    assert result.uncommitted > PARTITIONS * RECORDS_EACH, "nothing was ever aborted"
    for partition, records in enumerate(result.committed):
        numbers = [number for _, number in records]
        doubled = len(numbers) - len(set(numbers))
        missing = set(range(RECORDS_EACH)) - set(numbers)
        assert (doubled, len(missing)) == (0, 0), f"partition {partition}"
        assert numbers == sorted(numbers)
        for key, number in records:
            assert key == b"%d:%d" % (partition, number % KEYS)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("library", budget.of_which(["confluent-kafka", "odradek"], []))
def test_every_record_arrives_once_and_in_order_while_processes_are_killed(
    library: str, tmp_path: Path
) -> None:
    plan = Plan(
        library,
        RECORDS_EACH,
        KILLING_S,
        pauses_s=(0.1, 0.8),
        broker_one_in=5,
        arguments=BY_HAND,
    )
    result = run(plan, tmp_path)
    _judge(result)
    # Chance and the machine's speed decide which workers are killed, so only the total is checked.
    assert sum(result.starts.values()) > len(BY_HAND)


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("library", "protocol"),
    [
        pytest.param("confluent-kafka", "eager", marks=pytest.mark.full),
        pytest.param("odradek", "eager", marks=pytest.mark.full),
        pytest.param("odradek", "cooperative", marks=pytest.mark.full),
        ("odradek", "next"),
        pytest.param("confluent-kafka", "cooperative", marks=pytest.mark.slow),
        pytest.param("confluent-kafka", "next", marks=pytest.mark.slow),
    ],
)
def test_a_rebalancing_group_copies_exactly_once_while_processes_are_killed(
    library: str, protocol: str, tmp_path: Path
) -> None:
    plan = Plan(
        library,
        RECORDS_EACH,
        KILLING_S,
        # Some pauses between kills must be longer than a rebalance, or no worker copies records.
        pauses_s=(0.3, 4.0),
        broker_one_in=4,
        arguments=SUBSCRIBED[protocol],
        frozen_one_in=4,
        # Longer than a session timeout and the rebalance after it.
        frozen_s=4.0,
        settings=(
            "group.min.session.timeout.ms=1000",
            "group.consumer.min.session.timeout.ms=1000",
            f"group.consumer.session.timeout.ms={SESSION_MS}",
            "group.consumer.min.heartbeat.interval.ms=100",
            f"group.consumer.heartbeat.interval.ms={HEARTBEAT_MS}",
        ),
    )
    result = run(plan, tmp_path)
    _judge(result)
    assert sum(result.starts.values()) > len(SUBSCRIBED[protocol])
