"""The lag of groups over time (G-166)."""

from __future__ import annotations

import pytest

from odradek_broker.explain import group_lags
from odradek_broker.explain.group_lags import COARSE_MAX, COARSE_MS, FINE_MAX, GroupLags

EVERY_MS = 10_000
START_MS = 1_700_000_000_000 // COARSE_MS * COARSE_MS


def sampled(history: GroupLags, wall_ms: int, **lags: int) -> None:
    history.begin_round()
    for group_id, lag in lags.items():
        history.add(group_id, wall_ms, lag)


def test_g166_a_short_incident_of_last_night_is_still_seen() -> None:
    history = GroupLags()
    per_day = 86_400_000 // EVERY_MS
    for number in range(per_day):
        sampled(history, START_MS + number * EVERY_MS, g=9_434 if number == 1_000 else 0)
    points = history.of("g")
    assert (START_MS + 1_000 * EVERY_MS, 9_434) in points
    assert [lag for _, lag in points if lag] == [9_434]
    assert points == sorted(points)
    assert points[-FINE_MAX:] == [
        (START_MS + number * EVERY_MS, 0) for number in range(per_day - FINE_MAX, per_day)
    ]


def test_g166_the_points_of_a_group_are_bounded() -> None:
    history = GroupLags()
    for number in range(2 * COARSE_MAX):
        for part in range(3):
            sampled(history, START_MS + number * COARSE_MS + part * EVERY_MS, g=number)
    points = history.of("g")
    assert len(points) <= FINE_MAX + COARSE_MAX
    assert points[-1][1] == 2 * COARSE_MAX - 1


def test_g166_a_group_that_was_deleted_is_forgotten_and_may_come_back() -> None:
    history = GroupLags()
    sampled(history, START_MS, g=1, other=2)
    sampled(history, START_MS + EVERY_MS, other=2)
    sampled(history, START_MS + 2 * EVERY_MS, other=2)
    assert history.of("g") == []
    sampled(history, START_MS + 3 * EVERY_MS, g=7, other=2)
    assert history.of("g") == [(START_MS + 3 * EVERY_MS, 7)]
    assert len(history.of("other")) == 4
    assert history.of("never") == []


def test_g166_the_number_of_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lags, "GROUPS_MAX", 2)
    history = GroupLags()
    for number in range(3):
        sampled(history, START_MS + number * EVERY_MS, a=1, b=1, c=1)
    assert [len(history.of(group_id)) for group_id in "abc"] == [3, 3, 0]
