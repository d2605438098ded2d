"""The broker as a program: its periodic tasks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from weakref import ref

import pytest
from structlog.testing import capture_logs

from broker_in_loop import StartBroker
from odradek_broker.server import server
from odradek_broker.server.host import BackgroundThread, LoopScheduler
from odradek_broker.slices import Slices
from odradek_protocol.schemas.metadata import MetadataRequest
from waiting import until


class Failing:
    """A step that fails unexpectedly the first three times that it is called."""

    def __init__(self, then: Callable[[], object]) -> None:
        self.calls = 0
        self._then = then

    def __call__(self) -> object:
        self.calls += 1
        if self.calls <= 3:
            raise LookupError("nobody thought of this")
        return self._then()


class Large:
    """What a work has in memory."""


async def test_n14_refused_work_in_the_thread_leaves_nothing_to_a_collection_of_garbage() -> None:
    loop = asyncio.get_running_loop()
    thread = BackgroundThread(loop)
    slices = Slices(lambda: 0, LoopScheduler(loop), background=thread)
    kept: list[ref[Large]] = []

    def refused() -> None:
        large = Large()
        kept.append(ref(large))
        raise ValueError("it is not valid")

    async def ask() -> str:
        try:
            await slices.beside(refused)
        except ValueError as problem:
            return str(problem)
        return ""

    gc.disable()
    try:
        answer = slices.deferred(ask())
        async with asyncio.timeout(20):
            await until(lambda: answer.done)
        thread.wait()
        assert answer.result() == "it is not valid"
        assert [each() for each in kept] == [None]
    finally:
        gc.enable()


async def test_periodic_tasks_of_the_broker_continue_after_any_error(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure is logged, and the next step runs at its usual time."""
    for name in ("_IDLE_CHECK_S", "_MAINTENANCE_S", "_RECOVERY_POINTS_S"):
        monkeypatch.setattr(server, name, 0.001)
    broker = await start_broker()
    client = await broker.client()
    await client.call(MetadataRequest(topics=[]), 9)
    (session,) = broker.server.sessions
    node = broker.node
    points = Failing(node.logs.directories[0].recovery_points_writer)
    maintenance = Failing(node.maintain)
    idle = Failing(lambda: None)
    with capture_logs() as lines:
        monkeypatch.setattr(node.logs.directories[0], "recovery_points_writer", points)
        monkeypatch.setattr(node, "maintain", maintenance)
        monkeypatch.setattr(type(session), "close_if_idle", lambda *_: idle())
        await until(lambda: min(points.calls, maintenance.calls, idle.calls) > 5)
    said = [line["event"] for line in lines if line["log_level"] == "error"]
    for what in ("writing the recovery points", "maintenance", "closing idle connections"):
        assert said.count(f"{what} failed") == 3
    assert all(line["exc_info"] for line in lines if line["log_level"] == "error")


async def test_n04_an_idle_limit_of_minus_one_closes_no_connection(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_IDLE_CHECK_S", 0.001)
    broker = await start_broker(connections_max_idle_ms="-1")
    client = await broker.client()
    await client.call(MetadataRequest(topics=[]), 9)
    for _ in range(10):
        await asyncio.sleep(0.002)
    await client.call(MetadataRequest(topics=[]), 9)
