"""Programs that continue on another cluster: a producer with a consumer group, and a loop of
consume, transform and produce.

Every record must be read once, and every result must be there once.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

import confluent_kafka

PARTITIONS = 3
DEADLINE_S = 120.0
_TIMEOUT_S = 60.0
_BATCH = 10
#: The time in s after the last expected record, in which a duplicate would arrive.
_SILENCE_S = 3.0


@contextlib.contextmanager
def _consumer(address: str, group: str) -> Iterator[confluent_kafka.Consumer]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _polled(consumer: confluent_kafka.Consumer, most: int) -> list[confluent_kafka.Message]:
    messages = consumer.consume(most, timeout=0.5)
    for message in messages:
        error = message.error()
        if error is not None and not error.retriable():
            raise confluent_kafka.KafkaException(error)
    return [message for message in messages if message.error() is None]


def numbers_in(address: str, topic: str, wanted: int) -> Counter[int]:
    """Read a topic until at least `wanted` committed numbers have arrived. Returns how often each
    has arrived."""
    with _consumer(address, f"reader-{time.monotonic_ns()}") as consumer:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        )
        found: Counter[int] = Counter()
        end_s = time.monotonic() + DEADLINE_S
        while found.total() < wanted and time.monotonic() < end_s:
            found.update(int(message.value() or b"") for message in _polled(consumer, 500))
        end_s = time.monotonic() + _SILENCE_S
        while time.monotonic() < end_s:
            found.update(int(message.value() or b"") for message in _polled(consumer, 500))
        return found


class Orders:
    """The topic `orders` with numbers, and the group `billing`, which may stop reading before the
    last number."""

    topic, group = "orders", "billing"

    def __init__(self) -> None:
        self.sent = 0
        self.billed: Counter[int] = Counter()

    def produce(self, address: str, count: int) -> None:
        """Send the next `count` numbers with an idempotent producer."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0}
        )
        for number in range(self.sent, self.sent + count):
            producer.produce(self.topic, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(_TIMEOUT_S) == 0
        self.sent += count

    def bill(self, address: str, left: int = 0) -> None:
        """Read in the group until only `left` numbers are unread, and commit."""
        end_s = time.monotonic() + DEADLINE_S
        with _consumer(address, self.group) as consumer:
            consumer.subscribe([self.topic])
            while (more := self.sent - left - self.billed.total()) > 0:
                assert time.monotonic() < end_s, f"{more} orders were not billed"
                messages = _polled(consumer, min(more, _BATCH))
                if messages:
                    self.billed.update(int(message.value() or b"") for message in messages)
                    consumer.commit(asynchronous=False)
            silence_s = time.monotonic() + (0.0 if left else _SILENCE_S)
            while time.monotonic() < silence_s:
                self.billed.update(int(each.value() or b"") for each in _polled(consumer, _BATCH))

    def check(self) -> None:
        """Check that each number was read once."""
        assert self.billed == Counter(range(self.sent))


class Invoices:
    """Consume, transform and produce: each number of `orders` is written to `invoices`.

    A transaction has the numbers and the positions of the group `invoicing`; every third
    transaction is aborted.
    """

    topic, group = "invoices", "invoicing"

    def __init__(self) -> None:
        self.done = 0

    def process(self, address: str, until: int) -> None:
        """Process numbers until `until` of them are done."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "transactional.id": self.group, "log_level": 0}
        )
        producer.init_transactions(_TIMEOUT_S)
        end_s = time.monotonic() + DEADLINE_S
        rounds = 0
        with _consumer(address, self.group) as consumer:
            consumer.subscribe([Orders.topic])
            while self.done < until:
                assert time.monotonic() < end_s, f"{self.done} of {until} invoices"
                messages = _polled(consumer, min(_BATCH, until - self.done))
                if not messages:
                    continue
                rounds += 1
                producer.begin_transaction()
                for message in messages:
                    producer.produce(self.topic, message.value(), partition=rounds % PARTITIONS)
                held = consumer.assignment()
                producer.send_offsets_to_transaction(
                    [each for each in consumer.position(held) if each.offset >= 0],
                    consumer.consumer_group_metadata(),
                    _TIMEOUT_S,
                )
                if rounds % 3 == 0:
                    producer.flush(_TIMEOUT_S)
                    producer.abort_transaction(_TIMEOUT_S)
                    self._go_back(consumer)
                    continue
                producer.commit_transaction(_TIMEOUT_S)
                self.done += len(messages)

    @staticmethod
    def _go_back(consumer: confluent_kafka.Consumer) -> None:
        for each in consumer.committed(consumer.assignment(), timeout=_TIMEOUT_S):
            offset = each.offset if each.offset >= 0 else confluent_kafka.OFFSET_BEGINNING
            consumer.seek(confluent_kafka.TopicPartition(each.topic, each.partition, offset))

    def check(self, address: str) -> None:
        """Check that each number is among the invoices once."""
        assert numbers_in(address, self.topic, self.done) == Counter(range(self.done))
