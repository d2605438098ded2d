"""Rates over sampled windows, and token buckets: Kafka's arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek_broker.quotas.rates import SampledRate, TokenBucket, Windows

#: The windows of Kafka: eleven of a second each.
WINDOWS = Windows(11, 1000)


def test_q05_the_first_rate_is_computed_over_all_full_windows() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(1000, 0)
    assert rate.per_second(0) == 100
    assert rate.per_second(400) == pytest.approx(1000 / 10.4)


def test_q06_the_throttle_time_brings_the_rate_down_to_the_quota() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(3000, 0)
    # The rate of ten seconds is 300 a second, and the limit is 100.
    assert rate.throttle_ms(100, 0) == 20_000
    assert rate.throttle_ms(300, 0) == 0


@pytest.mark.parametrize(
    ("limit", "recorded", "wait_ms"),
    [
        # Recorded from Apache Kafka: Fetch answers of 2578, 2586 and 2592 bytes, with a quota of
        # 250 bytes a second.
        (250, 2578, 312),
        (250, 2586, 344),
        (250, 2592, 368),
    ],
)
def test_q06_throttle_times_equal_kafkas(limit: float, recorded: float, wait_ms: int) -> None:
    rate = SampledRate(WINDOWS)
    rate.record(recorded, 5)
    assert rate.throttle_ms(limit, 5) == wait_ms


def test_q05_samples_expire_by_whole_windows() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(500, 0)
    rate.record(500, 999)
    rate.record(100, 1000)
    # The first window was last used at 999 ms, and expires 11 s later.
    assert rate.per_second(11_998) == pytest.approx(1100 / 11.998)
    assert rate.per_second(11_999) == pytest.approx(100 / 10.999)
    assert rate.per_second(12_000) == 0


def test_q08_an_amount_taken_back_does_not_count() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(200, 0)
    rate.record(900, 10)
    rate.record(-900, 10)
    assert rate.per_second(0) == 20


def test_a_rate_over_a_single_window_has_no_full_windows() -> None:
    rate = SampledRate(Windows(1, 1000))
    rate.record(10, 0)
    assert rate.per_second(0) == 10 / 0.001
    assert rate.per_second(500) == 20
    assert Windows(1, 1000).whole_s == 0
    assert WINDOWS.whole_s == 10


@example([(0, 1), (0, 4999), (0, 10_000), (0, 1000), (0, 7001), (0, 1)])
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 10_000)), min_size=1, max_size=60))
def test_q06_a_client_that_waits_for_its_throttle_time_uses_at_most_twice_its_quota(
    steps: list[tuple[int, int]],
) -> None:
    """The test allows additionally for the initial burst, the last request, and half a millisecond
    for the rounding of each wait. Windows expire as a whole, as in Kafka, so a client can exceed
    its quota: requests of ten seconds' usage, each sent as soon as it is allowed, reach 1.7 times
    the quota."""
    rate, now_ms, used, limit = SampledRate(WINDOWS), 0, 0, 1000
    for number, (pause_ms, amount) in enumerate(steps):
        now_ms += pause_ms
        assert used <= limit * (WINDOWS.count + 1 + 2 * (now_ms + 0.5 * number) / 1000)
        rate.record(amount, now_ms)
        used += amount
        now_ms += rate.throttle_ms(limit, now_ms)


def test_q10_a_token_bucket_begins_full_and_may_be_overdrawn() -> None:
    bucket = TokenBucket(WINDOWS)
    assert bucket.throttle_ms(2, 0) == 0
    # The bucket has 22 tokens.
    bucket.take(22, 2, 0)
    assert bucket.throttle_ms(2, 0) == 0
    bucket.take(10, 2, 0)
    assert bucket.throttle_ms(2, 0) == 5000
    assert bucket.throttle_ms(2, 4999) == 1
    assert bucket.throttle_ms(2, 5000) == 0


def test_q10_a_token_bucket_holds_the_tokens_of_its_windows_at_most() -> None:
    bucket = TokenBucket(Windows(2, 1000))
    bucket.take(1, 5, 0)
    bucket.take(11, 5, 3_600_000)
    assert bucket.throttle_ms(5, 3_600_000) == 200
