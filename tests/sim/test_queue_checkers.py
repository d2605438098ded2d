"""Checkers of brokers' and clients' resources: no violation on a correct run, and one for each
excess."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sim.checkers.client_queues import (
    check_consumer,
    check_network,
    check_producer,
)
from tests.sim.checkers.coordinator_queues import check_coordinators
from tests.sim.run import run_seed

from odradek_broker.coordinator.groups.deadlines import GroupTimer, GroupTimerName
from odradek_broker.coordinator.transactions import completion
from odradek_broker.node import Node
from odradek_client.admin import Admin
from odradek_client.consumer.consumer import Consumer
from odradek_testkit.simulation.simulate import simulate
from odradek_testkit.simulation.world import World


def problems_with(
    workload: str, spoil: Callable[[Node], None], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[str]]:
    """The violations in a broker that has run a workload, before and after `spoil` has changed
    it."""
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


def test_an_overdue_deadline_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(node: Node) -> None:
        shard = node.groups.shards.cores[0]
        now_ms = node.clock.monotonic_ms()
        shard.timers._deadlines[GroupTimerName(GroupTimer.SESSION, "g", "m")] = (now_ms - 5_000, 0)

    before, (problem,) = problems_with("groups", spoil, monkeypatch)
    assert before == []
    assert "has not acted on" in problem
    assert "for 5000 ms" in problem


def test_too_many_cancelled_deadlines_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(node: Node) -> None:
        timers = node.groups.shards.cores[0].timers
        timers._heap += [
            (10**9, 0, GroupTimerName(GroupTimer.SESSION, "g", str(n))) for n in range(500)
        ]

    before, (problem,) = problems_with("groups", spoil, monkeypatch)
    assert before == []
    assert "deadlines in its heap" in problem


def test_forgotten_effects_markers_and_calls_are_violations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spoil(node: Node) -> None:
        shard = node.transactions.shards.cores[0]
        later_ms = node.clock.monotonic_ms() + 60_000
        kind = completion.TransactionTimer
        shard.outbox.append(SimpleNamespace())  # type: ignore[arg-type]
        shard.completion.under_way["nobody"] = SimpleNamespace()  # type: ignore[assignment]
        shard.timers.set(completion.TransactionTimerName(kind.MARKERS, "other"), later_ms)
        shard.timers.set(completion.TransactionTimerName(kind.PARKED, "copy", 7), later_ms)
        lost_call = completion.TransactionTimerName(kind.PARKED, "copy", 8)
        shard.parking.calls[lost_call] = SimpleNamespace()  # type: ignore[assignment]

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
        shard.completion.under_way.pop("nobody")
        shard.parking.calls.popitem()
        for name in list(shard.timers._deadlines):
            if name.kind in (
                completion.TransactionTimer.MARKERS,
                completion.TransactionTimer.PARKED,
            ):
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


def producer_with(*, available: int, reserved: list[int], in_flight: int = 0) -> Any:
    """A fake producer with the attributes that the checker reads."""
    config = SimpleNamespace(
        client_id="p", buffer_memory=100, max_in_flight_requests_per_connection=5
    )
    return SimpleNamespace(
        config=config,
        accumulator=SimpleNamespace(
            available_bytes=available,
            incomplete=[SimpleNamespace(reserved_bytes=each) for each in reserved],
        ),
        _sender=SimpleNamespace(_in_flight={1: in_flight}),
    )


def test_memory_and_requests_of_a_producer_beyond_its_limits_are_violations() -> None:
    assert list(check_producer(producer_with(available=40, reserved=[50, 10]))) == []
    (problem,) = check_producer(producer_with(available=30, reserved=[50, 10]))
    assert problem == "p has 30 bytes left, and batches hold 60 of 100"
    (problem,) = check_producer(producer_with(available=-20, reserved=[50, 70]))
    assert problem == "p has taken 20 bytes more than buffer_memory"
    (problem,) = check_producer(producer_with(available=100, reserved=[], in_flight=6))
    assert problem == "p has 6 produce requests in flight to 1, of 5"


def network_with(
    *, unanswered: int = 0, queued: int = 0, nodes: int = 1, waiters: int = 0, known: int = 1
) -> Any:
    """A fake client network with the attributes that the checker reads."""
    connection = SimpleNamespace(
        unanswered=[0] * unanswered,
        queued=[0] * queued,
        _settings=SimpleNamespace(max_in_flight=5),
    )
    return SimpleNamespace(
        config=SimpleNamespace(client_id="n"),
        cluster=SimpleNamespace(brokers=range(known)),
        connections=SimpleNamespace(
            _bootstrap={},
            nodes={(each, "main"): SimpleNamespace(connection=connection) for each in range(nodes)},
        ),
        metadata=SimpleNamespace(_waiters=[0] * waiters),
    )


def test_requests_of_a_client_beyond_its_limits_are_violations() -> None:
    assert list(check_network(network_with(unanswered=5, queued=15, nodes=8, waiters=20))) == []
    assert list(check_network(network_with(unanswered=6))) == [
        "n has 6 requests unanswered by 0 (main), of 5"
    ]
    assert list(check_network(network_with(unanswered=5, queued=16))) == [
        "n has 16 requests waiting for 0 (main)"
    ]
    assert list(check_network(network_with(nodes=9))) == ["n has 9 connections to 1 brokers"]
    assert list(check_network(network_with(waiters=21))) == [
        "n has 21 callers that wait for metadata"
    ]


def consumer_with(
    *, fetches: int = 0, in_flight: int = 0, sessions: int = 1, pending: int = 0, commits: int = 0
) -> Any:
    """A fake consumer with the attributes that the checker reads."""
    queue = SimpleNamespace(pending=lambda: range(pending))
    return SimpleNamespace(
        config=SimpleNamespace(client_id="c"),
        _loop=SimpleNamespace(_fetches=range(fetches)),
        _fetcher=SimpleNamespace(_in_flight=range(in_flight), _sessions=range(sessions)),
        _group=SimpleNamespace(offsets=SimpleNamespace(_queue=queue)),
        _commits=range(commits),
    )


def test_fetches_and_commits_of_a_consumer_beyond_limits_are_violations() -> None:
    good = consumer_with(fetches=2, in_flight=1, pending=5, commits=3)
    assert list(check_consumer(good)) == []
    assert list(check_consumer(consumer_with(in_flight=1))) == [
        "c takes 1 brokers for asked, and waits for 0 answers"
    ]
    assert list(check_consumer(consumer_with(fetches=3))) == ["c waits for 3 fetches of 1 brokers"]
    assert list(check_consumer(consumer_with(pending=6, commits=3))) == [
        "c has 6 commits without an outcome"
    ]


def test_live_clients_are_checked() -> None:
    """Clients of dead processes, and closed ones, are not checked."""
    seen: list[tuple[list[str], int]] = []

    async def story(world: World) -> None:
        await world.start_broker()
        live = Admin(bootstrap_servers=world.broker.bootstrap, client_id="live")
        closed = Consumer(bootstrap_servers=world.broker.bootstrap, client_id="closed")
        dead = Consumer(bootstrap_servers=world.broker.bootstrap, client_id="dead")
        for client in (live, closed):
            await client.start()
        starting = world.start_client("dead", dead.start)
        process = world.clients["dead"]
        await starting
        seen.append(([each.config.client_id for each in world.networks()], len(world.consumers())))
        await closed.close()
        process.kill()
        seen.append(([each.config.client_id for each in world.networks()], len(world.consumers())))
        await live.close()

    simulate("looked-at", 1, story)
    assert seen == [(["live", "closed", "dead"], 2), (["live"], 0)]
