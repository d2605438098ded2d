"""Consume, transform, produce in transactions, while workers and the broker are killed at random.

What is asked of it: the input equals the committed output, each record once, in order per partition.
Once with librdkafka (transactions v1), once with our own client (v2). ODRADEK_LONG=1 runs the long
form: 200,000 records, two minutes of killing.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

import eos_worker
from running_broker import BrokerProcess, wait_until

LONG = os.environ.get("ODRADEK_LONG") == "1"
PARTITIONS = 4
RECORDS_EACH = 50_000 if LONG else 5_000
KILLING_S = 120.0 if LONG else 10.0
#: How long everything may take after the last kill.
REST_S = 120.0
#: Worker to its partitions.
SHARES = {"worker-0": [0, 1], "worker-1": [2], "worker-2": [3]}
PAUSES_S = (0.1, 0.8)
BROKER_ONE_IN = 5


class MortalBroker(BrokerProcess):
    """It may be killed, and started again on its port."""

    def kill_and_restart(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        assert self._process.wait(20) == -signal.SIGKILL
        self._command = [self.address if word.endswith(":0") else word for word in self._command]
        self.start()


class Worker:
    """One of the workers, alive whenever it has work left."""

    def __init__(self, library: str, address: str, name: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "eos_worker", library, address, name]
        self._command += [str(RECORDS_EACH), *map(str, SHARES[name])]
        self._output = folder / f"{name}.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.done = False

    def look(self) -> None:
        """Start it if it is not there; whatever it died of is to be survived."""
        if self.done:
            return
        if self._process is not None:
            code = self._process.poll()
            self.done = code == 0
            if code is None or self.done:
                return
        self.starts += 1
        support = str(Path(eos_worker.__file__).parent)
        path = os.pathsep.join([support, os.environ.get("PYTHONPATH", "")])
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": path},
            )

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(20)

    @property
    def last_words(self) -> str:
        return self._output.read_text()[-2000:] if self._output.exists() else ""


class Feeder:
    """Writes the input evenly over the time of the killing."""

    def __init__(self, address: str) -> None:
        self._begun = time.monotonic()
        self._sent = 0
        self.errors: list[str] = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def feed(self) -> None:
        """What is due."""
        share = min(1.0, (time.monotonic() - self._begun) / KILLING_S)
        while self._sent < RECORDS_EACH * share:
            for partition in range(PARTITIONS):
                self._producer.produce(
                    "source", b"%d" % self._sent, b"%d" % partition, partition, self._delivered
                )
            self._sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        self.feed()
        assert self._producer.flush(60) == 0
        assert self._sent == RECORDS_EACH
        assert self.errors == []

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(str(error))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MortalBroker]:
    started = MortalBroker(
        tmp_path,
        ["log.durability=page-cache", "group.initial.rebalance.delay.ms=0"],
    )
    started.start()
    yield started
    started.stop()


def _create_topics(address: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address, "log_level": 0})
    topics = [
        confluent_kafka.admin.NewTopic(name, PARTITIONS, 1)  # type: ignore[attr-defined]
        for name in ("source", "target")
    ]
    for created in admin.create_topics(topics).values():
        created.result(20)


def _output(address: str, isolation: str = "read_committed") -> list[list[int]]:
    """The values of each partition of the target, in order, up to what may be read of it."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ended: set[int | None] = set()
    try:
        places = [confluent_kafka.TopicPartition("target", index, 0) for index in range(PARTITIONS)]
        consumer.assign(places)

        def read() -> bool:
            for message in consumer.consume(5_000, 0.2):
                error, partition = message.error(), message.partition()
                if error is None:
                    found[partition or 0].append(int(message.value() or b""))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(partition)
                else:
                    raise confluent_kafka.KafkaException(error)
            return len(ended) == PARTITIONS

        wait_until(read, "all of the output is read", REST_S)
    finally:
        consumer.close()
    return found


def _kill_at_random(
    broker: MortalBroker, workers: list[Worker], feeder: Feeder, dice: random.Random
) -> tuple[int, int]:
    """(how many workers, how many brokers) were killed."""
    killed = [0, 0]

    def alive_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            feeder.feed()
            for worker in workers:
                worker.look()
            time.sleep(0.01)

    end = time.monotonic() + KILLING_S
    alive_for(1.0)
    while time.monotonic() < end:
        alive_for(dice.uniform(*PAUSES_S))
        if dice.randrange(BROKER_ONE_IN):
            dice.choice(workers).kill()
            killed[0] += 1
        else:
            broker.kill_and_restart()
            killed[1] += 1
    return killed[0], killed[1]


@pytest.mark.timeout(KILLING_S + 3 * REST_S)
@pytest.mark.parametrize("library", ["confluent-kafka", "odradek"])
def test_every_record_arrives_once_and_in_order_whoever_dies(
    library: str, broker: MortalBroker, tmp_path: Path
) -> None:
    seed = int(os.environ.get("ODRADEK_SEED", "1"))
    print(f"ODRADEK_SEED={seed}")
    _create_topics(broker.address)
    feeder = Feeder(broker.address)
    workers = [Worker(library, broker.address, name, tmp_path) for name in SHARES]
    try:
        killed = _kill_at_random(broker, workers, feeder, random.Random(seed))
        feeder.finish()

        def all_done() -> bool:
            for worker in workers:
                worker.look()
            return all(worker.done for worker in workers)

        _wait_with_words(all_done, workers)
    finally:
        for worker in workers:
            worker.kill()
    print(f"killed {killed[0]} workers, {killed[1]} brokers")
    assert min(killed) > 0
    assert all(worker.starts > 1 for worker in workers)
    written = sum(map(len, _output(broker.address, "read_uncommitted")))
    assert written > PARTITIONS * RECORDS_EACH, "nothing was ever aborted"
    for values in _output(broker.address):
        doubled = len(values) - len(set(values))
        missing = set(range(RECORDS_EACH)) - set(values)
        assert (doubled, len(missing)) == (0, 0)
        assert values == sorted(values)


def _wait_with_words(condition: Callable[[], bool], workers: list[Worker]) -> None:
    end = time.monotonic() + REST_S
    while not condition():
        if time.monotonic() > end:
            words = "\n".join(worker.last_words for worker in workers if not worker.done)
            pytest.fail(f"workers did not end in {REST_S} s:\n{words}")
        time.sleep(0.02)
