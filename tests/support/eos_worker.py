"""A worker that reads partitions, writes what it read and its positions in transactions, and ends.

    python -m eos_worker LIBRARY ADDRESS NAME COUNT PARTITION...

Reads `source` from partitions assigned by hand, as group `workers`, writes each value to the same
partition of `target`. Ends with 0 when every partition's position is COUNT. It gives up at whatever
goes wrong, and is made to be started again; now and then it aborts on purpose.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

GROUP = "workers"
BATCH_RECORDS = 200
ABORTS_ONE_IN = 10
TIMEOUT_MS = 10_000
_WAIT_S = 30.0


def _with_confluent(address: str, name: str, count: int, partitions: list[int]) -> None:
    """Transactions v1."""
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
    producer.init_transactions(_WAIT_S)
    consumer = ck.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 100,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    at: dict[int, int] = {}

    def rewind() -> None:
        asked = [ck.TopicPartition("source", index) for index in partitions]
        for part in consumer.committed(asked, timeout=_WAIT_S):
            if part.error is not None:
                raise ck.KafkaException(part.error)
            at[part.partition] = max(part.offset, 0)
        consumer.assign([ck.TopicPartition("source", index, at[index]) for index in partitions])

    rewind()
    while any(position < count for position in at.values()):
        messages = consumer.consume(BATCH_RECORDS, 0.2)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            if message.error() is not None:
                raise ck.KafkaException(message.error())
            partition: Any = message.partition()
            producer.produce("target", message.value(), message.key(), partition=partition)
            at[partition] = message.offset() + 1  # type: ignore[operator]
        producer.flush(_WAIT_S)  # or else an abort would have nothing to take back
        moved = [ck.TopicPartition("source", index, position) for index, position in at.items()]
        producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), _WAIT_S)
        if random.randrange(ABORTS_ONE_IN):
            producer.commit_transaction(_WAIT_S)
        else:
            producer.abort_transaction(_WAIT_S)
            rewind()
    consumer.close()


async def _with_odradek(address: str, name: str, count: int, partitions: list[int]) -> None:
    """Transactions v2."""
    from odradek import Consumer, Producer

    producer = Producer(
        bootstrap_servers=address, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS
    )
    consumer = Consumer(
        bootstrap_servers=address,
        group_id=GROUP,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
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
                await producer.begin_transaction()
                for records in batches.values():
                    for record in records:
                        await producer.send(
                            "target", record.value, key=record.key, partition=record.partition
                        )
                        at["source", record.partition] = record.offset + 1
                await producer.flush()  # or else an abort would have nothing to take back
                await producer.send_offsets_to_transaction(dict(at), GROUP)
                if random.randrange(ABORTS_ONE_IN):
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
                    await rewind()


def main(library: str, address: str, name: str, count: int, partitions: list[int]) -> None:
    """Work until all is done, or raise."""
    if library == "confluent-kafka":
        _with_confluent(address, name, count, partitions)
    else:
        asyncio.run(_with_odradek(address, name, count, partitions))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), [int(p) for p in sys.argv[5:]])
