"""Foreign clients and ours in one group, whose members join, leave and are killed at random."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from churn import PARTITIONS, Churn

#: The clients that support each strategy: aiokafka has no cooperative rebalancing, and only
#: librdkafka has KIP-848.
KINDS = {
    "range": ["odradek", "confluent", "aiokafka", "kafka-python"],
    "cooperative-sticky": ["odradek", "confluent", "kafka-python"],
    "consumer": ["odradek", "confluent"],
}

EVERY_STRATEGY = pytest.mark.parametrize("strategy", KINDS)


def churn(
    address: str, topic: str, strategy: str, operations: int, pause_max_s: float, seed: int
) -> None:
    group = Churn(address, topic, strategy, KINDS[strategy], seed)
    try:
        group.run(operations, pause_max_s)
    finally:
        group.close()
    assert group.violations() == []
    owned = {each.partition for member in group.gone for each in member.past}
    assert owned == set(range(PARTITIONS))


@EVERY_STRATEGY
@pytest.mark.full
def test_k52_k53_no_record_is_lost_while_some_members_join_leave_and_die(
    address: str, new_topic: Callable[..., str], strategy: str
) -> None:
    """Every record is processed, and no partition has two owners at the same time."""
    churn(address, new_topic(PARTITIONS), strategy, operations=20, pause_max_s=0.4, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@EVERY_STRATEGY
def test_k52_k53_no_record_is_lost_while_a_thousand_members_join_and_die(
    address: str, new_topic: Callable[..., str], strategy: str
) -> None:
    """A thousand joins, leaves and kills: some minutes for each strategy. Run it with `pytest -m
    slow tests/interop/test_group_churn.py`."""
    churn(address, new_topic(PARTITIONS), strategy, operations=1_000, pause_max_s=1.0, seed=2)
