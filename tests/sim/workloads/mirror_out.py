"""The mirror out: instances copy a topic in transactions; they are killed, or replaced while they
still run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.sim.checkers.mirror_copies import check_mirrored
from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.transactions import SETTINGS, TRANSACTION_TIMEOUT_MS, follow

from odradek_client.admin import Admin, NewTopic
from odradek_client.errors import OdradekError, Refused
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from odradek_mirror.exactly_once import ExactlyOnceCopier, OutSettings
from odradek_mirror.map_topic import read_map
from odradek_mirror.ownership import MirrorFenced
from odradek_records.partition_fetch import FetchLimits
from odradek_testkit.simulation.world import World

_SOURCE = "orders"
_PREFIX = "copy-of-"
_NAME = "out"
_PARTITIONS = 2
_RECORDS = 30
#: With the short timeouts, the broker aborts transactions before they can be committed.
_TRANSACTION_TIMEOUTS_MS = (TRANSACTION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, 100, 20)
#: Small fetches, so that a copy takes several transactions.
_FEW_BYTES = FetchLimits(max_bytes=400, partition_bytes=200, wait_ms=100)
_SOURCES = [TopicPartition(_SOURCE, index) for index in range(_PARTITIONS)]


class _Topic:
    """The topic to copy, with the attributes that the mirror reads."""

    name = _SOURCE
    partitions = _PARTITIONS


class _Counts:
    """The positions of an instance, from the progress that the mirror reports."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.troubles: dict[str, str] = {}

    def begin(self, tp: TopicPartition, copied: int, high_watermark: int) -> None:
        self.positions[tp] = copied

    def seen(self, tp: TopicPartition, high_watermark: int, last_stable_offset: int) -> None:
        pass

    def copied(self, tp: TopicPartition, next_offset: int, **_: int) -> None:
        self.positions[tp] = next_offset

    def failed(self, tp: TopicPartition, why: str) -> None:
        raise Refused(f"{tp.topic}-{tp.partition}: {why}")


class MirrorOutWorkload:
    """Instances copy a topic to another name in the same cluster, one after the other.

    The source has aborted transactions, so that its offsets have gaps. An instance that is wrongly
    thought dead runs beside the next instance, until the earlier one is fenced.
    """

    name: ClassVar[str] = "mirror-out"
    settings: ClassVar[dict[str, object]] = SETTINGS
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._ends: dict[TopicPartition, int] = {}
        self._done = asyncio.Event()
        #: The instances that ran at the same time as another one: only these may be fenced.
        self._beside_others: set[str] = set()

    async def prepare(self) -> None:
        """Create the source, with records and aborted transactions, and the copy."""
        bootstrap = self._world.broker.bootstrap
        settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "transactional_id": "writer"}
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics(
                [NewTopic(_SOURCE, _PARTITIONS), NewTopic(f"{_PREFIX}{_SOURCE}", _PARTITIONS)]
            )
            async with Producer(**settings, batch_size=200) as producer:
                await producer.init_transactions()
                number = 0
                while number < _RECORDS:
                    count = self._random.randint(1, 6)
                    aborts = self._random.random() < 0.3
                    await producer.begin_transaction()
                    for value in range(number, number + count):
                        for tp in _SOURCES:
                            text = b"%d/%d" % (tp.partition, -1 if aborts else value)
                            await producer.send(_SOURCE, text, partition=tp.partition)
                        # Each flush ends a batch, so that each record has its own.
                        await producer.flush()
                    if aborts:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
                        number += count
            ends = await admin.list_offsets(dict.fromkeys(_SOURCES, "latest"))
            self._ends = {tp: found.offset for tp, found in ends.items() if found is not None}

    async def work(self) -> None:
        """Run instances until everything is copied and the faults are over."""
        started: dict[str, asyncio.Task[None]] = {}
        while not (self._done.is_set() and self._world.faults_over.is_set()):
            name = f"mirror-{len(started) + 1}"
            others = {each for each, task in started.items() if not task.done()}
            self._beside_others |= others and {*others, name}
            started[name] = asyncio.ensure_future(follow(self._world, name, self._main(name)))
            patience_ms = self._random.choice((None, None, 200, 800))
            if self._world.faults_over.is_set():
                patience_ms = None
            timeout_s = None if patience_ms is None else patience_ms / 1000
            await asyncio.wait([started[name]], timeout=timeout_s)
            await self._world.sleep(self._random.choice((20, 200)))
        await asyncio.gather(*started.values())

    async def _main(self, name: str) -> None:
        config: dict[str, Any] = {
            "bootstrap_servers": self._world.broker.bootstrap,
            "client_id": name,
            "request_timeout_ms": 2_000,
        }
        settings = OutSettings(
            _NAME,
            transaction_bytes=self._random.choice((1, 300, 10_000)),
            transaction_ms=50,
            transaction_timeout_ms=self._random.choice(_TRANSACTION_TIMEOUTS_MS),
            prefix=_PREFIX,
        )
        counts = _Counts()
        try:
            async with Admin(**config) as source, Admin(**config) as target:
                copier = ExactlyOnceCopier(
                    source,
                    target,
                    settings,
                    counts,
                    limits=_FEW_BYTES,
                    reached=lambda step: self._note(name, step),
                )
                try:
                    await copier.start()
                    await copier.add([_Topic()])
                    while not self._is_copied(counts):
                        await copier.step(100)
                    self._done.set()
                finally:
                    await copier.close()
        except MirrorFenced as error:
            self._world.note(name, f"ends: {error}")
            if name not in self._beside_others:
                self._world.violated("mirrored", f"{name}, the only instance, is fenced: {error}")
        except Refused as error:
            self._world.violated("mirrored", f"an instance was refused: {error}")
            self._done.set()
        except OdradekError as error:
            self._world.note(name, f"ends: {type(error).__name__}: {error}")

    def _note(self, name: str, step: object) -> None:
        self._world.note(name, f"is at {step}")

    def _is_copied(self, counts: _Counts) -> bool:
        return all(counts.positions.get(tp, 0) >= end for tp, end in self._ends.items())

    async def check(self) -> Iterator[str]:
        """Check that the copy has each committed record once, and that every offset is
        translated."""
        bootstrap = self._world.broker.bootstrap
        before = await read_all(bootstrap, _SOURCE, _PARTITIONS, committed=True)
        copy = f"{_PREFIX}{_SOURCE}"
        after = await read_all(bootstrap, copy, _PARTITIONS, committed=True)
        async with Admin(bootstrap_servers=bootstrap) as admin:
            try:
                maps = (await read_map(admin, _NAME)).partitions
            except Refused as error:
                return iter([f"mirrored: the map cannot be read: {error}"])
        problems: list[str] = []
        for tp in _SOURCES:
            found = maps.get(tp)
            name = f"{tp.topic}-{tp.partition}"
            problems += check_mirrored(
                name,
                before[name],
                after[f"{_PREFIX}{name}"],
                {}
                if found is None
                else {at: found.translate(at) for at in range(self._ends[tp] + 1)},
            )
        return iter(problems)
