"""Clients of other projects, unmodified, with one small interface.

Each adapter drives one library: confluent-kafka (librdkafka), aiokafka or kafka-python. All waits
end after DEADLINE_S. `Member` is a group member of any library, in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiokafka
import aiokafka.coordinator.assignors.range
import confluent_kafka
import kafka

from waiting import deadline_in

DEADLINE_S = 20.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Enough bytes for a request with one record of 900 KB.
REQUEST_BYTES_MAX = 2_000_000
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_MS = 200
#: kafka-python 3.0 loses its assignment if a poll times out between SyncGroup and its response, so
#: polls during a rebalance must be long. They return early if there are records.
_POLL_MS = 1000

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Record:
    """A record to produce, or a record that was consumed."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 1_700_000_000_000
    partition: int = 0


@dataclass(frozen=True)
class Settings:
    """The settings of a producer."""

    codec: str = "none"
    idempotent: bool = True
    linger_ms: int = 5
    extra: dict[str, Any] = field(default_factory=dict)


class Client(Protocol):
    """The interface to every library."""

    name: str
    #: Record features that the library's own producer does not support.
    refuses: frozenset[str]

    def produce(
        self, address: str, topic: str, records: Sequence[Record], settings: Settings
    ) -> list[int]:
        """Produce records. Returns their offsets in the given order; raises if a record cannot be
        delivered."""

    def consume(self, address: str, topic: str, count: int) -> list[Record]:
        """Consume the first `count` records of a topic from all partitions, in the order of
        arrival."""

    def consume_and_commit(self, address: str, topic: str, group: str, count: int) -> list[Record]:
        """Join a group, read `count` records, commit the offsets after exactly these records, and
        leave."""

    def offsets_for_time(
        self, address: str, topic: str, partition: int, timestamp_ms: int
    ) -> int | None:
        """The first offset with at least this timestamp; None if there is none."""

    def run_member(self, member: Member) -> None:
        """Run a group member until `member.leaving` is set."""


@contextlib.contextmanager
def _closing(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        thing.close()


class Confluent:
    """The adapter for librdkafka."""

    name = "confluent-kafka"
    refuses: frozenset[str] = frozenset()

    def produce(
        self, address: str, topic: str, records: Sequence[Record], settings: Settings
    ) -> list[int]:
        offsets: dict[int, int] = {}
        errors: list[Any] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": settings.idempotent,
                "compression.type": settings.codec,
                "linger.ms": settings.linger_ms,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "log_level": 0,
                **settings.extra,
            }
        )

        def delivered(number: int) -> Callable[[Any, Any], None]:
            def report(error: Any, message: Any) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offsets[number] = message.offset()

            return report

        for number, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=delivered(number),
            )
            producer.poll(0)
        unsent = producer.flush(DEADLINE_S)
        if errors or unsent:
            raise RuntimeError(f"{unsent} not delivered; {errors[:3]}")
        return [offsets[number] for number in range(len(records))]

    def consume(self, address: str, topic: str, count: int) -> list[Record]:
        with _closing(self._consumer(address, "never-committed")) as consumer:
            found = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
            consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in found])
            return self._read(consumer, count)

    def consume_and_commit(self, address: str, topic: str, group: str, count: int) -> list[Record]:
        with _closing(self._consumer(address, group)) as consumer:
            consumer.subscribe([topic])
            records = self._read(consumer, count)
            consumer.commit(asynchronous=False)
            return records

    def offsets_for_time(
        self, address: str, topic: str, partition: int, timestamp_ms: int
    ) -> int | None:
        asked = confluent_kafka.TopicPartition(topic, partition, timestamp_ms)
        with _closing(self._consumer(address, "never-committed")) as consumer:
            (found,) = consumer.offsets_for_times([asked], timeout=DEADLINE_S)
        return None if found.offset == confluent_kafka.OFFSET_END else int(found.offset)

    def run_member(self, member: Member) -> None:
        with _closing(self._consumer(member.address, member.group)) as consumer:
            consumer.subscribe([member.topic])
            while not member.leaving.is_set():
                for message in consumer.consume(500, timeout=0.02):
                    member.take(self._record(message))
                member.holds({part.partition for part in consumer.assignment()})
            # The group may have nothing to commit.
            with contextlib.suppress(confluent_kafka.KafkaException):
                consumer.commit(asynchronous=False)

    def _consumer(self, address: str, group: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )

    def _read(self, consumer: confluent_kafka.Consumer, count: int) -> list[Record]:
        records: list[Record] = []
        check = deadline_in(DEADLINE_S)
        while len(records) < count:
            check(f"{len(records)} of {count} records")
            messages = consumer.consume(count - len(records), timeout=0.05)
            records.extend(map(self._record, messages))
        return records

    def _record(self, message: Any) -> Record:
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
        return Record(
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
            message.timestamp()[1],
            message.partition(),
        )


class AioKafka:
    name = "aiokafka"
    refuses = frozenset({"neither key nor value"})

    def produce(
        self, address: str, topic: str, records: Sequence[Record], settings: Settings
    ) -> list[int]:
        return asyncio.run(self._produce(address, topic, records, settings))

    async def _produce(
        self, address: str, topic: str, records: Sequence[Record], settings: Settings
    ) -> list[int]:
        async with (
            asyncio.timeout(DEADLINE_S),
            aiokafka.AIOKafkaProducer(
                bootstrap_servers=address,
                enable_idempotence=settings.idempotent,
                compression_type=None if settings.codec == "none" else settings.codec,
                linger_ms=settings.linger_ms,
                max_request_size=REQUEST_BYTES_MAX,
                **settings.extra,
            ) as producer,
        ):
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    record.timestamp_ms,
                    list(record.headers),
                )
                for record in records
            ]
            return [(await future).offset for future in futures]

    def consume(self, address: str, topic: str, count: int) -> list[Record]:
        async def run() -> list[Record]:
            # Without a group, aiokafka assigns all partitions of the subscribed topics.
            async with (
                asyncio.timeout(DEADLINE_S),
                self._consumer(address, None, topic) as consumer,
            ):
                return await self._read(consumer, count)

        return asyncio.run(run())

    def consume_and_commit(self, address: str, topic: str, group: str, count: int) -> list[Record]:
        async def run() -> list[Record]:
            async with (
                asyncio.timeout(DEADLINE_S),
                self._consumer(address, group, topic) as consumer,
            ):
                records = await self._read(consumer, count)
                await consumer.commit()
                return records

        return asyncio.run(run())

    def offsets_for_time(
        self, address: str, topic: str, partition: int, timestamp_ms: int
    ) -> int | None:
        async def run() -> int | None:
            part = aiokafka.TopicPartition(topic, partition)
            async with asyncio.timeout(DEADLINE_S), self._consumer(address, None) as consumer:
                consumer.assign([part])
                found = (await consumer.offsets_for_times({part: timestamp_ms}))[part]
                return None if found is None else int(found.offset)

        return asyncio.run(run())

    def run_member(self, member: Member) -> None:
        asyncio.run(self._run_member(member))

    async def _run_member(self, member: Member) -> None:
        async with self._consumer(member.address, member.group, member.topic) as consumer:
            while not member.leaving.is_set():
                found = await consumer.getmany(timeout_ms=20)
                for messages in found.values():
                    for message in messages:
                        member.take(self._record(message))
                member.holds({part.partition for part in consumer.assignment()})
            await consumer.commit()

    def _consumer(self, address: str, group: str | None, *topics: str) -> Any:
        ranges = aiokafka.coordinator.assignors.range.RangePartitionAssignor
        return aiokafka.AIOKafkaConsumer(
            *topics,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(ranges,),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
        )

    async def _read(self, consumer: Any, count: int) -> list[Record]:
        return [self._record(await consumer.getone()) for _ in range(count)]

    def _record(self, message: Any) -> Record:
        headers = tuple(message.headers)
        return Record(message.key, message.value, headers, message.timestamp, message.partition)


class KafkaPython:
    name = "kafka-python"
    refuses = frozenset({"neither key nor value", "null header"})

    def produce(
        self, address: str, topic: str, records: Sequence[Record], settings: Settings
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=address,
            enable_idempotence=settings.idempotent,
            compression_type=None if settings.codec == "none" else settings.codec,
            linger_ms=settings.linger_ms,
            max_request_size=REQUEST_BYTES_MAX,
            metrics_enabled=False,
            **settings.extra,
        )
        with _closing(producer):
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(DEADLINE_S)
            return [future.get(DEADLINE_S).offset for future in futures]

    def consume(self, address: str, topic: str, count: int) -> list[Record]:
        with _closing(self._consumer(address, None)) as consumer:
            parts = [
                kafka.TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()
            ]
            consumer.assign(parts)
            consumer.seek_to_beginning(*parts)
            return self._read(consumer, count)

    def consume_and_commit(self, address: str, topic: str, group: str, count: int) -> list[Record]:
        with _closing(self._consumer(address, group)) as consumer:
            consumer.subscribe([topic])
            records = self._read(consumer, count)
            consumer.commit(timeout_ms=DEADLINE_S * 1000)
            return records

    def offsets_for_time(
        self, address: str, topic: str, partition: int, timestamp_ms: int
    ) -> int | None:
        part = kafka.TopicPartition(topic, partition)
        with _closing(self._consumer(address, None)) as consumer:
            found = consumer.offsets_for_times({part: timestamp_ms}, DEADLINE_S * 1000)[part]
        return None if found is None else int(found.offset)

    def run_member(self, member: Member) -> None:
        with _closing(self._consumer(member.address, member.group)) as consumer:
            consumer.subscribe([member.topic])
            while not member.leaving.is_set():
                for messages in consumer.poll(_POLL_MS).values():
                    for message in messages:
                        member.take(self._record(message))
                member.holds({part.partition for part in consumer.assignment()})
            consumer.commit(timeout_ms=DEADLINE_S * 1000)

    def _consumer(self, address: str, group: str | None) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(
                kafka.coordinator.assignors.range.RangePartitionAssignor,
            ),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
            metrics_enabled=False,
        )

    def _read(self, consumer: Any, count: int) -> list[Record]:
        records: list[Record] = []
        check = deadline_in(DEADLINE_S)
        while len(records) < count:
            check(f"{len(records)} of {count} records")
            found = consumer.poll(_POLL_MS, max_records=count - len(records))
            for messages in found.values():
                records.extend(map(self._record, messages))
        return records

    def _record(self, message: Any) -> Record:
        headers = tuple(message.headers)
        return Record(message.key, message.value, headers, message.timestamp, message.partition)


CLIENTS: tuple[Client, ...] = (Confluent(), AioKafka(), KafkaPython())


class Member(threading.Thread):
    """A group member of one library, which reads in a thread until `leave` is called."""

    def __init__(self, client: Client, address: str, group: str, topic: str) -> None:
        super().__init__(name=f"{client.name} member", daemon=True)
        self.client, self.address, self.group, self.topic = client, address, group, topic
        self.leaving = threading.Event()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._partitions: set[int] = set()

    def run(self) -> None:
        try:
            self.client.run_member(self)
        except BaseException as error:  # noqa: BLE001  `leave` raises it
            self.error = error

    def take(self, record: Record) -> None:
        with self._lock:
            self._records.append(record)

    def holds(self, partitions: set[int]) -> None:
        with self._lock:
            self._partitions = partitions

    @property
    def records(self) -> list[Record]:
        with self._lock:
            return list(self._records)

    @property
    def partitions(self) -> set[int]:
        with self._lock:
            return set(self._partitions)

    def leave(self) -> None:
        """Commit, leave the group, and stop the thread."""
        self.leaving.set()
        self.join(DEADLINE_S)
        if self.is_alive():
            raise TimeoutError(f"{self.name} does not end")
        if self.error is not None:
            raise self.error
