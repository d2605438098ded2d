"""A worker that reads records, writes them and its positions in transactions, and ends.

    python -m eos_worker LIBRARY ADDRESS NAME COUNT [static] [cooperative | next] | PARTITION...

The worker reads `source` in the group `workers`. With PARTITION it assigns these partitions itself;
otherwise the group assigns them (`static`: to a static member; `cooperative`: by cooperative
rebalances; `next`: by KIP-848; else by eager rebalances). It writes each value to the same
partition of `target`. It exits with 0 when each of its partitions has the position COUNT; in a
group, the partitions of all members must have this position. The worker ends at any error, and the
caller restarts it. Sometimes it aborts a transaction on purpose.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

GROUP = "workers"
SOURCE_PARTITIONS = 4
BATCH_RECORDS = 200
ABORTS_ONE_IN = 10
TIMEOUT_MS = 10_000
SESSION_MS = 1_500
HEARTBEAT_MS = 200
REBALANCE_MS = 5_000
_WAIT_S = 30.0


def _confluent_pair(address: str, name: str, how: set[str]) -> tuple[Any, Any]:
    import confluent_kafka as ck

    producer = ck.Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": name,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "group.id": GROUP,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": REBALANCE_MS,
        "reconnect.backoff.max.ms": 100,
        "fetch.wait.max.ms": 50,
        "log_level": 0,
    }
    if "next" in how:  # With KIP-848 the broker sets the session timeout.
        settings["group.protocol"] = "consumer"
    else:
        strategy = "cooperative-sticky" if "cooperative" in how else "range"
        settings["partition.assignment.strategy"] = strategy
        settings["session.timeout.ms"] = SESSION_MS
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
    if "static" in how:
        settings["group.instance.id"] = name
    return producer, ck.Consumer(settings)


def _confluent_transaction(producer: Any, consumer: Any, messages: list[Any]) -> bool:
    """Run one transaction with these records and their offsets. Returns True if it was
    committed."""
    import confluent_kafka as ck

    at: dict[int, int] = {}
    producer.begin_transaction()
    for message in messages:
        if message.error() is not None:
            raise ck.KafkaException(message.error())
        partition: Any = message.partition()
        producer.produce("target", message.value(), message.key(), partition=partition)
        at[partition] = message.offset() + 1
    producer.flush(_WAIT_S)  # Without a flush, an abort would have nothing to undo.
    moved = [ck.TopicPartition("source", index, position) for index, position in at.items()]
    producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), _WAIT_S)
    if random.randrange(ABORTS_ONE_IN):
        producer.commit_transaction(_WAIT_S)
        return True
    producer.abort_transaction(_WAIT_S)
    return False


def _with_confluent(address: str, name: str, count: int, partitions: list[int]) -> None:
    """Work with librdkafka: transactions of version 1, partitions assigned by the caller."""
    import confluent_kafka as ck

    producer, consumer = _confluent_pair(address, name, set())
    producer.init_transactions(_WAIT_S)

    def positions() -> dict[int, int]:
        asked = [ck.TopicPartition("source", index) for index in partitions]
        found = {}
        for part in consumer.committed(asked, timeout=_WAIT_S):
            if part.error is not None:
                raise ck.KafkaException(part.error)
            found[part.partition] = max(part.offset, 0)
        return found

    def rewind() -> None:
        at.update(positions())
        consumer.assign([ck.TopicPartition("source", index, at[index]) for index in partitions])

    at: dict[int, int] = {}
    rewind()
    while any(position < count for position in at.values()):
        messages = consumer.consume(BATCH_RECORDS, 0.2)
        if not messages:
            continue
        if not _confluent_transaction(producer, consumer, messages):
            rewind()
            continue
        for message in messages:
            at[message.partition()] = message.offset() + 1
    consumer.close()


def _subscribed_with_confluent(address: str, name: str, count: int, how: set[str]) -> None:
    """Work with librdkafka: transactions of version 1, partitions assigned by the group."""
    import confluent_kafka as ck

    producer, consumer = _confluent_pair(address, name, how)
    producer.init_transactions(_WAIT_S)

    def all_done() -> bool:
        asked = [ck.TopicPartition("source", index) for index in range(SOURCE_PARTITIONS)]
        try:
            found = consumer.committed(asked, timeout=_WAIT_S)
        except ck.KafkaException as error:
            if error.args[0].retriable():
                return False
            raise
        return all(part.error is None and part.offset == count for part in found)

    consumer.subscribe(["source"])
    while True:
        messages = consumer.consume(BATCH_RECORDS, 0.2)
        if not messages:
            if all_done():
                break
            continue
        if not _confluent_transaction(producer, consumer, messages):
            held = consumer.assignment()
            for part in consumer.committed(held, timeout=_WAIT_S):
                if part.error is not None:
                    raise ck.KafkaException(part.error)
                consumer.seek(ck.TopicPartition("source", part.partition, max(part.offset, 0)))
    consumer.close()


def _odradek_pair(address: str, name: str, how: set[str]) -> tuple[Any, Any]:
    from odradek import Consumer, Producer

    producer = Producer(
        bootstrap_servers=address, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS
    )
    settings: dict[str, Any] = {"group_instance_id": name} if "static" in how else {}
    if "next" in how:  # With KIP-848 the broker sets the session timeout.
        settings["group_protocol"] = "consumer"
    else:
        strategy = "cooperative-sticky" if "cooperative" in how else "range"
        settings["partition_assignment_strategy"] = strategy
        settings["session_timeout_ms"] = SESSION_MS
        settings["heartbeat_interval_ms"] = HEARTBEAT_MS
    consumer = Consumer(
        bootstrap_servers=address,
        group_id=GROUP,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_poll_interval_ms=REBALANCE_MS,
        **settings,
    )
    return producer, consumer


async def _odradek_transaction(
    producer: Any, consumer: Any, batches: dict[Any, list[Any]], group: Any
) -> bool:
    """Run one transaction with these records and their offsets. Returns True if it was
    committed."""
    await producer.begin_transaction()
    for records in batches.values():
        for record in records:
            await producer.send("target", record.value, key=record.key, partition=record.partition)
    await producer.flush()  # Without a flush, an abort would have nothing to undo.
    at = {place: records[-1].offset + 1 for place, records in batches.items() if records}
    await producer.send_offsets_to_transaction(at, group())
    if random.randrange(ABORTS_ONE_IN):
        await producer.commit_transaction()
        return True
    await producer.abort_transaction()
    return False


async def _with_odradek(address: str, name: str, count: int, partitions: list[int]) -> None:
    """Work with our client: transactions of version 2, partitions assigned by the caller."""
    producer, consumer = _odradek_pair(address, name, set())
    places = [("source", index) for index in partitions]
    async with asyncio.timeout(600), producer:
        await producer.init_transactions()
        async with consumer:
            consumer.assign(places)

            async def rewind() -> None:
                for place in places:
                    found = await consumer.committed(place)
                    at[place] = 0 if found is None else found.offset
                    consumer.seek(place, at[place])

            at: dict[tuple[str, int], int] = {}
            await rewind()
            while any(position < count for position in at.values()):
                batches = await consumer.getmany(timeout_ms=200, max_records=BATCH_RECORDS)
                if not any(batches.values()):
                    continue
                if not await _odradek_transaction(producer, consumer, batches, lambda: GROUP):
                    await rewind()
                    continue
                for place, records in batches.items():
                    if records:
                        at[place] = records[-1].offset + 1


async def _subscribed_with_odradek(address: str, name: str, count: int, how: set[str]) -> None:
    """Work with our client: transactions of version 2, partitions assigned by the group."""
    producer, consumer = _odradek_pair(address, name, how)

    async def committed(place: tuple[str, int]) -> int:
        found = await consumer.committed(place)
        return 0 if found is None else found.offset

    async def all_done() -> bool:
        for index in range(SOURCE_PARTITIONS):
            if await committed(("source", index)) != count:
                return False
        return True

    async with asyncio.timeout(600), producer:
        await producer.init_transactions()
        async with consumer:
            consumer.subscribe(["source"])
            while True:
                batches = await consumer.getmany(timeout_ms=200, max_records=BATCH_RECORDS)
                if not any(batches.values()):
                    if await all_done():
                        return
                    continue
                committing = _odradek_transaction(
                    producer, consumer, batches, consumer.group_metadata
                )
                if not await committing:
                    for place in consumer.assignment():
                        consumer.seek(place, await committed(place))


def main(library: str, address: str, name: str, count: int, how: list[str]) -> None:
    """Work until all is done. Raises any error."""
    subscribed = not how or not how[0].isdigit()
    if library == "confluent-kafka" and subscribed:
        _subscribed_with_confluent(address, name, count, set(how))
    elif library == "confluent-kafka":
        _with_confluent(address, name, count, list(map(int, how)))
    elif subscribed:
        asyncio.run(_subscribed_with_odradek(address, name, count, set(how)))
    else:
        asyncio.run(_with_odradek(address, name, count, list(map(int, how))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
