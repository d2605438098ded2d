"""Checkers of what brokers and producers hold: silent on running ones, and each excess is told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.simulation.checkers.client_queues import check_producer
from odradek.simulation.checkers.coordinator_queues import check_coordinators
from odradek.simulation.run import run_seed
from odradek.simulation.world import World
from odradek_broker.coordinator.groups.deadlines import Deadline, TimerName
from odradek_broker.coordinator.transactions import deadlines
from odradek_broker.node import Node


def problems_with(
    workload: str, spoil: Callable[[Node], None], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[str]]:
    """(before, after) something is put into a broker that has worked."""
    found: list[list[str]] = []
    heal = World.heal

    async def look(world: World) -> None:
        await heal(world)
        node = world.broker.server.node
        found.append(list(check_coordinators(node)))
        spoil(node)
        found.append(list(check_coordinators(node)))

    monkeypatch.setattr(World, "heal", look)
    run_seed(workload, 1, [])
    before, after = found
    return before, after


def test_a_deadline_that_nobody_acts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(node: Node) -> None:
        shard = node.groups.shards.cores[0]
        now_ms = node.clock.monotonic_ms()
        shard.timers._deadlines[TimerName(Deadline.SESSION, "g", "m")] = (now_ms - 5_000, 0)

    before, (problem,) = problems_with("groups", spoil, monkeypatch)
    assert before == []
    assert "has not acted on" in problem
    assert "for 5000 ms" in problem


def test_a_heap_of_deadlines_that_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(node: Node) -> None:
        timers = node.groups.shards.cores[0].timers
        timers._heap += [(10**9, 0, TimerName(Deadline.SESSION, "g", str(n))) for n in range(500)]

    before, (problem,) = problems_with("groups", spoil, monkeypatch)
    assert before == []
    assert "deadlines in its heap" in problem


def test_effects_markers_and_calls_that_nobody_carries_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spoil(node: Node) -> None:
        shard = node.transactions.shards.cores[0]
        later_ms = node.clock.monotonic_ms() + 60_000
        kind = deadlines.Deadline
        shard.outbox.append(SimpleNamespace())  # type: ignore[arg-type]
        shard._completion._under_way["nobody"] = SimpleNamespace()  # type: ignore[assignment]
        shard.timers.set(deadlines.TimerName(kind.MARKERS, "other"), later_ms)
        shard.timers.set(deadlines.TimerName(kind.PARKED, "copy", 7), later_ms)
        shard._parking._calls[deadlines.TimerName(kind.PARKED, "copy", 8)] = SimpleNamespace()  # type: ignore[assignment]

    found: list[list[str]] = []
    heal = World.heal

    async def look(world: World) -> None:
        await heal(world)
        node = world.broker.server.node
        found.append(list(check_coordinators(node)))
        shard = node.transactions.shards.cores[0]
        spoil(node)
        found.append(list(check_coordinators(node)))
        shard.outbox.clear()
        shard._completion._under_way.pop("nobody")
        shard._parking._calls.popitem()
        for name in list(shard.timers._deadlines):
            if name.kind in (deadlines.Deadline.MARKERS, deadlines.Deadline.PARKED):
                shard.timers.cancel(name)

    monkeypatch.setattr(World, "heal", look)
    assert run_seed("transactional-copy", 1, []).violations == []
    assert found == [
        [],
        [
            "1 effects of a transaction shard are not carried out",
            "markers of 'nobody' are on their way, which is no transactional id",
            "markers of 'other' are due, and none are left",
            "a call for 'copy' is given up later, and none is parked",
            "a call for 'copy' is parked for ever",
        ],
    ]


def producer_with(
    *, available: int, reserved: list[int], in_flight: int = 0, unanswered: int = 0
) -> Any:
    """As much of one as is looked at."""
    config = SimpleNamespace(
        client_id="p", buffer_memory=100, max_in_flight_requests_per_connection=5
    )
    connection = SimpleNamespace(_unanswered=[0] * unanswered)
    return SimpleNamespace(
        config=config,
        _accumulator=SimpleNamespace(
            available_bytes=available,
            incomplete=[SimpleNamespace(reserved_bytes=each) for each in reserved],
        ),
        _sender=SimpleNamespace(_in_flight={1: in_flight}),
        _network=SimpleNamespace(_nodes={(1, "main"): SimpleNamespace(connection=connection)}),
    )


def test_what_a_producer_holds() -> None:
    assert list(check_producer(producer_with(available=40, reserved=[50, 10]))) == []
    (problem,) = check_producer(producer_with(available=30, reserved=[50, 10]))
    assert problem == "p has 30 bytes left, and batches hold 60 of 100"
    (problem,) = check_producer(producer_with(available=-20, reserved=[50, 70]))
    assert problem == "p has taken 20 bytes more than buffer_memory"
    (problem,) = check_producer(producer_with(available=100, reserved=[], in_flight=6))
    assert problem == "p has 6 produce requests in flight to 1, of 5"
    (problem,) = check_producer(producer_with(available=100, reserved=[], unanswered=6))
    assert problem == "p has 6 requests unanswered by 1 (main), of 5"
