"""The lag of watched groups over time."""

from __future__ import annotations

from odradek_client.structs import TopicPartition
from odradek_records.lag import LagAge, LagHistories, LagHistory, LagPoint

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_age_of_no_lag_is_zero() -> None:
    assert LagHistory().add(1_000, {P0: 5}, {P0: 5}) == LagPoint(1_000, 0, 0, False)


def test_older_records_are_at_least_as_old_as_the_watch() -> None:
    history = LagHistory()
    assert history.add(1_000, {P0: 5}, {P0: 8}) == LagPoint(1_000, 3, 0, True)
    assert history.add(3_000, {P0: 5}, {P0: 8}) == LagPoint(3_000, 3, 2_000, True)
    assert history.add(5_000, {P0: 8}, {P0: 8}) == LagPoint(5_000, 0, 0, False)
    assert [point.at_ms for point in history.points] == [1_000, 3_000, 5_000]


def test_records_written_during_the_watch_have_an_age() -> None:
    history = LagHistory()
    history.add(1_000, {P0: 10}, {P0: 10})
    history.add(2_000, {P0: 10}, {P0: 10})
    # Ten records came after the sample at 2,000 ms: the first may have come directly after it.
    assert history.add(3_000, {P0: 10}, {P0: 20}) == LagPoint(3_000, 10, 1_000, False)
    # Half of the records are read.
    assert history.add(4_000, {P0: 15}, {P0: 20}) == LagPoint(4_000, 5, 1_500, False)
    assert history.add(9_000, {P0: 20}, {P0: 30}) == LagPoint(9_000, 10, 5_000, False)


def test_the_age_told_by_a_broker_counts_while_there_is_lag() -> None:
    history = LagHistory()
    told = LagAge(70_000, False)
    assert history.add(1_000, {P0: 5}, {P0: 8}, told) == LagPoint(1_000, 3, 70_000, False)
    assert history.add(2_000, {P0: 8}, {P0: 8}, told) == LagPoint(2_000, 0, 0, False)


def test_the_oldest_record_of_all_partitions_counts() -> None:
    history = LagHistory()
    history.add(0, {P0: 1, P1: 1}, {P0: 1, P1: 1})
    history.add(1_000, {P0: 1, P1: 1}, {P0: 2, P1: 1})
    point = history.add(5_000, {P0: 1, P1: 1}, {P0: 2, P1: 4})
    assert point == LagPoint(5_000, 4, 5_000, False)


def test_the_lag_of_a_group_without_positions_is_unknown() -> None:
    assert LagHistory().add(1_000, {}, {P0: 8}) == LagPoint(1_000, None, None, False)
    assert LagHistory().add(1_000, {P1: 8}, {P0: 8, P1: 8}) == LagPoint(1_000, 0, 0, False)


def test_a_recreated_partition_starts_a_new_lag_history() -> None:
    history = LagHistory()
    history.add(0, {P0: 50}, {P0: 50})
    assert history.add(2_000, {P0: 0}, {P0: 3}) == LagPoint(2_000, 3, 0, True)


def test_lag_histories_are_bounded() -> None:
    history = LagHistory()
    for step in range(5_000):
        history.add(step, {P0: 0}, {P0: step + 1})
    assert len(history.points) == 1_800
    assert history.size <= 1_800 + 64
    assert history.points[-1].age_ms == 4_999
    histories = LagHistories()
    for number in range(300):
        histories.of(f"g{number}").add(0, {P0: 0}, {P0: 1})
    histories.of("g299").add(1, {P0: 0}, {P0: 1})
    assert len(histories.of("g299").points) == 2
    assert len(histories.of("g0").points) == 0
