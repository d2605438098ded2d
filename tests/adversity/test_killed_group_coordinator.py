"""Kill -9 at any moment: the committed offsets of groups survive (D5, O-03).

Processes are real, with another project's client (librdkafka): simple commits of numbered positions
to several groups, and a consumer that commits as a member. Killing a process does not affect the
page cache, so no value of `log.durability` loses an acknowledged commit. Power cuts are tested in
`tests/broker/coordinator/groups/test_groups_crash.py`. `-m slow` runs the long form.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import budget
from broker_process import BrokerProcess

DEADLINE_S = 40.0
PARTITIONS = 3
GROUPS = ("one", "two", "three")
#: Errors of a commit while the broker is down; the commit is retried.
_RETRIED = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


def _consumer(address: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
            **settings,
        }
    )


class Committer:
    """Commits 1, 2, 3 ... for one group without being a member, and remembers the last acknowledged
    number."""

    def __init__(self, address: str, group: str) -> None:
        self._consumer = _consumer(address, group)
        self.group = group
        self.sent = 0
        self.acknowledged = 0

    def commit(self) -> None:
        """Commit the next number for all partitions. After an error, the broker may or may not have
        committed the number."""
        self.sent += 1
        offsets = [TopicPartition("topic", number, self.sent) for number in range(PARTITIONS)]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            assert problem.args[0].code() in _RETRIED, problem
            return
        assert answers is not None
        assert all(answer.error is None for answer in answers)
        self.acknowledged = self.sent

    def check(self) -> None:
        """Check that all partitions have the same committed number, and that it is not below the
        last acknowledged number."""
        asked = [TopicPartition("topic", number) for number in range(PARTITIONS)]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                found = {part.offset for part in self._consumer.committed(asked, timeout=5)}
                break
            except KafkaException as problem:
                assert problem.args[0].code() in _RETRIED, problem
                assert time.monotonic() < deadline
        assert len(found) == 1, f"{self.group}: a commit was taken by halves: {found}"
        (offset,) = found
        assert max(offset, 0) >= self.acknowledged
        assert offset <= self.sent

    def close(self) -> None:
        self._consumer.close()


def _kill_loop(folder: Path, durability: str, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    broker = BrokerProcess(
        folder,
        [
            f"log.durability={durability}",
            "group.initial.rebalance.delay.ms=0",
            # Small segments, so that rolls and recoveries of several segments occur.
            "offsets.topic.segment.bytes=20000",
            "offsets.topic.num.partitions=2",
        ],
    )
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        admin.create_topics([NewTopic("topic", PARTITIONS, 1)])["topic"].result(DEADLINE_S)
        committers = [Committer(broker.address, group) for group in GROUPS]
        for _ in range(kills):
            enough = sum(each.acknowledged for each in committers) + rng.choice([1, 20, 60])
            deadline = time.monotonic() + DEADLINE_S
            while sum(each.acknowledged for each in committers) < enough:
                assert time.monotonic() < deadline, "commits are not taken"
                rng.choice(committers).commit()
            broker.kill()
            broker.start()
            for each in committers:
                each.check()
        for each in committers:
            each.close()
    finally:
        broker.stop()


@pytest.mark.parametrize("durability", budget.of_which(["fsync", "page-cache"], ["page-cache"]))
def test_d5_o03_a_killed_broker_keeps_acknowledged_offsets(tmp_path: Path, durability: str) -> None:
    _kill_loop(tmp_path, durability, seed=1, kills=3)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
@pytest.mark.parametrize("seed", [2, 3])
def test_d5_o03_a_broker_killed_many_times_keeps_acknowledged_offsets(
    tmp_path: Path, durability: str, seed: int
) -> None:
    _kill_loop(tmp_path, durability, seed=seed, kills=25)


@pytest.mark.full
def test_g90_a_member_keeps_its_generation_when_the_broker_restarts(tmp_path: Path) -> None:
    """A consumer keeps its member id and generation, without a rebalance, when the coordinator is
    killed."""
    broker = BrokerProcess(tmp_path, ["group.initial.rebalance.delay.ms=0"])
    broker.start()
    assigned: list[int] = []
    try:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        admin.create_topics([NewTopic("topic", PARTITIONS, 1)])["topic"].result(DEADLINE_S)
        consumer = _consumer(
            broker.address,
            "group",
            **{"session.timeout.ms": 20_000, "heartbeat.interval.ms": 100},
        )
        consumer.subscribe(["topic"], on_assign=lambda _, held: assigned.append(len(held)))
        deadline = time.monotonic() + DEADLINE_S
        while not assigned:
            assert time.monotonic() < deadline
            consumer.poll(0.05)
        for round_ in range(1, 3):
            broker.kill()
            broker.start()
            offsets = [TopicPartition("topic", 0, round_)]
            while True:
                consumer.poll(0.05)
                assert time.monotonic() < deadline
                try:
                    consumer.commit(offsets=offsets, asynchronous=False)
                    break
                except KafkaException as problem:
                    assert problem.args[0].code() in _RETRIED, problem
            assert assigned == [PARTITIONS]
        consumer.close()
    finally:
        broker.stop()
