"""Topics to mirror, and the comparison of a copy with its source, offset by offset."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from odradek import Admin, Consumer, NewTopic, Producer
from odradek.mirror.run_map import PartitionMap
from odradek_client.structs import TopicPartition

DEADLINE_S = 120.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

#: Offset, timestamp, key, value, headers.
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


async def make_topic(bootstrap: str, topic: str, partitions: int = 2, **configs: str) -> None:
    """Create a topic; names of settings with underscores instead of dots."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    async with Admin(bootstrap_servers=bootstrap) as admin:
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
    """The same records, in the same order, in each partition."""
    for number, (before, after) in enumerate(zip(source, copy, strict=True)):
        assert [row[1:] for row in after] == [row[1:] for row in before], f"partition {number}"


def check_translation(
    source: Sequence[Sequence[Row]],
    copy: Sequence[Sequence[Row]],
    maps: Mapping[TopicPartition, PartitionMap],
    topic: str,
) -> None:
    """Every offset of the source is translated to that of its record, or of the next one."""
    for number, (before, after) in enumerate(zip(source, copy, strict=True)):
        found = maps[TopicPartition(topic, number)]
        end = after[-1][0] + 1 if after else 0
        expected = {row[0]: here[0] for row, here in zip(before, after, strict=True)}
        following = end
        for offset in range(found.position.next, -1, -1):
            following = expected.get(offset, following)
            assert found.translate(offset) == following, f"{number}: {offset}"
