"""Producers of `benchmarks.clients`, one function for each client.

A function gets (bootstrap servers, topic, values) and returns the seconds from the first `send`
until the delivery of every record has succeeded, which is checked. The time to connect is not
included.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from benchmarks.support import run_on_uvloop

BATCH_BYTES = 16_384
LINGER_MS = 5
ARROW_ROWS = 10_000


async def _odradek(bootstrap: str, topic: str, values: list[bytes]) -> float:
    from odradek import Producer

    async with Producer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    ) as producer:
        await producer.send_and_wait(topic, values[0], partition=0)
        started = time.perf_counter()
        deliveries = [await producer.send(topic, value, partition=0) for value in values]
        await producer.flush()
        for delivery in deliveries:
            delivery.result()
        return time.perf_counter() - started


async def _odradek_nowait(bootstrap: str, topic: str, values: list[bytes]) -> float:
    from odradek import Producer
    from odradek.errors import BufferFull

    async with Producer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    ) as producer:
        await producer.send_and_wait(topic, values[0], partition=0)
        started = time.perf_counter()
        send = producer.send_nowait
        deliveries = []
        for start in range(0, len(values), 500):
            for value in values[start : start + 500]:
                try:
                    deliveries.append(send(topic, value, partition=0))
                except BufferFull:
                    deliveries.append(await producer.send(topic, value, partition=0))
            await asyncio.sleep(0)
        await producer.flush()
        for delivery in deliveries:
            delivery.result()
        return time.perf_counter() - started


async def _odradek_arrow(bootstrap: str, topic: str, values: list[bytes]) -> float:
    """Produce rows that are already in Arrow when the measurement begins, like a result of
    `poll_arrow`."""
    import pyarrow as pa

    from odradek import Producer

    batches = pa.table({"value": values}).to_batches(ARROW_ROWS)
    async with Producer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    ) as producer:
        await producer.send_and_wait(topic, values[0], partition=0)
        started = time.perf_counter()
        deliveries = [await producer.produce_arrow(topic, batch, partition=0) for batch in batches]
        await producer.flush()
        written = sum(len(part.rows) for each in deliveries for part in each.result().outcomes)
        seconds = time.perf_counter() - started
        if written != len(values):
            raise RuntimeError(f"{written} of {len(values)} written")
        return seconds


async def _aiokafka(bootstrap: str, topic: str, values: list[bytes]) -> float:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
    )
    await producer.start()
    try:
        await producer.send_and_wait(topic, values[0], partition=0)
        started = time.perf_counter()
        futures = [await producer.send(topic, value, partition=0) for value in values]
        await producer.flush()
        for future in futures:
            future.result()
        return time.perf_counter() - started
    finally:
        await producer.stop()


def _kafka_python(bootstrap: str, topic: str, values: list[bytes]) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        # kafka-python cannot use librdkafka's mock broker, and should fail soon.
        bootstrap_timeout_ms=5_000,
        max_block_ms=5_000,
    )
    try:
        producer.send(topic, values[0], partition=0).get(timeout=30)
        started = time.perf_counter()
        futures = [producer.send(topic, value, partition=0) for value in values]
        producer.flush()
        for future in futures:
            future.get(timeout=0)
        return time.perf_counter() - started
    finally:
        producer.close()


def _confluent(bootstrap: str, topic: str, values: list[bytes]) -> float:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    delivered = []

    def callback(error: Any, message: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        delivered.append(message.offset())

    producer.produce(topic, values[0], partition=0)
    producer.flush()
    started = time.perf_counter()
    for value in values:
        try:
            producer.produce(topic, value, partition=0, callback=callback)
        except BufferError:
            producer.poll(0.1)
            producer.produce(topic, value, partition=0, callback=callback)
        producer.poll(0)
    producer.flush()
    if len(delivered) != len(values):
        raise RuntimeError(f"{len(delivered)} of {len(values)} delivered")
    return time.perf_counter() - started


CLIENTS: dict[str, Callable[[str, str, list[bytes]], float]] = {
    "odradek": lambda *given: run_on_uvloop(_odradek(*given)),
    "odradek produce_arrow": lambda *given: run_on_uvloop(_odradek_arrow(*given)),
    "odradek send_nowait": lambda *given: run_on_uvloop(_odradek_nowait(*given)),
    "aiokafka": lambda *given: run_on_uvloop(_aiokafka(*given)),
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent,
}
