"""Consumers of `benchmarks.clients`, one function for each client.

A function gets (bootstrap servers, topic, records, partitions) and returns the seconds from the
first record to the last, without the client's start. All clients fetch with equal size limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.support import run_on_uvloop

FETCH_BYTES = 52_428_800
PARTITION_BYTES = 1_048_576
POLL_RECORDS = 5_000

Reader = Callable[[str, str, int, int], float]


def odradek_getmany(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Consume with our client, by `getmany`."""
    from odradek_client.consumer.consumer import Consumer

    async def main() -> float:
        async with Consumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_BYTES,
        ) as consumer:
            consumer.assign([(topic, number) for number in range(partitions)])
            await consumer.getmany(timeout_ms=10_000, max_records=1)
            started, left = time.perf_counter(), records - 1
            while left > 0:
                found = await consumer.getmany(timeout_ms=10_000, max_records=POLL_RECORDS)
                got = sum(len(some) for some in found.values())
                if not got:
                    raise SystemExit(f"odradek: {left} records did not come")
                left -= got
            return time.perf_counter() - started

    return run_on_uvloop(main())


def odradek_arrow(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Consume with our client, by `poll_arrow`: all columns except headers, as Arrow batches."""
    from odradek_client.consumer.consumer import Consumer

    async def main() -> float:
        async with Consumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_BYTES,
        ) as consumer:
            consumer.assign([(topic, number) for number in range(partitions)])
            await consumer.poll_arrow(timeout_ms=10_000, max_records=1)
            started, left = time.perf_counter(), records - 1
            while left > 0:
                found = await consumer.poll_arrow(timeout_ms=10_000, max_records=POLL_RECORDS)
                if not found.num_rows:
                    raise SystemExit(f"odradek: {left} records did not come")
                left -= found.num_rows
            return time.perf_counter() - started

    return run_on_uvloop(main())


def odradek_iterate(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Consume with our client, by `async for`."""
    from odradek_client.consumer.consumer import Consumer

    async def main() -> float:
        async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, number) for number in range(partitions)])
            await consumer.getone()
            started, left = time.perf_counter(), records - 1
            async for _ in consumer:
                left -= 1
                if not left:
                    break
            return time.perf_counter() - started

    return run_on_uvloop(main())


def aiokafka_getmany(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Consume with aiokafka, by `getmany`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def main() -> float:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_BYTES,
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            await consumer.getmany(timeout_ms=10_000, max_records=1)
            started, left = time.perf_counter(), records - 1
            while left > 0:
                found = await consumer.getmany(timeout_ms=10_000, max_records=POLL_RECORDS)
                got = sum(len(some) for some in found.values())
                if not got:
                    raise SystemExit(f"aiokafka: {left} records did not come")
                left -= got
            return time.perf_counter() - started
        finally:
            await consumer.stop()

    return run_on_uvloop(main())


def aiokafka_iterate(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Consume with aiokafka, by `async for`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def main() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            await consumer.getone()
            started, left = time.perf_counter(), records - 1
            async for _ in consumer:
                left -= 1
                if not left:
                    break
            return time.perf_counter() - started
        finally:
            await consumer.stop()

    return run_on_uvloop(main())


def kafka_python_poll(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Consume with kafka-python, by `poll`."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=PARTITION_BYTES,
        group_id=None,
    )
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        consumer.poll(timeout_ms=10_000, max_records=1)
        started, left = time.perf_counter(), records - 1
        while left > 0:
            found = consumer.poll(timeout_ms=10_000, max_records=POLL_RECORDS)
            got = sum(len(some) for some in found.values())
            if not got:
                raise SystemExit(f"kafka-python: {left} records did not come")
            left -= got
        return time.perf_counter() - started
    finally:
        consumer.close()


def confluent_consume(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Consume with confluent-kafka (librdkafka), by `consume`."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            # librdkafka pauses for a second when this number of records waits for the application.
            # The number is so high that no pause occurs.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )
    try:
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )
        consumer.consume(1, 10.0)
        started, left = time.perf_counter(), records - 1
        while left > 0:
            found = consumer.consume(min(left, POLL_RECORDS), 10.0)
            if not found:
                raise SystemExit(f"confluent-kafka: {left} records did not come")
            # Each value is requested, because confluent-kafka copies a value out of librdkafka only
            # on request, and the other clients have already made all values.
            for message in found:
                message.value()
            left -= len(found)
        return time.perf_counter() - started
    finally:
        consumer.close()


READERS: dict[str, Reader] = {
    "odradek poll_arrow": odradek_arrow,
    "odradek getmany": odradek_getmany,
    "aiokafka getmany": aiokafka_getmany,
    "kafka-python poll": kafka_python_poll,
    "confluent-kafka consume": confluent_consume,
    "odradek async for": odradek_iterate,
    "aiokafka async for": aiokafka_iterate,
}
