"""Removal of records at the start of a log, by size, by age and by DeleteRecords, under load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

from tests.sim.checkers.acknowledged import Sent, check_acknowledged
from tests.sim.checkers.anomalies import check_anomalies
from tests.sim.checkers.deleted import Deletions
from tests.sim.checkers.history import Operation, Outcome, Poll
from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_client.admin import LATEST, Admin, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.batch import Delivery
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from odradek_testkit.simulation.world import World

_TOPIC = "events"
_PARTITIONS = 2
_VALUE_BYTES = 150
_RECORDS_MAX = 30
_POLLS_MAX = 10


class RetentionWorkload:
    """Producers, readers that begin at the start of the log, and administrators that delete."""

    name: ClassVar[str] = "retention"
    settings: ClassVar[dict[str, object]] = {"log.retention.check.interval.ms": 1}
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._sent: dict[tuple[str, str], Sent] = {}
        self._history: list[Operation] = []
        self._deletions = Deletions()

    async def prepare(self) -> None:
        """Create one topic, with retention by age, retention by size, or no retention."""
        configs = self._random.choice(
            ({"retention.bytes": "2000"}, {"retention.ms": "1000"}, {"retention.ms": "-1"})
        )
        configs = {**configs, "segment.bytes": "700", "file.delete.delay.ms": "500"}
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, configs=configs)])

    async def work(self) -> None:
        """Run all clients at the same time, and check the logs from time to time."""
        watching = asyncio.ensure_future(self._watch())
        await asyncio.gather(
            keep_running(self._world, "producer", 2, self._produce),
            keep_running(self._world, "reader", 1, self._read),
            keep_running(self._world, "admin", 1, self._delete),
        )
        watching.cancel()

    async def _watch(self) -> None:
        """Run retention all the time, and note log starts."""
        while True:
            await self._world.sleep(100)
            broker = self._world.broker
            if broker.running and hasattr(broker.server, "node"):
                logs = broker.server.node.logs
                logs.begin_retention()
                self._look()

    def _look(self) -> None:
        for log in self._world.broker.server.node.logs:
            if log.topic == _TOPIC and log.loaded and not log.offline:
                self._deletions.saw_start(log.name, log.log_start_offset)

    # --- Clients ---

    async def _produce(self, name: str) -> None:
        world, random = self._world, self._random
        waiting: list[asyncio.Task[None]] = []
        async with Producer(
            bootstrap_servers=world.broker.bootstrap,
            batch_size=random.choice((100, 600)),
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
            client_id=name,
        ) as producer:
            for number in range(random.randint(1, _RECORDS_MAX)):
                partition = random.randrange(_PARTITIONS)
                value = f"{name}/{number}/".encode().ljust(_VALUE_BYTES, b".")
                calls = self._sent.setdefault((name, f"{_TOPIC}-{partition}"), Sent())
                try:
                    delivery = await producer.send(_TOPIC, value, partition=partition)
                except OdradekError as problem:
                    world.note(name, f"{number} was not taken: {problem}")
                    continue
                calls.values.append(value)
                waiting.append(asyncio.ensure_future(self._wait(value, calls, delivery)))
                await world.sleep(random.choice((1, 20, 100, 300)))
            await asyncio.gather(*waiting)

    async def _wait(self, value: bytes, calls: Sent, delivery: Delivery) -> None:
        try:
            where = await delivery
        except OdradekError:
            return
        calls.acknowledged[value] = where.offset

    async def _read(self, name: str) -> None:
        world, random = self._world, self._random
        places = [TopicPartition(_TOPIC, index) for index in range(_PARTITIONS)]
        async with Consumer(
            bootstrap_servers=world.broker.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=2_000,
            client_id=name,
        ) as consumer:
            consumer.assign(places)
            for number in range(random.randint(1, _POLLS_MAX)):
                operation = Operation(name, outcome=Outcome.DONE, sought=number == 0)
                self._history.append(operation)
                before = self._deletions.acknowledged()
                limit = random.choice((1, 10, 500))
                try:
                    records = await consumer.poll(timeout_ms=200, max_records=limit)
                except OdradekError as problem:
                    world.note(name, f"cannot read: {problem}")
                    continue
                self._look_if_running()
                found = [(f"{r.topic}-{r.partition}", r.offset, r.value) for r in records]
                operation.steps.append(Poll(found))
                if number == 0:
                    # Later polls may return records that were fetched before the deletion.
                    self._deletions.read(name, found, before)
                world.note(name, f"reads {len(found)} records")
                await world.sleep(random.choice((1, 50, 300)))

    def _look_if_running(self) -> None:
        if self._world.broker.running and hasattr(self._world.broker.server, "node"):
            self._look()

    async def _delete(self, name: str) -> None:
        world, random = self._world, self._random
        async with Admin(
            bootstrap_servers=world.broker.bootstrap, request_timeout_ms=2_000
        ) as admin:
            for _ in range(random.randint(1, 4)):
                await world.sleep(random.choice((100, 500, 1_000)))
                place = TopicPartition(_TOPIC, random.randrange(_PARTITIONS))
                try:
                    end = (await admin.list_offsets({place: LATEST}))[place]
                    offset = random.randint(0, end.offset if end is not None else 0)
                    self._deletions.saw_start(f"{_TOPIC}-{place.partition}", offset)
                    start = (await admin.delete_records({place: offset}))[place]
                except OdradekError as problem:
                    world.note(name, f"cannot delete: {problem}")
                    continue
                world.note(name, f"{place}: the log starts at {start}")
                self._deletions.deleted(f"{_TOPIC}-{place.partition}", start)

    async def check(self) -> Iterator[str]:
        """Check that the remaining records are the last of the acknowledged ones, and that deleted
        ones stay deleted."""
        before = self._deletions.acknowledged()
        logs = await read_all(self._world.broker.bootstrap, _TOPIC, _PARTITIONS)
        self._look()
        starts = self._deletions.highest_starts
        records = [(place, *record) for place, found in logs.items() for record in found]
        last = Operation("last reader", [Poll(records)], Outcome.DONE, sought=True)
        self._deletions.read(last.client, records, before)
        for (_, place), calls in self._sent.items():
            start = starts.get(place, 0)
            calls.acknowledged = {
                value: offset for value, offset in calls.acknowledged.items() if offset >= start
            }
        return iter(
            [
                *check_acknowledged(self._sent, logs),
                *check_anomalies([*self._history, last], starts),
                *self._deletions.problems,
            ]
        )
