"""Common parts of transactional workloads: readers of committed records, and the end of a run."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from random import Random
from typing import Any

from tests.sim.checkers.atomicity import check_atomicity
from tests.sim.checkers.attempts import Attempt, Logs
from tests.sim.checkers.committed_reads import check_committed_reads
from tests.sim.checkers.isolation import check_isolation
from tests.sim.checkers.open_transactions import check_all_ended
from tests.sim.reading import read_all

from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.structs import TopicPartition
from odradek_testkit.simulation.world import World

TRANSACTION_TIMEOUT_MS = 3_000
#: The interval at which the broker checks for timed-out transactions.
SETTINGS: dict[str, object] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
#: The time in ms for which a transaction may stay open after its client's end. The time is long
#: because the wall clock may be set back.
_END_MS = 120_000
_PARTITIONS = 2


class Sink:
    """A topic that transactions write to, and clients that read its committed records."""

    def __init__(
        self, world: World, topic: str, groups: Sequence[str] = (), readers: str = "reader"
    ) -> None:
        """`groups`: the groups whose offsets are committed in the transactions. `readers`: the
        prefix of the readers' names."""
        self._world = world
        self._readers = readers
        self._groups = groups
        self.topic = topic
        self.attempts: list[Attempt] = []
        self._seen: dict[str, dict[str, list[tuple[int, bytes]]]] = {}

    async def create(self, admin: Admin) -> None:
        """Create the topic, before the first fault."""
        await admin.create_topics([NewTopic(self.topic, _PARTITIONS)])

    def begin(self, client: str) -> Attempt:
        """Called when a client begins a transaction."""
        attempt = Attempt(f"{len(self.attempts)} of {client}")
        self.attempts.append(attempt)
        return attempt

    def place(self, random: Random) -> int:
        """A random partition to write to."""
        return random.randrange(_PARTITIONS)

    async def read(self) -> None:
        """Run readers, one at a time, until the faults are over."""
        while not self._world.faults_over.is_set():
            name = f"{self._readers}-{len(self._seen) + 1}"
            self._seen[name] = {}
            await follow(self._world, name, self._read(name))

    async def _read(self, name: str) -> None:
        seen = self._seen[name]
        consumer = Consumer(
            bootstrap_servers=self._world.broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            request_timeout_ms=2_000,
            client_id=name,
        )
        places = [TopicPartition(self.topic, index) for index in range(_PARTITIONS)]
        try:
            async with consumer:
                consumer.assign(places)
                while not self._world.faults_over.is_set():
                    for record in await consumer.poll(timeout_ms=500):
                        records = seen.setdefault(f"{record.topic}-{record.partition}", [])
                        records.append((record.offset, record.value))
        except OdradekError as problem:
            self._world.note(name, f"gave up: {problem}")

    async def committed(self) -> Logs:
        """Wait until all transactions have ended, or have had enough time to end. Then read all
        committed records."""
        until_ms = self._world.now_ms + _END_MS
        while self._world.now_ms < until_ms and any(self._still_open()):
            await self._world.sleep(500)
        bootstrap = self._world.broker.bootstrap
        return await read_all(bootstrap, self.topic, _PARTITIONS, committed=True)

    def check(self, committed: Logs) -> Iterator[str]:
        """Check every transaction. `committed`: the sink's committed records at the end."""
        yield from self._still_open()
        yield from check_isolation(self.attempts, committed)
        yield from check_atomicity(self.attempts, committed)
        yield from check_committed_reads(self._seen, committed)

    def _still_open(self) -> Iterator[str]:
        return check_all_ended(self._world.broker.server.node, self._groups)


async def follow(world: World, name: str, main: Coroutine[Any, Any, object]) -> None:
    """Run a client until it ends or is killed. Raises its errors."""
    task = world.start_client(name, lambda: main)
    process = world.clients[name]
    while not task.done() and process.alive:
        await world.sleep(20)
    if task.done():
        task.result()
