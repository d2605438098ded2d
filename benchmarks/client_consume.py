"""How many records a second clients consume, side by side, from one broker.

    python benchmarks/client_consume.py [--records 500000] [--value-bytes 100] [--partitions 4]
        [--bootstrap HOST:PORT] [--rounds 3] [--only odradek,aiokafka]

Fills a topic with confluent-kafka, then lets each client read it from the beginning, with the same
fetch sizes, round about; the best round of each counts. Without --bootstrap it runs our own broker
as a subprocess. "asyncio" clients run on uvloop where it is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

FETCH_BYTES = 52_428_800
PARTITION_BYTES = 1_048_576
POLL_RECORDS = 5_000

Reader = Callable[[str, str, int, int], float]


def fill(bootstrap: str, topic: str, records: int, value_bytes: int, partitions: int) -> None:
    """Produce `records` values, evenly over the partitions, in batches of 16 KB."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": 1_000_000,
            "batch.size": 16_384,
            "linger.ms": 20,
        }
    )
    value = bytes(index % 251 for index in range(value_bytes))
    for index in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=index % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled within two minutes")


def run(main: Callable[[], Awaitable[float]]) -> float:
    """On uvloop if there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_awaited(main))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_awaited(main))


async def _awaited(main: Callable[[], Awaitable[float]]) -> float:
    return await main()


def odradek_getmany(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Our client, `getmany`."""
    from odradek_client.consumer.consumer import Consumer

    async def main() -> float:
        async with Consumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_BYTES,
        ) as consumer:
            consumer.assign([(topic, number) for number in range(partitions)])
            started, left = time.perf_counter(), records
            while left > 0:
                found = await consumer.getmany(timeout_ms=10_000, max_records=POLL_RECORDS)
                got = sum(len(some) for some in found.values())
                if not got:
                    raise SystemExit(f"odradek: {left} records did not come")
                left -= got
            return time.perf_counter() - started

    return run(main)


def odradek_iterate(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Our client, `async for`."""
    from odradek_client.consumer.consumer import Consumer

    async def main() -> float:
        async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, number) for number in range(partitions)])
            started, left = time.perf_counter(), records
            async for _ in consumer:
                left -= 1
                if not left:
                    break
            return time.perf_counter() - started

    return run(main)


def aiokafka_getmany(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """aiokafka, `getmany`."""
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
            started, left = time.perf_counter(), records
            while left > 0:
                found = await consumer.getmany(timeout_ms=10_000, max_records=POLL_RECORDS)
                got = sum(len(some) for some in found.values())
                if not got:
                    raise SystemExit(f"aiokafka: {left} records did not come")
                left -= got
            return time.perf_counter() - started
        finally:
            await consumer.stop()

    return run(main)


def aiokafka_iterate(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """aiokafka, `async for`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def main() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            started, left = time.perf_counter(), records
            async for _ in consumer:
                left -= 1
                if not left:
                    break
            return time.perf_counter() - started
        finally:
            await consumer.stop()

    return run(main)


def kafka_python_poll(bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """kafka-python, `poll`."""
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
        started, left = time.perf_counter(), records
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
    """confluent-kafka (librdkafka), `consume`."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
    try:
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )
        started, left = time.perf_counter(), records
        while left > 0:
            found = consumer.consume(POLL_RECORDS, 10.0)
            if not found:
                raise SystemExit(f"confluent-kafka: {left} records did not come")
            # Values are copied out only when asked for; the others have done so by now.
            for message in found:
                message.value()
            left -= len(found)
        return time.perf_counter() - started
    finally:
        consumer.close()


READERS: dict[str, Reader] = {
    "odradek getmany": odradek_getmany,
    "aiokafka getmany": aiokafka_getmany,
    "kafka-python poll": kafka_python_poll,
    "confluent-kafka consume": confluent_consume,
    "odradek async for": odradek_iterate,
    "aiokafka async for": aiokafka_iterate,
}


def main() -> None:
    """Measure and print one row per client, then all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap")
    parser.add_argument("--only", default="", help="parts of names, with commas between them")
    options = parser.parse_args()
    wanted = [part.strip() for part in options.only.split(",") if part.strip()]
    readers = {
        name: reader
        for name, reader in READERS.items()
        if not wanted or any(part in name for part in wanted)
    }
    topic = f"consume-{uuid.uuid4().hex[:8]}"
    best: dict[str, float] = {}
    context: Any = nullcontext()
    if options.bootstrap is None:
        from odradek.broker import Broker

        context = Broker.subprocess()
    with context as broker:
        bootstrap = options.bootstrap or broker.bootstrap
        fill(bootstrap, topic, options.records, options.value_bytes, options.partitions)
        for _ in range(options.rounds):
            for name, reader in readers.items():
                rate = options.records / reader(
                    bootstrap, topic, options.records, options.partitions
                )
                best[name] = max(best.get(name, 0.0), rate)
    base = best.get("aiokafka getmany")
    for name, rate in best.items():
        ratio = f"  {rate / base:5.2f} x aiokafka getmany" if base else ""
        print(f"{name:26} {rate:12,.0f} records/s{ratio}", file=sys.stderr)
    print(
        json.dumps(
            {
                "records": options.records,
                "value_bytes": options.value_bytes,
                "partitions": options.partitions,
                "records_per_s": {name: round(rate) for name, rate in best.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
