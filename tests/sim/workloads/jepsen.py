"""Sends and polls mixed, in transactions and without, as in Jepsen's workload for Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any, ClassVar

from tests.sim.checkers.anomalies import check_anomalies
from tests.sim.checkers.dependency_cycles import find_cycles
from tests.sim.checkers.history import Operation, Outcome, Poll, Send
from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from odradek_testkit.simulation.world import World

_TOPIC = "registers"
_PARTITIONS = 3
_CLIENTS = 2
_OPERATIONS_MAX = 16
_STEPS_MAX = 4
_POLL_MS = 100
_TRANSACTION_TIMEOUT_MS = 10_000
_ABANDONED_MS = 2 * _TRANSACTION_TIMEOUT_MS


class JepsenWorkload:
    """Clients that read all partitions from some offset on, and write to random partitions."""

    name: ClassVar[str] = "jepsen"
    settings: ClassVar[dict[str, object]] = {}
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._history: list[Operation] = []
        self._values = 0
        self._times = count(1)

    async def prepare(self) -> None:
        """Create one topic."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)])

    async def work(self) -> None:
        """Run several clients at a time; when one ends, another follows."""
        await keep_running(self._world, "client", _CLIENTS, self._run)

    async def _run(self, name: str) -> None:
        world, random = self._world, self._random
        transactional = random.random() < 0.5
        settings: dict[str, Any] = {
            "transactional_id": name,
            "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS,
        }
        producer = Producer(
            bootstrap_servers=world.broker.bootstrap,
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
            max_block_ms=60_000,
            client_id=name,
            **(settings if transactional else {}),
        )
        consumer = Consumer(
            bootstrap_servers=world.broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset=random.choice(("earliest", "latest")),
            enable_auto_commit=False,
            request_timeout_ms=2_000,
            client_id=name,
        )
        world.note(name, "starts with transactions" if transactional else "starts")
        try:
            async with producer, consumer:
                if transactional:
                    await producer.init_transactions()
                sought = True
                for _ in range(random.randint(1, _OPERATIONS_MAX)):
                    operation = Operation(
                        name,
                        transactional=transactional,
                        sought=sought,
                        began=next(self._times),
                    )
                    sought = False
                    if operation.sought:
                        consumer.assign([TopicPartition(_TOPIC, n) for n in range(_PARTITIONS)])
                    self._history.append(operation)
                    if transactional:
                        await self._transact(producer, consumer, operation)
                    elif random.random() < 0.5:
                        await self._send(producer, operation, random.randint(1, _STEPS_MAX))
                        operation.outcome = Outcome.DONE
                    else:
                        await self._poll(consumer, operation)
                        operation.outcome = Outcome.DONE
                    operation.ended = next(self._times)
                    await world.sleep(random.choice((1, 50, 200, 500)))
        except OdradekError as problem:
            # The transaction cannot continue, or the broker was down for too long.
            world.note(name, f"gives up: {problem}")
        world.note(name, "ends")

    async def _transact(self, producer: Producer, consumer: Consumer, operation: Operation) -> None:
        random = self._random
        await producer.begin_transaction()
        for _ in range(random.randint(1, _STEPS_MAX)):
            if random.random() < 0.6:
                await self._send(producer, operation, 1)
            else:
                await self._poll(consumer, operation)
        commits = random.random() < 0.7
        if commits:
            operation.commit_began = next(self._times)
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
        operation.outcome = Outcome.DONE if commits else Outcome.FAILED
        self._world.note(operation.client, "commits" if commits else "aborts")

    async def _send(self, producer: Producer, operation: Operation, count: int) -> None:
        deliveries = []
        for _ in range(count):
            self._values += 1
            partition = self._random.randrange(_PARTITIONS)
            send = Send(f"{_TOPIC}-{partition}", f"{operation.client}/{self._values}".encode())
            operation.steps.append(send)
            delivery = await producer.send(_TOPIC, send.value, partition=partition)
            deliveries.append((send, delivery))
        for send, delivery in deliveries:
            send.offset = (await delivery).offset
            self._world.note(operation.client, f"{send.value!r}: {send.place} {send.offset}")

    async def _poll(self, consumer: Consumer, operation: Operation) -> None:
        poll = Poll()
        operation.steps.append(poll)
        for record in await consumer.poll(timeout_ms=_POLL_MS, max_records=_max(self._random)):
            place = f"{record.topic}-{record.partition}"
            poll.records.append((place, record.offset, record.value))
        poll.ended = next(self._times)
        self._world.note(operation.client, f"polls {len(poll.records)} records")

    async def check(self) -> Iterator[str]:
        """Check for anomalies, with all readable records at the end."""
        # During this time the broker aborts the transactions of dead clients.
        await self._world.sleep(_ABANDONED_MS)
        logs = await read_all(self._world.broker.bootstrap, _TOPIC, _PARTITIONS, committed=True)
        records = [(place, *record) for place, found in logs.items() for record in found]
        last = Operation("last reader", [Poll(records)], Outcome.DONE, sought=True)
        legal = find_cycles(self._history)
        self._world.note("checker", f"{len(legal)} sets of operations that depend on each other")
        return check_anomalies([*self._history, last])


def _max(random: Random) -> int:
    return random.choice((1, 5, 500))
