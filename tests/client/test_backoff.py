"""Backoff: exponential, bounded, with jitter (N-16)."""

from __future__ import annotations

import random

from odradek_client.backoff import Backoff


class Middle:
    def random(self) -> float:
        return 0.5


def test_n16_backoff_doubles_up_to_the_maximum() -> None:
    backoff = Backoff(50, 1000, Middle())
    assert [backoff.delay_ms(n) for n in range(8)] == [0, 50, 100, 200, 400, 800, 1000, 1000]
    assert backoff.delay_ms(10**6) == 1000


def test_n16_backoff_jitter_is_twenty_percent_and_reproducible() -> None:
    delays = [Backoff(100, 100, random.Random(seed)).delay_ms(3) for seed in range(200)]
    assert min(delays) >= 80 and max(delays) <= 120
    assert max(delays) - min(delays) > 30
    assert delays == [Backoff(100, 100, random.Random(seed)).delay_ms(3) for seed in range(200)]
