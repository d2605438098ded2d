"""How many records per second each client produces, per-record delivery results included.

    python benchmarks/client_produce.py [--records 200000] [--size 100] [--rounds 3]

Every client sends to the broker inside librdkafka (one node, one partition), which does so little
that the client is what is measured; it runs in a process of its own. Clients take turns, and the
best round of each counts. `--bootstrap HOST:PORT` takes another broker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

BATCH_BYTES = 16_384
LINGER_MS = 5


def serve(pipe: Connection) -> None:
    """Run the broker inside librdkafka until the pipe says otherwise."""
    import confluent_kafka

    settings = {"test.mock.num.brokers": 1, "log_level": 0, "bootstrap.servers": ""}
    held = confluent_kafka.Producer(settings)
    broker = next(iter(held.list_topics(timeout=10).brokers.values()))
    pipe.send(f"{broker.host}:{broker.port}")
    pipe.recv()


@contextlib.contextmanager
def mock_broker() -> Iterator[str]:
    """The address of a broker that lives as long as the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(10)


async def _odradek(bootstrap: str, topic: str, values: list[bytes]) -> None:
    from odradek import Producer

    async with Producer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    ) as producer:
        deliveries = [await producer.send(topic, value, partition=0) for value in values]
        await producer.flush()
        for delivery in deliveries:
            delivery.result()


async def _odradek_nowait(bootstrap: str, topic: str, values: list[bytes]) -> None:
    from odradek import Producer
    from odradek.errors import BufferFull

    async with Producer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    ) as producer:
        await producer.partitions_for(topic)
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


async def _aiokafka(bootstrap: str, topic: str, values: list[bytes]) -> None:
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
        futures = [await producer.send(topic, value, partition=0) for value in values]
        await producer.flush()
        for future in futures:
            future.result()
    finally:
        await producer.stop()


def _kafka_python(bootstrap: str, topic: str, values: list[bytes]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        # It does not cope with the broker inside librdkafka: fail soon.
        bootstrap_timeout_ms=5_000,
        max_block_ms=5_000,
    )
    futures = [producer.send(topic, value, partition=0) for value in values]
    producer.flush()
    for future in futures:
        future.get(timeout=0)
    producer.close()


def _confluent(bootstrap: str, topic: str, values: list[bytes]) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    delivered = []

    def callback(error: Any, message: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        delivered.append(message.offset())

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


def _run(coroutine: Any) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
    else:
        uvloop.run(coroutine)


CLIENTS: dict[str, Callable[[str, str, list[bytes]], None]] = {
    "odradek": lambda *given: _run(_odradek(*given)),
    "odradek send_nowait": lambda *given: _run(_odradek_nowait(*given)),
    "aiokafka": lambda *given: _run(_aiokafka(*given)),
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap", help="a broker; without it one inside librdkafka is started")
    parser.add_argument("--only", help="comma-separated names of clients")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(CLIENTS)
    values = [b"%012d" % i + b"x" * (arguments.size - 12) for i in range(arguments.records)]
    best: dict[str, float] = {}
    cpu: dict[str, float] = {}
    refused: dict[str, str] = {}
    running = contextlib.nullcontext(arguments.bootstrap) if arguments.bootstrap else mock_broker()
    with running as bootstrap:
        for _ in range(arguments.rounds):
            for name in names:
                if name in refused:
                    continue
                began, began_cpu = time.perf_counter(), time.process_time()
                try:
                    CLIENTS[name](bootstrap, "bench", values)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                    refused[name] = str(error)
                    continue
                took = time.perf_counter() - began
                best[name] = min(took, best.get(name, took))
                used = time.process_time() - began_cpu
                cpu[name] = min(used, cpu.get(name, used))
    if not best:
        raise SystemExit(f"no client could use this broker: {refused}")
    reference = best.get("aiokafka", min(best.values()))
    print(f"{arguments.records} records of {arguments.size} B, best of {arguments.rounds}")
    for name, took in sorted(best.items(), key=lambda item: item[1]):
        rate = arguments.records / took
        print(
            f"{name:20} {rate:12,.0f} records/s {reference / took:6.2f} x aiokafka"
            f" {took * 1e6 / arguments.records:8.2f} us/record, of the client's processor"
            f" {cpu[name] * 1e6 / arguments.records:6.2f}"
        )
    for name, reason in refused.items():
        print(f"{name:20} cannot use this broker: {reason}")


if __name__ == "__main__":
    main()
