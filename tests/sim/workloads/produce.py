"""Idempotent producers, several at the same time, write into a few partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from tests.sim.checkers.acknowledged import Sent, check_acknowledged
from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS

from odradek_client.admin import Admin, NewTopic
from odradek_client.errors import OdradekError
from odradek_client.producer.batch import Delivery
from odradek_client.producer.producer import Producer
from odradek_testkit.simulation.world import World

_TOPIC = "orders"
_PARTITIONS = 2
_PRODUCERS = 3
_RECORDS_MAX = 40


class ProduceWorkload:
    """Producers that are replaced when they die; no two producers send the same record."""

    name: ClassVar[str] = "produce"
    settings: ClassVar[dict[str, object]] = {}
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._sent: dict[tuple[str, str], Sent] = {}
        self._started = 0

    async def prepare(self) -> None:
        """Create one topic."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)])

    async def work(self) -> None:
        """Run several producers at a time; when one ends, another follows."""
        await asyncio.gather(*(self._follow(number) for number in range(_PRODUCERS)))

    async def _follow(self, number: int) -> None:
        while not self._world.faults_over.is_set():
            self._started += 1
            name = f"producer-{self._started}"
            main = self._world.start_client(name, lambda name=name: self._produce(name))  # type: ignore[misc]
            process = self._world.clients[name]
            while not main.done() and process.alive:
                await self._world.sleep(20)

    async def _produce(self, name: str) -> None:
        world, random = self._world, self._random
        settings: dict[str, Any] = {
            "bootstrap_servers": world.broker.bootstrap,
            "linger_ms": random.choice((0, 5)),
            "batch_size": random.choice((100, 16_384)),
            "request_timeout_ms": 2_000,
            "delivery_timeout_ms": 60_000,
            "client_id": name,
        }
        world.note(name, "starts")
        waiting: list[asyncio.Task[None]] = []
        async with self._producer(settings) as producer:
            for number in range(random.randint(1, _RECORDS_MAX)):
                partition = random.randrange(_PARTITIONS)
                value = f"{name}/{number}".encode()
                calls = self._sent.setdefault((name, f"{_TOPIC}-{partition}"), Sent())
                calls.values.append(value)
                try:
                    delivery = await producer.send(_TOPIC, value, partition=partition)
                except OdradekError as problem:
                    world.note(name, f"{value!r} was not taken: {problem}")
                    calls.values.remove(value)
                    continue
                waiting.append(asyncio.ensure_future(self._wait(name, value, calls, delivery)))
                await world.sleep(random.choice((0, 1, 20, 100, 300)))
        await asyncio.gather(*waiting)
        world.note(name, "ends")

    def _producer(self, settings: dict[str, Any]) -> AbstractAsyncContextManager[Producer]:
        return Producer(**settings)

    async def _wait(self, name: str, value: bytes, calls: Sent, delivery: Delivery) -> None:
        try:
            where = await delivery
        except OdradekError as problem:
            self._world.note(name, f"{value!r} failed: {problem}")
        else:
            self._world.note(name, f"{value!r} is at offset {where.offset}")
            calls.acknowledged[value] = where.offset

    async def check(self) -> Iterator[str]:
        """Check that acknowledged records are in the logs once and in order."""
        logs = await read_all(self._world.broker.bootstrap, _TOPIC, _PARTITIONS)
        return check_acknowledged(self._sent, logs)
