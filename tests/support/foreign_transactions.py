"""Transactions of other projects' clients, unmodified: a `TransactionalClient` for each library."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors

from transactional_clients import (
    DEADLINE_S,
    TransactionalClient,
    TransactionalProducer,
    produce_with_offsets,
)
from waiting import deadline_in

_POLL_MS = 200


# --- librdkafka ---


class FencedByBroker(Exception):
    """Raised for those errors of librdkafka that mean fenced; librdkafka has only one exception
    class."""


_FENCED_CODES = {
    confluent_kafka.KafkaError._FENCED,
    confluent_kafka.KafkaError.PRODUCER_FENCED,
    confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
}


@contextlib.contextmanager
def _fencing_translated() -> Iterator[None]:
    try:
        yield
    except (confluent_kafka.KafkaException, SystemError) as error:
        # If the fatal error occurs inside of a callback, the binding raises a SystemError with the
        # fatal error as its cause.
        told = error.__cause__ if isinstance(error, SystemError) else error
        if (
            isinstance(told, confluent_kafka.KafkaException)
            and told.args[0].code() in _FENCED_CODES
        ):
            raise FencedByBroker(str(told)) from error
        raise


class _ConfluentProducer:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        self.held = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.held.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        with _fencing_translated():
            self.held.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        with _fencing_translated():
            self.held.produce(topic, value, partition=partition, on_delivery=delivered)
            left = self.held.flush(DEADLINE_S)
            if failed:
                raise confluent_kafka.KafkaException(failed[0])
        if left:
            raise TimeoutError(f"{left} not delivered")

    def commit(self) -> None:
        with _fencing_translated():
            self.held.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        with _fencing_translated():
            self.held.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        self.held.purge()


class Confluent:
    """Transactions of librdkafka."""

    name = "confluent-kafka"
    fenced: tuple[type[BaseException], ...] = (FencedByBroker,)

    def producer(
        self, address: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        return _ConfluentProducer(address, transactional_id, timeout_ms)

    def read(self, address: str, topic: str, last: bytes, *, committed: bool = True) -> list[bytes]:
        consumer = self._consumer(address, "reader", committed)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            values: list[bytes] = []
            check = deadline_in(DEADLINE_S)
            while last not in values:
                check(f"{last!r} behind {values!r}")
                values += [self._value(one) for one in consumer.consume(100, _POLL_MS / 1000)]
            return values
        finally:
            consumer.close()

    def transform(
        self, address: str, source: str, target: str, group: str, count: int, *, commit: bool
    ) -> list[bytes]:
        consumer = self._consumer(address, group, True)
        try:
            consumer.subscribe([source])
            values: list[bytes] = []
            check = deadline_in(DEADLINE_S)
            while len(values) < count:
                check(f"{len(values)} of {count}")
                found = consumer.consume(count - len(values), _POLL_MS / 1000)
                values += map(self._value, found)

            def send_offsets(producer: confluent_kafka.Producer) -> None:
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(
                    [one for one in positions if one.offset >= 0],
                    consumer.consumer_group_metadata(),
                    DEADLINE_S,
                )

            produce_with_offsets(self, address, target, group, values, send_offsets, commit=commit)
            return values
        finally:
            consumer.close()

    def _consumer(self, address: str, group: str, committed: bool) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )

    def _value(self, message: Any) -> bytes:
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
        return bytes(message.value())


# --- aiokafka ---


class _AioKafkaProducer:
    """An aiokafka producer on an event loop that runs only during a call."""

    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=address,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        self.held = self.run(start())

    def run(self, coroutine: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE_S):
                return await coroutine

        return self._runner.run(bounded())

    def begin(self) -> None:
        self.run(self.held.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.run(self.held.send_and_wait(topic, value, partition=partition))

    def commit(self) -> None:
        self.run(self.held.commit_transaction())

    def abort(self) -> None:
        self.run(self.held.abort_transaction())

    def close(self) -> None:
        with contextlib.suppress(aiokafka.errors.KafkaError, TimeoutError):
            self.run(self.held.stop())
        self._runner.close()


class AioKafka:
    name = "aiokafka"
    fenced: tuple[type[BaseException], ...] = (
        aiokafka.errors.ProducerFenced,
        aiokafka.errors.InvalidProducerEpoch,
    )

    def producer(
        self, address: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        return _AioKafkaProducer(address, transactional_id, timeout_ms)

    def read(self, address: str, topic: str, last: bytes, *, committed: bool = True) -> list[bytes]:
        async def run() -> list[bytes]:
            consumer = self._consumer(address, None, committed)
            async with asyncio.timeout(DEADLINE_S), consumer:
                consumer.assign([aiokafka.TopicPartition(topic, 0)])
                values: list[bytes] = []
                while last not in values:
                    values.append((await consumer.getone()).value)
                return values

        return asyncio.run(run())

    def transform(
        self, address: str, source: str, target: str, group: str, count: int, *, commit: bool
    ) -> list[bytes]:
        async def run() -> list[bytes]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=address, transactional_id=f"transform-{group}"
            )
            consumer = self._consumer(address, group, True, source)
            async with asyncio.timeout(DEADLINE_S), producer, consumer:
                values = [(await consumer.getone()).value for _ in range(count)]
                await producer.begin_transaction()
                for value in values:
                    await producer.send_and_wait(target, value, partition=0)
                offsets = {part: await consumer.position(part) for part in consumer.assignment()}
                await producer.send_offsets_to_transaction(offsets, group)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
                return values

        return asyncio.run(run())

    def _consumer(self, address: str, group: str | None, committed: bool, *topics: str) -> Any:
        return aiokafka.AIOKafkaConsumer(
            *topics,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if committed else "read_uncommitted",
            fetch_max_wait_ms=100,
        )


# --- kafka-python ---


class _KafkaPythonProducer:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        self.held = kafka.KafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            metrics_enabled=False,
        )
        self.held.init_transactions()

    def begin(self) -> None:
        self.held.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.held.send(topic, value=value, partition=partition).get(DEADLINE_S)

    def commit(self) -> None:
        self.held.commit_transaction()

    def abort(self) -> None:
        self.held.abort_transaction()

    def close(self) -> None:
        self.held.close(timeout=DEADLINE_S)


class KafkaPython:
    name = "kafka-python"
    fenced: tuple[type[BaseException], ...] = (
        kafka.errors.ProducerFencedError,
        kafka.errors.InvalidProducerEpochError,
    )

    def producer(
        self, address: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        return _KafkaPythonProducer(address, transactional_id, timeout_ms)

    def read(self, address: str, topic: str, last: bytes, *, committed: bool = True) -> list[bytes]:
        consumer = self._consumer(address, None, committed)
        try:
            consumer.assign([kafka.TopicPartition(topic, 0)])
            values: list[bytes] = []
            check = deadline_in(DEADLINE_S)
            while last not in values:
                check(f"{last!r} behind {values!r}")
                for found in consumer.poll(_POLL_MS).values():
                    values += [one.value for one in found]
            return values
        finally:
            consumer.close()

    def transform(
        self, address: str, source: str, target: str, group: str, count: int, *, commit: bool
    ) -> list[bytes]:
        consumer = self._consumer(address, group, True)
        try:
            consumer.subscribe([source])
            values: list[bytes] = []
            check = deadline_in(DEADLINE_S)
            while len(values) < count:
                check(f"{len(values)} of {count}")
                # If a shorter poll ends during a rebalance, kafka-python loses the assignment.
                for found in consumer.poll(1000, max_records=count - len(values)).values():
                    values += [one.value for one in found]

            def send_offsets(producer: kafka.KafkaProducer) -> None:
                offsets = {
                    part: kafka.OffsetAndMetadata(consumer.position(part), "", -1)
                    for part in consumer.assignment()
                }
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

            produce_with_offsets(self, address, target, group, values, send_offsets, commit=commit)
            return values
        finally:
            consumer.close()

    def _consumer(self, address: str, group: str | None, committed: bool) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if committed else "read_uncommitted",
            fetch_max_wait_ms=100,
            metrics_enabled=False,
        )


CLIENTS: tuple[TransactionalClient, ...] = (Confluent(), AioKafka(), KafkaPython())

# --- librdkafka as second client, for tests of any library ---


def end_of_committed(address: str, topic: str) -> int:
    """The last stable offset of partition 0, by ListOffsets."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "watcher", "isolation.level": "read_committed"}
    )
    try:
        part = confluent_kafka.TopicPartition(topic, 0)
        return int(consumer.get_watermark_offsets(part, timeout=DEADLINE_S)[1])
    finally:
        consumer.close()


def committed_position(address: str, group: str, topic: str) -> int | None:
    """Read a group's committed offset for partition 0.

    Retries while a transaction with an offset of this partition is undecided (O-09).
    """
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        part = confluent_kafka.TopicPartition(topic, 0)
        (found,) = consumer.committed([part], timeout=DEADLINE_S)
    finally:
        consumer.close()
    return None if found.offset == confluent_kafka.OFFSET_INVALID else int(found.offset)
