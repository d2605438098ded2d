"""librdkafka's share consumers with our broker, and with `--kafka` with Apache Kafka (KIP-932)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType

from broker_process import BrokerProcess
from foreign_topics import configure_group, create_topic, send_records
from kafka_cluster import KafkaCluster
from waiting import DEADLINE_S, wait_until

#: The settings have Kafka's names, so that Apache Kafka also accepts them.
SETTINGS = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.delivery.count.limit": "3",
    "group.share.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
}
_NUMBERS = count(1)

#: A program that acquires records, prints one line for each, and acknowledges none.
_HOLDER = """
import sys, confluent_kafka
address, group, topic = sys.argv[1:]
consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": address, "group.id": group,
                                          "share.acknowledgement.mode": "explicit"})
consumer.subscribe([topic])
while True:
    for message in consumer.poll(0.2):
        print(message.offset(), flush=True)
        held = True
    if "held" in globals():
        sys.stdin.read()
"""


class Server:
    """A broker: its address, and a function that kills the broker and starts it again (None if that
    is not possible)."""

    def __init__(self, address: str, restart: Callable[[], None] | None = None) -> None:
        self.address, self.restart = address, restart

    def group(self) -> str:
        """A new group that reads from the beginning."""
        name = f"share-{next(_NUMBERS)}-{time.monotonic_ns()}"
        configure_group(self.address, name, {"share.auto.offset.reset": "earliest"})
        return name

    def topic(self, records: int, partitions: int = 1) -> str:
        """A new topic with `count` records in each partition; all values are different."""
        name = f"shared-{next(_NUMBERS)}-{time.monotonic_ns()}"
        create_topic(self.address, name, partitions)
        self.send(name, [b"%d" % number for number in range(records)], partitions)
        return name

    def send(self, topic: str, values: Sequence[bytes], partitions: int = 1) -> None:
        rows: list[tuple[Any, ...]] = [
            (partition, None, b"%d-%s" % (partition, value), 0, [])
            for value in values
            for partition in range(partitions)
        ]
        send_records(self.address, topic, rows)


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.kafka)])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("share")
    if request.param == "kafka":
        with KafkaCluster(folder, 1, SETTINGS) as cluster:
            yield Server(cluster.bootstrap)
        return
    ours = ("log.durability=fsync", "log.retention.ms=-1")
    broker = BrokerProcess(folder, [*(f"{k}={v}" for k, v in SETTINGS.items()), *ours])
    broker.start()

    def restart() -> None:
        broker.kill()
        broker.start()

    yield Server(broker.address, restart)
    broker.stop()


class Delivery(NamedTuple):
    """A record with its delivery count."""

    partition: int
    offset: int
    times: int


Decide = Callable[[Delivery], AcknowledgeType]


class Member:
    """A share consumer that acknowledges explicitly; a thread polls it.

    `decide` returns the acknowledgement for a delivery. `seen`: every delivery. `confirmed`:
    (partition, offset) of the records whose acceptance or rejection the broker has confirmed.
    """

    def __init__(
        self,
        address: str,
        group: str,
        topic: str,
        decide: Decide,
    ) -> None:
        self.seen: list[Delivery] = []
        self.values: Counter[bytes] = Counter()
        self.confirmed: set[tuple[int, int]] = set()
        self._ending: set[tuple[int, int]] = set()
        self._decide = decide
        self._stop = threading.Event()
        self.consumer = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        self.consumer.set_acknowledgement_commit_callback(self._answered)
        self.consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _answered(
        self, offsets: dict[confluent_kafka.TopicPartition, set[int]], error: object
    ) -> None:
        for where, these in offsets.items():
            places = {(where.partition, offset) for offset in these}
            if error is None:
                self.confirmed |= places & self._ending

    def _poll(self) -> None:
        while not self._stop.is_set():
            for message in self.consumer.poll(0.1):
                if message.error() is not None:
                    continue
                place = (message.partition() or 0, message.offset() or 0)
                delivery = Delivery(*place, message.delivery_count() or 0)
                self.seen.append(delivery)
                self.values[message.value() or b""] += 1
                decision = self._decide(delivery)
                if decision is not AcknowledgeType.RELEASE:
                    self._ending.add(place)
                self.consumer.acknowledge(message, decision)
            self.consumer.commit_async()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        self.consumer.close()


def accept(_: Delivery) -> AcknowledgeType:
    return AcknowledgeType.ACCEPT


@pytest.mark.full
def test_members_share_the_records_of_a_partition(server: Server) -> None:
    """Each record is delivered to one member, and the records of one partition to several
    members."""
    topic, group = server.topic(1_500, partitions=2), server.group()
    members = [Member(server.address, group, topic, accept) for _ in range(3)]
    ended: set[tuple[int, int]] = set()
    wait_until(lambda: len(set().union(*(m.confirmed for m in members))) == 3_000, "all have ended")
    for member in members:
        member.close()
        assert not ended & member.confirmed
        ended |= member.confirmed
    assert sum((member.values for member in members), Counter()).most_common(1)[0][1] == 1
    assert {count for member in members for _, _, count in member.seen} == {1}


def test_released_records_are_delivered_again_and_rejected_ones_are_not(server: Server) -> None:
    topic, group = server.topic(30), server.group()

    def decide(delivery: Delivery) -> AcknowledgeType:
        if delivery.offset % 10 == 3 and delivery.times == 1:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.REJECT if delivery.offset % 10 == 5 else AcknowledgeType.ACCEPT

    member = Member(server.address, group, topic, decide)
    wait_until(lambda: len(member.confirmed) == 30, "all have ended")
    time.sleep(0.5)
    member.close()
    counts = Counter(offset for _, offset, _ in member.seen)
    assert counts == {offset: 2 if offset % 10 == 3 else 1 for offset in range(30)}
    assert {(o, n) for _, o, n in member.seen if o % 10 == 3} == {
        (offset, count) for offset in (3, 13, 23) for count in (1, 2)
    }


@pytest.mark.full
def test_a_record_is_delivered_no_more_often_than_its_limit(server: Server) -> None:
    """A record that every consumer releases is archived, and the records after it are still
    delivered."""
    topic, group = server.topic(10), server.group()

    def decide(delivery: Delivery) -> AcknowledgeType:
        return AcknowledgeType.RELEASE if delivery.offset == 4 else AcknowledgeType.ACCEPT

    member = Member(server.address, group, topic, decide)
    wait_until(lambda: len(member.confirmed) == 9, "the others have ended")
    wait_until(lambda: sum(o == 4 for _, o, _ in member.seen) == 3, "the last delivery")
    server.send(topic, [b"later"])
    wait_until(lambda: (0, 10) in member.confirmed, "the record behind")
    time.sleep(0.5)
    member.close()
    assert [n for _, offset, n in member.seen if offset == 4] == [1, 2, 3]


def _holder(server: Server, group: str, topic: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _HOLDER, server.address, group, topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_the_records_of_a_killed_member_go_to_another(server: Server) -> None:
    topic, group = server.topic(5), server.group()
    holder = _holder(server, group, topic)
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "0"
    holder.send_signal(signal.SIGKILL)
    holder.wait(DEADLINE_S)
    member = Member(server.address, group, topic, accept)
    wait_until(lambda: len(member.confirmed) == 5, "all have ended")
    member.close()


@pytest.mark.full
def test_records_of_an_expired_lock_go_to_another_member(server: Server) -> None:
    """The member stays alive and sends heartbeats, but acknowledges nothing."""
    topic, group = server.topic(5), server.group()
    holder = _holder(server, group, topic)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "0"
        member = Member(server.address, group, topic, accept)
        wait_until(lambda: len(member.confirmed) == 5, "all have ended")
        member.close()
        assert {n for _, _, n in member.seen} == {2}
    finally:
        holder.kill()
        holder.wait(DEADLINE_S)


def _survives_kills(server: Server, restart: Callable[[], None], kills: int, members: int) -> None:
    """Kill the broker again and again while members work: no record is lost, and no acknowledged
    record is delivered again."""
    topic, group = server.topic(200), server.group()
    working = [Member(server.address, group, topic, accept) for _ in range(members)]

    def ended() -> set[tuple[int, int]]:
        return set().union(*(member.confirmed for member in working))

    sent = 200
    for number in range(kills):
        before = len(ended())
        wait_until(lambda before=before: len(ended()) > before, "some have ended")  # type: ignore[misc]
        known = ended()
        begins = [len(member.seen) for member in working]
        restart()
        server.send(topic, [b"%d-%d" % (number, index) for index in range(100)])
        sent += 100
        for member, begin in zip(working, begins, strict=True):
            again = {(partition, offset) for partition, offset, _ in member.seen[begin:]} & known
            assert not again, f"delivered after their acknowledgement: {sorted(again)[:5]}"
    wait_until(lambda: len(ended()) == sent, "all have ended")
    for member in working:
        member.close()


def test_a_killed_broker_loses_no_acknowledgement(server: Server) -> None:
    if server.restart is None:
        pytest.skip("this broker is not restarted here")
    _survives_kills(server, server.restart, kills=3, members=2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_kills_of_the_broker_lose_no_record(server: Server) -> None:
    if server.restart is None:
        pytest.skip("this broker is not restarted here")
    _survives_kills(server, server.restart, kills=100, members=8)
