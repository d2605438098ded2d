"""Limits of a micro-batch. They are divided among partitions by backlog, starve no partition, and
may delay a batch until there are enough records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_odradek.admission import BatchLimits, MinimumGate, grant, split
from pyspark_odradek.planning import Partition

P0, P1, P2 = (Partition("t", number) for number in range(3))


def test_c1_a_limit_is_split_in_proportion_to_the_backlog() -> None:
    assert split({P0: 700, P1: 200, P2: 100}, 100) == {P0: 70, P1: 20, P2: 10}
    assert split({P0: 5, P1: 3}, 100) == {P0: 5, P1: 3}


def test_c1_partitions_with_a_small_backlog_get_at_least_one_record() -> None:
    assert split({P0: 1_000_000, P1: 1, P2: 0}, 10) == {P0: 9, P1: 1, P2: 0}
    # The limit is less than the number of partitions, but each partition gets one offset.
    assert split({P0: 50, P1: 50, P2: 50}, 2) == {P0: 1, P1: 1, P2: 1}


@given(
    st.dictionaries(st.sampled_from([P0, P1, P2]), st.integers(0, 10**12)),
    st.integers(1, 10**12),
)
def test_c1_the_shares_of_partitions_add_up_to_the_limit(
    backlog: dict[Partition, int], limit: int
) -> None:
    shares = split(backlog, limit)
    assert shares.keys() == backlog.keys()
    assert all(min(waiting, 1) <= shares[each] <= waiting for each, waiting in backlog.items())
    used, busy = sum(shares.values()), sum(waiting > 0 for waiting in backlog.values())
    assert used == min(sum(backlog.values()), max(limit, busy)) or used <= limit + busy
    if sum(backlog.values()) > limit:
        assert used >= limit


def test_a_limit_of_bytes_is_split_by_the_size_of_records() -> None:
    backlog = {P0: 1000, P1: 1000}
    limits = BatchLimits(max_bytes=11_000)
    assert grant(backlog, limits, {P0: 100.0, P1: 10.0}) == {P0: 100, P1: 100}
    assert grant(backlog, BatchLimits(max_bytes=10**9), {P0: 100.0, P1: 10.0}) == backlog
    assert grant(backlog, BatchLimits(max_bytes=1), {P0: 100.0, P1: 10.0}) == {P0: 1, P1: 1}
    assert grant(backlog, limits, {}) == backlog


def test_limits_of_records_and_bytes_apply_together() -> None:
    assert grant({P0: 1000}, BatchLimits(max_offsets=10, max_bytes=5_000), {P0: 100.0}) == {P0: 10}
    assert grant({P0: 1000}, BatchLimits(max_offsets=100, max_bytes=5_000), {P0: 100.0}) == {P0: 50}


def test_c1_a_batch_waits_for_its_minimum_or_its_maximum_delay() -> None:
    gate = MinimumGate(BatchLimits(min_offsets=10, max_delay_ms=1000))
    assert not gate.holds(1, 0)  # The first batch is not delayed.
    assert gate.holds(9, 999)
    assert not gate.holds(10, 500)
    assert gate.holds(9, 1499)
    assert not gate.holds(9, 1500)
    assert gate.holds(1, 1501)


def test_a_trigger_without_records_does_not_count_as_a_batch() -> None:
    gate = MinimumGate(BatchLimits(min_offsets=10, max_delay_ms=1000))
    assert not gate.holds(0, 0)
    assert not gate.holds(3, 1)
    assert gate.holds(3, 2)
