"""Topics to mirror, and a comparison of a copy with its source."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from odradek import Admin, Consumer, NewTopic, Producer
from odradek_client.structs import TopicPartition
from odradek_mirror.exactly_once import CrashPoint, ExactlyOnceCopier, OutSettings
from odradek_mirror.map_topic import read_map
from odradek_mirror.offset_map import PartitionMap

DEADLINE_S = 120.0
CODECS: tuple[Any, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

#: (offset, timestamp, key, value, headers).
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


async def make_topic(
    bootstrap: str,
    topic: str,
    partitions: int = 2,
    login: Mapping[str, Any] | None = None,
    **configs: str,
) -> None:
    """Create a topic. `configs`: settings with underscores for Kafka's dots."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    async with Admin(bootstrap_servers=bootstrap, **(login or {})) as admin:
        await admin.create_topics(NewTopic(topic, partitions, configs=named))


async def fill(
    bootstrap: str, topic: str, partitions: int = 2, count: int = 300, first: int = 0, **more: Any
) -> None:
    """Write records of every kind: each codec, tombstones, null keys, headers, large values, and
    transactions that are committed or aborted."""
    for number, codec in enumerate(CODECS):
        settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "compression_type": codec,
            "linger_ms": 5,
            **more,
        }
        transactional = number % 2 == 1
        if transactional:
            settings["transactional_id"] = f"{topic}-{codec}-{first}"
        async with Producer(**settings) as producer:
            if transactional:
                await producer.init_transactions()
            for outcome in ("commit", "abort", "commit") if transactional else ("plain",):
                if transactional:
                    await producer.begin_transaction()
                for index in range(first, first + count // len(CODECS)):
                    await _send(producer, topic, index, partitions, codec, outcome)
                if outcome == "commit":
                    await producer.commit_transaction()
                elif outcome == "abort":
                    await producer.flush()
                    await producer.abort_transaction()
            await producer.flush()


async def _send(
    producer: Producer, topic: str, index: int, partitions: int, codec: str, outcome: str
) -> None:
    key = None if index % 5 == 4 else b"key %d" % (index % 9)
    value = (
        None
        if index % 7 == 6 and key
        else b"%s %s %d "
        % (
            codec.encode(),
            outcome.encode(),
            index,
        )
    )
    if value is not None and index % 11 == 0:
        value += b"%d," % index * 2_000
    headers = [("n", b"%d" % index), ("empty", None)] if index % 3 == 0 else []
    await producer.send(topic, value, key, headers=headers, partition=index % partitions)


async def read_all(bootstrap: str, topic: str, partitions: int = 2) -> list[list[Row]]:
    """The committed records of each partition."""
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[list[Row]] = [[] for _ in tps]
    async with (
        asyncio.timeout(DEADLINE_S),
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        ends = await admin.list_offsets(dict.fromkeys(tps, "latest"), read_committed=True)
        consumer.assign(tps)
        left = set(tps)
        while left:
            for record in await consumer.poll(100):
                found[record.partition].append(
                    (
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        tuple(record.headers),
                    )
                )
            for tp in list(left):
                end = ends[tp]
                if end is None or await consumer.position(tp) >= end.offset:
                    left.discard(tp)
    return found


def check_rows(source: Sequence[Sequence[Row]], copy: Sequence[Sequence[Row]]) -> None:
    """Check that each partition of the copy has the records of the source, in the same order."""
    for number, (before, after) in enumerate(zip(source, copy, strict=True)):
        assert [row[1:] for row in after] == [row[1:] for row in before], f"partition {number}"


def check_translation(
    source: Sequence[Sequence[Row]],
    copy: Sequence[Sequence[Row]],
    maps: Mapping[TopicPartition, PartitionMap],
    topic: str,
) -> None:
    """Check that each offset of the source is translated to that of its record in the copy, or of
    the next record."""
    for number, (before, after) in enumerate(zip(source, copy, strict=True)):
        found = maps[TopicPartition(topic, number)]
        end = after[-1][0] + 1 if after else 0
        expected = {row[0]: here[0] for row, here in zip(before, after, strict=True)}
        following = end
        for offset in range(found.position.next, -1, -1):
            following = expected.get(offset, following)
            assert found.translate(offset) == following, f"{number}: {offset}"


class Counts:
    """The progress that a mirror reports, as numbers."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.failures: dict[TopicPartition, str] = {}
        self.troubles: dict[str, str] = {}
        self.records = 0

    def begin(self, tp: TopicPartition, copied: int, high_watermark: int) -> None:
        self.positions[tp], self.ends[tp] = copied, high_watermark
        self.failures.pop(tp, None)

    def seen(self, tp: TopicPartition, high_watermark: int, last_stable_offset: int) -> None:
        self.ends[tp] = high_watermark

    def copied(
        self,
        tp: TopicPartition,
        next_offset: int,
        *,
        records: int,
        size_bytes: int,
        timestamp_ms: int = -1,
    ) -> None:
        self.positions[tp] = next_offset
        self.records += records

    def failed(self, tp: TopicPartition, why: str) -> None:
        self.failures[tp] = why


@dataclass(frozen=True)
class Planned:
    """A topic to copy."""

    name: str
    partitions: int


class Mirror:
    """A mirror of one topic; it creates the copy in the target cluster."""

    def __init__(self, source: Admin, target: Admin, topic: str, **settings: Any) -> None:
        self.source, self.target, self.topic = source, target, topic
        given: dict[str, Any] = {"name": topic, "transaction_ms": 50, "patience_ms": 60_000}
        self.settings = OutSettings(**(given | settings))
        self.told: list[str] = []
        self.counts = Counts()
        self.stop = asyncio.Event()

    def make(self, reached: Callable[[CrashPoint], None] = lambda _: None) -> ExactlyOnceCopier:
        """Make another instance of the mirror."""
        self.counts = Counts()
        return ExactlyOnceCopier(
            self.source,
            self.target,
            self.settings,
            self.counts,
            tell=self.told.append,
            reached=reached,
        )

    async def planned(self) -> list[Planned]:
        """The topic to copy; its copy is created in the target cluster if necessary."""
        described = await self.source.describe_topics(self.topic)
        count = len(described[self.topic].partitions)
        copy = self.settings.target_topic(self.topic)
        await self.target.create_topics(NewTopic(copy, count), raise_errors=False)
        there = len((await self.target.describe_topics(copy))[copy].partitions)
        if there < count:
            await self.target.create_partitions({copy: count})
        return [Planned(self.topic, count)]

    async def drain(
        self, reached: Callable[[CrashPoint], None] = lambda _: None
    ) -> ExactlyOnceCopier:
        """Copy until the ends of the source are reached."""
        copier = self.make(reached)
        async with asyncio.timeout(DEADLINE_S):
            try:
                topics = await self.planned()
                await copier.start()
                await copier.add(topics)
                while not self.stop.is_set() and not self.is_copied():
                    await copier.step(100)
            finally:
                await copier.close()
        return copier

    def is_copied(self) -> bool:
        counts = self.counts
        return all(
            counts.positions[tp] >= counts.ends[tp] or tp in counts.failures
            for tp in counts.positions
        )

    async def check(self, partitions: int = 2) -> None:
        """Check that the copy has the same records, and that the map translates every offset."""
        before = await read_all(_bootstrap(self.source), self.topic, partitions)
        copy = self.settings.target_topic(self.topic)
        after = await read_all(_bootstrap(self.target), copy, partitions)
        check_rows(before, after)
        found = await read_map(self.target, self.settings.name)
        check_translation(before, after, found.partitions, self.topic)


def _bootstrap(admin: Admin) -> str:
    return ",".join(admin.config.bootstrap_servers)


@asynccontextmanager
async def mirror(source: str, target: str, topic: str, **settings: Any) -> AsyncIterator[Mirror]:
    """A mirror from the cluster at `source` to the cluster at `target`."""
    async with Admin(bootstrap_servers=source) as there, Admin(bootstrap_servers=target) as here:
        yield Mirror(there, here, topic, **settings)


async def _die_at(source: str, target: str, topic: str, step: CrashPoint, nth: int) -> None:
    """Run a mirror that kills itself when it reaches a step for the nth time."""
    left = nth

    def reached(found: CrashPoint) -> None:
        nonlocal left
        if found is step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async with mirror(source, target, topic, transaction_bytes=20_000) as made:
        await made.drain(reached)


def killed(source: str, target: str, topic: str, step: CrashPoint, nth: int = 1) -> bool:
    """Run a mirror in a process that kills itself when it reaches a step for the nth time. Returns
    False if the process ends without being killed."""
    arguments = [source, target, topic, step.name, str(nth)]
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=False, timeout=DEADLINE_S, capture_output=True
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


if __name__ == "__main__":
    _, _source, _target, _topic, _step, _nth = sys.argv
    asyncio.run(_die_at(_source, _target, _topic, CrashPoint[_step], int(_nth)))
