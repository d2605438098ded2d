"""Clients that write the same keys again and again to a compacted topic while the broker is killed.
A client knows which of its writes were acknowledged, and which may have been stored.

Each key has one writer, which numbers its writes in a header: see `tests.sim.checkers.latest`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.sim.checkers.latest import (
    Fate,
    Found,
    Write,
    Writes,
    check_latest,
    check_offsets_given_once,
)

from odradek import sync
from odradek_client.errors import OdradekError
from waiting import DEADLINE_S, wait_until

TOPIC = "state"
PARTITIONS = 2
NUMBER = "number"
_KEYS = 30
#: The size of a value: large, so that a few hundred writes are a MiB.
_VALUE_BYTES = 5_000
_IN_FLIGHT_MAX = 200
#: The pause after each write, so that even a slow cleaner keeps up.
_PAUSE_S = 0.03
#: Metadata of each committed offset: nearly as long as a broker accepts, so that the offsets topic
#: also grows fast.
_METADATA = "m" * 4_000
_GROUP_PLACE = TopicPartition("source", 0)


class Writer:
    """Writes in its own thread until a test lets it pause; then the fate of every write is
    known."""

    name: ClassVar[str]

    def __init__(self, address: str, seed: int) -> None:
        self.address = address
        self.random = random.Random(f"{self.name} {seed}")
        self.keys = [f"{self.name}/{number}" for number in range(_KEYS)]
        self.written = {
            key: Writes(f"{TOPIC}-{number % PARTITIONS}") for number, key in enumerate(self.keys)
        }
        self.acknowledged = 0
        self._go_on = threading.Event()
        self._idle = threading.Event()
        self._ended = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Start the thread, or let it continue."""
        self._idle.clear()
        self._go_on.set()
        if not self._thread.is_alive():
            self._thread.start()

    def pause(self) -> None:
        """Let the thread pause. Returns when no write is in flight; raises the thread's
        exception."""
        self._go_on.clear()
        wait_until(self._idle.is_set, f"{self.name} has no write on its way")
        self.look()

    def look(self) -> None:
        """Raise the thread's exception, if there is any."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        self._ended = True
        self._go_on.set()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        try:
            while not self._ended:
                if not self._go_on.is_set():
                    self.settle()
                    self._idle.set()
                    self._go_on.wait()
                    continue
                self.write()
        except BaseException as failure:  # noqa: BLE001  `look` and `pause` raise it
            self._failure = failure
            self._idle.set()

    def write(self) -> None:
        """Write a few more records."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until no record is in flight."""

    def next_write(self) -> tuple[str, Write, bytes | None]:
        key = self.random.choice(self.keys)
        write = self.written[key].add(tombstone=self.random.random() < 0.2)
        size_bytes = self.random.randrange(_VALUE_BYTES // 2, _VALUE_BYTES)
        return key, write, None if write.tombstone else b"." * size_bytes

    def partition(self, key: str) -> int:
        return int(self.written[key].place.rpartition("-")[2])


class IdempotentWriter(Writer):
    """librdkafka's idempotent producer, which retries across a restart."""

    name = "idempotent"

    def __init__(self, address: str, seed: int) -> None:
        super().__init__(address, seed)
        self._errors: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "log_level": 0,
            }
        )

    def write(self) -> None:
        if len(self._producer) < _IN_FLIGHT_MAX:
            for _ in range(5):
                self._send()
        self._producer.poll(0)
        time.sleep(_PAUSE_S)

    def _send(self) -> None:
        key, write, value = self.next_write()

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self._errors.append(str(error))
                return
            write.offset, write.fate = offset, Fate.ACKNOWLEDGED
            self.acknowledged += 1

        self._producer.produce(
            TOPIC,
            value,
            key=key,
            partition=self.partition(key),
            headers=[(NUMBER, b"%d" % write.number)],
            on_delivery=delivered,
        )

    def settle(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0
        assert self._errors == []


class TransactionalWriter(Writer):
    """Our transactional producer; each transaction also commits its number as the offset of a
    group."""

    name = "transactional"

    def __init__(self, address: str, seed: int) -> None:
        super().__init__(address, seed)
        self.group = GroupOffset(address, "copier")
        self._number = 0
        self._producer: sync.Producer | None = None

    def write(self) -> None:
        writes: list[Write] = []
        try:
            producer = self._producer = self._producer or self._started()
            producer.begin_transaction()
            self._number += 1
            deliveries = []
            for _ in range(self.random.randint(1, 10)):
                key, write, value = self.next_write()
                writes.append(write)
                sent = producer.send(
                    TOPIC,
                    value,
                    key=key.encode(),
                    partition=self.partition(key),
                    headers=[(NUMBER, b"%d" % write.number)],
                )
                deliveries.append((write, sent))
            producer.send_offsets_to_transaction(
                {(_GROUP_PLACE.topic, _GROUP_PLACE.partition): self._number}, "copier"
            )
            if self.random.random() < 0.3:
                self._abort(producer, writes)
            else:
                self._commit(producer, writes)
                for write, delivery in deliveries:
                    write.offset = delivery.result().offset
        except OdradekError:
            # The outcome of the transaction is unknown; the next producer with this id ends it.
            self._close()
        time.sleep(_PAUSE_S)

    def _abort(self, producer: sync.Producer, writes: list[Write]) -> None:
        for write in writes:
            write.fate = Fate.ABORTED
        producer.abort_transaction()

    def _commit(self, producer: sync.Producer, writes: list[Write]) -> None:
        self.group.tried = self._number
        producer.commit_transaction()
        self.group.committed = self._number
        for write in writes:
            write.fate = Fate.ACKNOWLEDGED
        self.acknowledged += len(writes)

    def _started(self) -> sync.Producer:
        producer = sync.Producer(
            bootstrap_servers=self.address,
            transactional_id="compacted",
            max_block_ms=int(DEADLINE_S * 1000),
            delivery_timeout_ms=int(DEADLINE_S * 1000),
        )
        producer.start()
        producer.init_transactions()
        return producer

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def end(self) -> None:
        super().end()
        self._close()


class GroupOffset:
    """A group that commits one offset after the other. The broker's offset must be at least
    `committed` and at most `tried`."""

    def __init__(self, address: str, group: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        self.group = group
        self.committed = self.tried = 0

    def commit_next(self) -> None:
        """Commit the next offset. Even if the call fails, the broker may have accepted the
        commit."""
        self.tried += 1
        place = TopicPartition(_GROUP_PLACE.topic, 0, self.tried, _METADATA)
        try:
            self._consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException:
            return
        self.committed = self.tried

    def check(self) -> Iterator[str]:
        """Yield a violation unless the broker's offset is from `committed` to `tried`."""
        (found,) = self._consumer.committed([TopicPartition(_GROUP_PLACE.topic, 0)], DEADLINE_S)
        offset = max(0, found.offset)
        if not self.committed <= offset <= self.tried:
            yield (
                f"group {self.group}: {self.committed} was committed and {self.tried} tried,"
                f" there is {offset}"
            )

    def close(self) -> None:
        self._consumer.close()


class OffsetWriter(Writer):
    """A group that commits one offset after the other."""

    name = "offsets"

    def __init__(self, address: str, seed: int) -> None:
        super().__init__(address, seed)
        self.written = {}
        self.group = GroupOffset(address, "counter")

    def write(self) -> None:
        self.group.commit_next()
        time.sleep(_PAUSE_S)


class CompactedWorld:
    """All writers against one broker."""

    def __init__(self, address: str, seed: int) -> None:
        self.address = address
        self.plain = IdempotentWriter(address, seed)
        self.transactional = TransactionalWriter(address, seed)
        self.offsets = OffsetWriter(address, seed)
        self.writers: tuple[Writer, ...] = (self.plain, self.transactional, self.offsets)

    def write_until(self, condition: Callable[[], bool], what: str) -> None:
        """Start all writers, and wait for the condition. The writers continue afterwards."""
        for writer in self.writers:
            writer.start()

        def look() -> None:
            for writer in self.writers:
                writer.look()

        wait_until(condition, what, meanwhile=look)

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged writes."""
        return self.plain.acknowledged + self.transactional.acknowledged

    def problems(self) -> list[str]:
        """Let all writers pause, and return the violations."""
        for writer in self.writers:
            writer.pause()
        written = {**self.plain.written, **self.transactional.written}
        return [
            *check_latest(written, read_committed(self.address), whole=True),
            *check_offsets_given_once(written),
            *self.transactional.group.check(),
            *self.offsets.group.check(),
        ]

    def close(self) -> None:
        """Stop all writers. If anything was written, the broker must be running."""
        for writer in self.writers:
            writer.end()
        self.transactional.group.close()
        self.offsets.group.close()


def read_committed(address: str) -> dict[str, Found]:
    """(offset, key, number) of every record that librdkafka returns, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    found: dict[str, list[tuple[int, str, int]]] = {
        f"{TOPIC}-{number}": [] for number in range(PARTITIONS)
    }
    ended: set[int] = set()

    def read_on() -> None:
        for message in consumer.consume(5_000, timeout=0.1):
            error = message.error()
            partition, offset, key = message.partition(), message.offset(), message.key()
            assert partition is not None
            if error is None:
                number = dict(message.headers() or [])[NUMBER]
                assert offset is not None and key is not None and isinstance(number, bytes)
                name = key.decode() if isinstance(key, bytes) else key
                found[f"{TOPIC}-{partition}"].append((offset, name, int(number)))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
            else:
                raise KafkaException(error)

    try:
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        wait_until(lambda: len(ended) == PARTITIONS, "all is read", meanwhile=read_on)
    finally:
        consumer.close()
    return dict(found)
