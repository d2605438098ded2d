"""The throttle times in the metrics of a client (N-11)."""

from __future__ import annotations

import math

from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.network.throttle_times import SAMPLE_MS, ThrottleTimes


def told(times: ThrottleTimes, now_ms: float) -> tuple[float, float]:
    found = times.metrics("fetch", now_ms)
    assert list(found) == ["fetch-throttle-time-avg", "fetch-throttle-time-max"]
    average, longest = found.values()
    return average, longest


def test_average_and_maximum_cover_the_last_minute() -> None:
    times = ThrottleTimes()
    assert all(map(math.isnan, told(times, 0)))
    for throttle_ms in (0, 0, 90):
        times.record(throttle_ms, 1_000)
    assert told(times, 1_000) == (30, 90)
    times.record(30, 1_000 + SAMPLE_MS)
    assert told(times, 1_000 + SAMPLE_MS) == (30, 90)
    # The first sample is a minute old and expires, although no third sample has begun.
    assert told(times, 1_000 + 2 * SAMPLE_MS) == (30, 30)
    times.record(0, 1_000 + 2 * SAMPLE_MS)
    assert told(times, 1_000 + 2 * SAMPLE_MS) == (15, 30)
    assert all(map(math.isnan, told(times, 1_000 + 9 * SAMPLE_MS)))


def test_n11_producer_and_consumer_metrics_have_throttle_times(
    odradek_broker: SubprocessBroker,
) -> None:
    address = odradek_broker.bootstrap
    with sync.Producer(bootstrap_servers=address) as producer:
        producer.send("t", b"x").result()
        found = producer.metrics()
    assert found == {"produce-throttle-time-avg": 0, "produce-throttle-time-max": 0}
    with sync.Consumer(bootstrap_servers=address) as consumer:
        found = consumer.metrics()
    assert found == {"fetch-throttle-time-avg": 0, "fetch-throttle-time-max": 0}
