"""faust counts words in a table, in two runs of a worker. Arguments: HOST:PORT NAME."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from checks import check, each_once

COUNT = 200
KEYS = 4
WAIT_S = 90.0


def application(bootstrap: str, name: str) -> faust.App:
    """An application with a table of counts, and an agent that sends every new count."""
    app = faust.App(
        name,
        broker=f"aiokafka://{bootstrap}",
        store="memory://",
        topic_partitions=KEYS,
        topic_replication_factor=1,
        broker_commit_interval=0.2,
        web_enabled=False,
        key_serializer="raw",
        value_serializer="raw",
    )
    words = app.topic(f"{name}-words", key_type=str, value_type=str)
    counts = app.topic(f"{name}-counts", key_type=str, value_type=str)
    table = app.Table(f"{name}-table", default=int, partitions=KEYS, key_type=str, value_type=int)

    async def counted(stream: Any) -> None:
        async for key, _ in stream.items():  # noqa: PERF102  a stream has no keys()
            table[key] += 1
            await counts.send(key=key, value=str(table[key]))

    app.agent(words)(counted)
    return app


async def create_topic(bootstrap: str, name: str) -> None:
    """Create the topic of words, with as many partitions as the table."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(f"{name}-words", KEYS, 1)])
    await admin.close()


async def produced(bootstrap: str, name: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(COUNT):
            await producer.send(f"{name}-words", b"w", f"k{number % KEYS}".encode())


async def read(bootstrap: str, name: str, count: int) -> list[tuple[str, int]]:
    """Read the first `count` counts."""
    found: list[tuple[str, int]] = []
    consumer = AIOKafkaConsumer(
        f"{name}-counts", bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    )
    async with consumer:
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found.extend((each.key.decode(), int(each.value)) for each in records)
    return found


async def turn(bootstrap: str, name: str, number: int) -> list[tuple[str, int]]:
    """Run a worker until all counts are in the topic. Returns the counts."""
    app = application(bootstrap, name)
    await app.start()
    try:
        await produced(bootstrap, name)
        return await asyncio.wait_for(read(bootstrap, name, number * COUNT), WAIT_S)
    finally:
        await app.stop()


def main() -> None:
    bootstrap, name = sys.argv[1:]
    asyncio.run(create_topic(bootstrap, name))

    def work(number: int) -> None:
        found = asyncio.run(turn(bootstrap, name, number))
        last = number * COUNT // KEYS
        each_once(found, [(f"k{key}", n) for key in range(KEYS) for n in range(1, last + 1)])

    for number in (1, 2):
        check(f"run {number}: each count is there once", partial(work, number))


if __name__ == "__main__":
    main()
