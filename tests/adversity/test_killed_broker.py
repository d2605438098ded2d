"""Kill -9 at any moment: after the restart acknowledged records are at their offsets, once each.

Processes are real, with another project's client (librdkafka). A seed chooses the kills. Killing a
process does not affect the page cache, so no value of `log.durability` loses acknowledged records.
The simulator tests the loss of unsynced data.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import budget
from broker_process import BrokerProcess
from odradek_protocol.records.batch import read_header_alone
from odradek_protocol.records.layout import HEADER_BYTES, PACKED_HEADER
from waiting import wait_until

DEADLINE_S = 40
PARTITIONS = 4
IN_FLIGHT_RECORDS = 3000
SETTINGS = [
    # Small segments, so that rolls, snapshots and recoveries of several segments occur.
    "log.segment.bytes=300000",
    "log.index.interval.bytes=4096",
    "auto.create.topics.enable=false",
]


class Writer:
    """Writes numbered records to all partitions of a topic, and remembers the acknowledged
    records."""

    def __init__(self, address: str, topic: str, idempotent: bool) -> None:
        self.topic = topic
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.confirmations = 0
        self.errors: list[str] = []
        self._padding = b"." * 180
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "message.timeout.ms": DEADLINE_S * 1000,
                "log_level": 0,
            }
        )

    def pump(self) -> None:
        """Send some more records unless many are in flight, and process acknowledgements."""
        if len(self._producer) < IN_FLIGHT_RECORDS:
            for _ in range(100):
                for partition, sent in enumerate(self.sent):
                    value = b"%d:%d:" % (partition, len(sent)) + self._padding
                    self._producer.produce(
                        self.topic, value, partition=partition, on_delivery=self._delivered
                    )
                    sent.append(value)
        self._producer.poll(0)

    def send_one(self) -> None:
        self._producer.produce(self.topic, b"one", partition=0, on_delivery=self._delivered)
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.errors == []

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None
        self.confirmations += 1
        self.acknowledged[partition, offset] = value

    def finish(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.errors == []


def read_all(address: str, topic: str) -> list[list[tuple[int, bytes]]]:
    """The (offset, value) pairs of all records, for each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"read {topic} up to {ended} only"
            for message in consumer.consume(5000, timeout=0.2):
                partition, offset, value = message.partition(), message.offset(), message.value()
                error = message.error()
                assert partition is not None
                if error is None:
                    assert offset is not None and value is not None
                    found[partition].append((offset, value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
                else:
                    pytest.fail(f"reading {topic}: {error}")
    finally:
        consumer.close()
    return found


# -- what must hold -------------------------------------------------------------------------------


def lost_or_moved(
    acknowledged: Mapping[tuple[int, int], bytes],
    found: Sequence[Sequence[tuple[int, bytes]]],
) -> list[str]:
    """Acknowledged records that are not at their offset."""
    there = [dict(records) for records in found]
    return [
        f"{value[:20]!r} was acknowledged at {partition}@{offset}, there is"
        f" {there[partition].get(offset, b'nothing')[:20]!r}"
        for (partition, offset), value in acknowledged.items()
        if there[partition].get(offset) != value
    ]


def not_once_in_order(
    sent: Sequence[Sequence[bytes]], found: Sequence[Sequence[tuple[int, bytes]]]
) -> list[str]:
    """The problems of partitions that do not have each sent record once, in the order of
    sending."""
    problems = []
    for partition, (expected, records) in enumerate(zip(sent, found, strict=True)):
        values = [value for _, value in records]
        if [offset for offset, _ in records] != list(range(len(records))):
            problems.append(f"partition {partition}: offsets have gaps or repeat")
        if values == list(expected):
            continue
        counts = Counter(values)
        doubled = [value[:20] for value, count in counts.items() if count > 1]
        missing = [value[:20] for value in expected if value not in counts]
        problems.append(
            f"partition {partition}: {len(expected)} sent, {len(values)} found;"
            f" doubled {doubled[:5]}, missing {missing[:5]}"
        )
    return problems


def test_the_checkers_find_lost_moved_and_duplicate_records() -> None:
    sent = [[b"a", b"b", b"c"]]
    good = [[(0, b"a"), (1, b"b"), (2, b"c")]]
    acknowledged = {(0, 0): b"a", (0, 2): b"c"}
    assert not lost_or_moved(acknowledged, good)
    assert not not_once_in_order(sent, good)
    assert lost_or_moved(acknowledged, [good[0][:2]])
    assert lost_or_moved(acknowledged, [[(0, b"a"), (1, b"c"), (2, b"b")]])
    for bad in (
        good[0][:2],
        [(0, b"a"), (1, b"b"), (3, b"c")],
        [(0, b"a"), (1, b"b"), (2, b"b"), (3, b"c")],
        [(0, b"b"), (1, b"a"), (2, b"c")],
        [(0, b"a"), (1, b"a"), (2, b"c")],
    ):
        assert not_once_in_order(sent, [bad])


# -- the loop -------------------------------------------------------------------------------------


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Callable[[str], BrokerProcess]]:
    made: list[BrokerProcess] = []

    def make(durability: str) -> BrokerProcess:
        broker = BrokerProcess(tmp_path, [*SETTINGS, f"log.durability={durability}"])
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.clean_up()


def create_topics(address: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    wanted = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1) for topic in topics]
    for future in admin.create_topics(wanted, operation_timeout=10).values():
        future.result(DEADLINE_S)


def kill_loop(broker: BrokerProcess, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    broker.start()
    create_topics(broker.address, "once", "at-least-once")
    once = Writer(broker.address, "once", idempotent=True)
    plain = Writer(broker.address, "at-least-once", idempotent=False)

    def pump() -> None:
        once.pump()
        plain.pump()

    for _ in range(kills):
        enough = once.confirmations + rng.choice([1, 300, 2000])

        def arrived(enough: int = enough) -> bool:
            return once.confirmations >= enough

        wait_until(arrived, "records arrive", meanwhile=pump)
        end_s = time.monotonic() + rng.uniform(0, 0.03)
        while time.monotonic() < end_s:
            pump()
        broker.kill()
        broker.start(meanwhile=pump)
    once.finish()
    plain.finish()
    found = read_all(broker.address, "once")
    assert not lost_or_moved(once.acknowledged, found)
    assert not not_once_in_order(once.sent, found)
    assert not lost_or_moved(plain.acknowledged, read_all(broker.address, "at-least-once"))
    broker.stop()
    broker.start()
    assert read_all(broker.address, "once") == found
    broker.stop()


@pytest.mark.budgeted
@pytest.mark.parametrize("durability", budget.of_which(["fsync", "page-cache"], ["fsync"]))
def test_d5_a_killed_broker_keeps_acknowledged_records(
    brokers: Callable[[str], BrokerProcess], durability: str
) -> None:
    kill_loop(brokers(durability), seed=1, kills=3 if budget.is_short() else 5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
@pytest.mark.parametrize("seed", range(2, 8))
def test_d5_a_broker_killed_many_times_keeps_acknowledged_records(
    brokers: Callable[[str], BrokerProcess], durability: str, seed: int
) -> None:
    kill_loop(brokers(durability), seed=seed, kills=30)


@pytest.mark.full
def test_p29_no_producer_id_is_assigned_twice_across_kills(
    brokers: Callable[[str], BrokerProcess],
) -> None:
    broker = brokers("fsync")
    broker.start()
    create_topics(broker.address, "ids")
    writers = 0
    for _ in range(3):
        for _ in range(2):
            Writer(broker.address, "ids", idempotent=True).send_one()
            writers += 1
        broker.kill()
        broker.start()
    broker.stop()
    ids = producer_ids(broker.data_dir / "ids-0" / "00000000000000000000.log")
    assert len(ids) == writers
    assert len(set(ids)) == writers


def producer_ids(log_file: Path) -> list[int]:
    """The producer id of every batch in a segment."""
    content = log_file.read_bytes()
    assert PACKED_HEADER.size == HEADER_BYTES
    ids, position = [], 0
    while position < len(content):
        header = read_header_alone(content, position)
        ids.append(header.producer_id)
        position += header.size_bytes
    return ids
