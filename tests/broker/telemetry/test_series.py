"""The series of clients: their values, their limits and their end."""

from __future__ import annotations

import math

import pytest

import odradek_broker.telemetry.series as module
from odradek_broker.telemetry.otlp import MetricType, Point, Points
from odradek_broker.telemetry.series import (
    GONE_KEPT_MS,
    PUSHES_WITHOUT_MAX,
    ClientSeries,
    SeriesLimits,
)
from odradek_broker.telemetry.subscriptions import ClientAttributes

A, B, C = (bytes(15) + bytes([number]) for number in (2, 3, 4))
CLIENT = ClientAttributes("id", "client", "software", "1", "127.0.0.1", "9")


class World:
    def __init__(self, series: int = 100, per_client: int = 50) -> None:
        self.limits = SeriesLimits(series, per_client)
        self.all = ClientSeries(lambda: self.limits)
        self.now_ms = 0

    def push(self, client: bytes, *points: Point, left_out: int = 0) -> int:
        return self.all.push(client, CLIENT, "u", Points(list(points), left_out), 9, self.now_ms)

    def values(self, client: bytes = A) -> dict[str, float]:
        found = self.all.get(client)
        return {} if found is None else {key[0]: each.value for key, each in found.series.items()}


def point(
    name: str,
    value: float,
    *,
    kind: MetricType = MetricType.COUNTER,
    delta: bool = True,
    time_ns: int = 0,
) -> Point:
    return Point(name, (), kind, delta, value, time_ns, name)


def test_m21_deltas_are_added_up_and_other_values_replaced() -> None:
    world = World()
    world.push(A, point("c", 3), point("g", 5, kind=MetricType.GAUGE, delta=False))
    world.push(A, point("c", 4), point("g", 2, kind=MetricType.GAUGE, delta=False))
    assert world.values() == {"c": 7, "g": 2}
    world.push(A, point("c", 100, delta=False))
    assert world.values()["c"] == 100


def test_m21_repeated_pushes_and_impossible_deltas_are_ignored() -> None:
    world = World()
    world.push(A, point("c", 3, time_ns=1))
    world.push(A, point("c", 3, time_ns=1))
    for value in (math.nan, math.inf, -1.0):
        world.push(A, point("c", value, time_ns=2))
    assert world.values() == {"c": 3}
    world.push(A, point("up_down", -2, kind=MetricType.GAUGE))
    assert world.values()["up_down"] == -2


def test_m24_a_series_ends_after_a_few_pushes_without_it() -> None:
    world = World()
    world.push(A, point("a", 1), point("b", 1))
    for _ in range(PUSHES_WITHOUT_MAX - 1):
        world.push(A, point("b", 1))
        assert "a" in world.values()
    world.push(A, point("b", 1))
    assert list(world.values()) == ["b"] and world.all.series == 1


def test_m24_the_series_of_a_gone_client_are_kept_for_a_while() -> None:
    world = World()
    world.push(A, point("a", 1))
    world.all.gone(A, 1000)
    world.all.expire(999 + GONE_KEPT_MS)
    assert world.values() == {"a": 1}
    world.all.expire(1000 + GONE_KEPT_MS)
    assert len(world.all) == 0 and world.all.series == 0


def test_m24_a_returning_client_continues_its_series() -> None:
    world = World()
    world.push(A, point("a", 1))
    world.all.gone(A, 0)
    world.push(A, point("a", 1))
    world.all.expire(10 * GONE_KEPT_MS)
    assert world.values() == {"a": 2}


def test_m23_the_series_of_a_client_and_of_all_clients_are_limited() -> None:
    world = World(series=5, per_client=3)
    assert world.push(A, *[point(f"a{number}", 1) for number in range(4)], left_out=2) == 3
    assert world.push(B, *[point(f"b{number}", 1) for number in range(3)]) == 1
    assert (world.all.left_out.client, world.all.left_out.broker) == (3, 1)
    assert world.all.series == 5
    # Series that exist are still updated when the limit is reached.
    assert world.push(A, point("a0", 1)) == 0
    assert world.values()["a0"] == 2


def test_m23_the_series_of_gone_clients_are_dropped_at_the_limit() -> None:
    world = World(series=4)
    for client in (A, B):
        world.push(client, point("x", 1), point("y", 1))
    world.all.gone(B, 1)
    world.all.gone(A, 2)
    assert world.push(C, point("x", 1), point("y", 1)) == 0
    assert world.all.get(B) is None and world.all.get(A) is not None


def test_m23_the_characters_of_names_and_labels_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHARACTERS_MAX", 10)
    world = World()
    assert world.push(A, point("x" * 6, 1), point("y" * 6, 1)) == 1
    assert world.all.left_out.characters == 1


def test_m23_the_number_of_clients_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 2)
    world = World()
    world.push(A)
    world.push(B)
    world.push(A)
    world.push(C)
    assert world.all.ids() == {A, C}
