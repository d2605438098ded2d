"""One member of a group, with any client library, as a process that can be killed.

    python -m churn_worker CLIENT ADDRESS GROUP TOPIC STRATEGY

STRATEGY is range, cooperative-sticky or consumer (KIP-848). The process writes a line for each
event. A (assigned), R (revoked) and L (lost) are followed by the time, the generation (-1 if
unknown) and the partitions; V by the values of processed records, written before they are
committed. At SIGTERM the member leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

SESSION_MS = 3_000
HEARTBEAT_MS = 200
POLL_INTERVAL_MS = 10_000

leaving = False


def _leave(*_: object) -> None:
    global leaving
    leaving = True


def tell(kind: str, partitions: Iterable[int], generation: int = -1) -> None:
    print(kind, time.monotonic(), generation, *sorted(partitions), flush=True)


def process(values: Iterable[bytes]) -> None:
    print("V", *(value.decode() for value in values), flush=True)


def numbers(partitions: Iterable[Any]) -> list[int]:
    return [each.partition for each in partitions]


async def ours(address: str, group: str, topic: str, strategy: str) -> None:
    from odradek_client.consumer.consumer import Consumer
    from odradek_client.consumer.rebalance_listener import RebalanceListener
    from odradek_client.errors import OdradekError

    settings: dict[str, Any] = {"group_protocol": "consumer"}
    if strategy != "consumer":
        settings = {
            "partition_assignment_strategy": strategy,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
    consumer = Consumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_interval_ms=POLL_INTERVAL_MS,
        **settings,
    )

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: Any) -> None:
            tell("A", numbers(partitions), consumer.group_metadata().generation_id)

        def on_partitions_revoked(self, partitions: Any) -> None:
            tell("R", numbers(partitions))

        def on_partitions_lost(self, partitions: Any) -> None:
            tell("L", numbers(partitions))

    consumer.subscribe([topic], listener=Listener())
    async with consumer:
        while not leaving:
            records = await consumer.poll(100)
            if records:
                process(record.value for record in records)
                with contextlib.suppress(OdradekError):
                    await consumer.commit(timeout_ms=5_000)


def confluent(address: str, group: str, topic: str, strategy: str) -> None:
    import confluent_kafka

    settings: dict[str, Any] = {"group.protocol": "consumer"}
    if strategy != "consumer":
        settings = {
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": POLL_INTERVAL_MS,
            "log_level": 0,
            **settings,
        }
    )

    def generation() -> int:
        if strategy == "consumer":
            return -1
        # librdkafka pickles the metadata in its own format: a magic of eight bytes, then the
        # generation.
        data = pickle.dumps(consumer.consumer_group_metadata())
        at = data.find(b"CGMDv2:")
        return -1 if at < 0 else int(struct.unpack_from("<i", data, at + 7)[0])

    def assigned(_: Any, partitions: Any) -> None:
        tell("A", numbers(partitions), generation())

    consumer.subscribe(
        [topic],
        on_assign=assigned,
        on_revoke=lambda _, partitions: tell("R", numbers(partitions)),
        on_lost=lambda _, partitions: tell("L", numbers(partitions)),
    )
    while not leaving:
        messages = [each for each in consumer.consume(500, 0.1) if each.error() is None]
        if messages:
            process(each.value() or b"" for each in messages)
            with contextlib.suppress(confluent_kafka.KafkaException):
                consumer.commit(asynchronous=False)
    consumer.close()


async def aio(address: str, group: str, topic: str, strategy: str) -> None:
    import aiokafka
    import aiokafka.errors
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    assert strategy == "range"
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
    )

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell("A", numbers(assigned), consumer._coordinator.generation)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell("R", numbers(revoked))

    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    try:
        while not leaving:
            batches = await consumer.getmany(timeout_ms=100)
            if batches:
                process(record.value for records in batches.values() for record in records)
                with contextlib.suppress(aiokafka.errors.KafkaError):
                    await consumer.commit()
    finally:
        await consumer.stop()


def python(address: str, group: str, topic: str, strategy: str) -> None:
    import kafka
    import kafka.errors
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    assignor = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS,
        partition_assignment_strategy=[assignor[strategy]],
    )

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            tell("A", numbers(assigned), consumer._coordinator._generation.generation_id)

        def on_partitions_revoked(self, revoked: Any) -> None:
            tell("R", numbers(revoked))

        def on_partitions_lost(self, lost: Any) -> None:
            tell("L", numbers(lost))

    consumer.subscribe([topic], listener=Listener())
    while not leaving:
        # kafka-python loses its assignment if a poll times out between SyncGroup and its answer.
        batches = consumer.poll(1_000)
        if batches:
            process(record.value for records in batches.values() for record in records)
            with contextlib.suppress(kafka.errors.KafkaError):
                consumer.commit()
    consumer.close()


KINDS: dict[str, Callable[..., Any]] = {
    "odradek": lambda *args: asyncio.run(ours(*args)),
    "confluent": confluent,
    "aiokafka": lambda *args: asyncio.run(aio(*args)),
    "kafka-python": python,
}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    KINDS[sys.argv[1]](*sys.argv[2:])
