"""A run of workers that consume, transform and produce in transactions, while workers and the
broker are killed.

`run` starts a broker, writes the input, starts the workers (`eos_worker`), and kills processes as a
seed says. The tests check its result.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

import helper_process
from broker_process import BrokerProcess
from foreign_topics import create_topic
from waiting import wait_until

PARTITIONS = 4
#: The time limit after the last kill, in s.
REST_S = 120.0
#: librdkafka 2.16 sometimes hangs forever in `send_offsets_to_transaction`
#: (confluentinc/librdkafka#5456; also with Apache Kafka) or while it is destroyed, whatever
#: timeouts are set. A librdkafka worker that makes no progress for this time, in s, after the last
#: kill is killed once more.
FOREIGN_PATIENCE_S = 30.0
NAMES = ("worker-0", "worker-1", "worker-2")
KEYS = 25


@dataclass(frozen=True)
class Plan:
    """The parameters of a run.

    `killing_s`: the time in which the input is written evenly and processes are killed one at a
    time. `pauses_s`: the least and the greatest pause between two kills. One in `broker_one_in`
    kills hits the broker. One in `frozen_one_in` kills of workers is only a pause: the worker is
    stopped for `frozen_s`, and then continues with the records that it had read.
    """

    library: str
    records_each: int
    killing_s: float
    pauses_s: tuple[float, float]
    broker_one_in: int
    #: Worker -> its arguments after COUNT: partitions to assign, or none to subscribe.
    arguments: dict[str, list[str]]
    frozen_one_in: int = 0
    frozen_s: float = 0.0
    settings: tuple[str, ...] = ()


@dataclass
class Deaths:
    """The number of kills of each kind."""

    workers: int = 0
    brokers: int = 0
    frozen: int = 0


@dataclass
class Result:
    """The result of a run: (key, number) of the records, for each partition of the target, in
    order."""

    deaths: Deaths
    starts: dict[str, int]
    uncommitted: int
    committed: list[list[tuple[bytes, int]]]
    words: dict[str, str] = field(default_factory=dict)


class Worker:
    """A worker that is restarted until it has no work left."""

    def __init__(self, plan: Plan, address: str, name: str, folder: Path) -> None:
        self.name = name
        work = (plan.library, address, name, plan.records_each, *plan.arguments[name])
        self._command = helper_process.command("eos_worker", *work)
        self._output = folder / f"{name}.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._thaw_at_s: float | None = None
        self.starts = 0
        self.done = False

    def look(self) -> None:
        """Start the worker if it is not running."""
        if self.done:
            return
        if self._thaw_at_s is not None and time.monotonic() >= self._thaw_at_s:
            self.thaw()
        if self._process is not None:
            code = self._process.poll()
            self.done = code == 0
            if code is None or self.done:
                return
        self.starts += 1
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=helper_process.environment(),
            )

    @property
    def _alive(self) -> subprocess.Popen[bytes] | None:
        process = self._process
        return process if process is not None and process.poll() is None else None

    def kill(self) -> None:
        self._thaw_at_s = None
        if (process := self._alive) is not None:
            process.kill()
            process.wait(20)

    def freeze(self, seconds: float) -> None:
        if (process := self._alive) is not None:
            process.send_signal(signal.SIGSTOP)
            self._thaw_at_s = time.monotonic() + seconds

    def thaw(self) -> None:
        self._thaw_at_s = None
        if (process := self._alive) is not None:
            process.send_signal(signal.SIGCONT)

    @property
    def last_words(self) -> str:
        return self._output.read_text()[-3000:] if self._output.exists() else ""


class Feeder:
    """Writes the input evenly over the time of the kills."""

    def __init__(self, address: str, records_each: int, killing_s: float) -> None:
        self._records_each = records_each
        self._killing_s = killing_s
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
        """Write the records whose time has come."""
        share = min(1.0, (time.monotonic() - self._begun) / self._killing_s)
        while self._sent < self._records_each * share:
            for partition in range(PARTITIONS):
                key = b"%d:%d" % (partition, self._sent % KEYS)
                self._producer.produce(
                    "source", b"%d" % self._sent, key, partition, self._delivered
                )
            self._sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        self.feed()
        assert self._producer.flush(60) == 0
        assert self._sent == self._records_each
        assert self.errors == []

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(str(error))


def read_target(address: str, isolation: str) -> list[list[tuple[bytes, int]]]:
    """(key, number) of the records up to the last stable offset, for each partition of the target,
    in order."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[list[tuple[bytes, int]]] = [[] for _ in range(PARTITIONS)]
    ended: set[int | None] = set()
    try:
        places = [confluent_kafka.TopicPartition("target", index, 0) for index in range(PARTITIONS)]
        consumer.assign(places)

        def read() -> bool:
            for message in consumer.consume(5_000, 0.2):
                error, partition = message.error(), message.partition()
                if error is None:
                    number = int(message.value() or b"")
                    found[partition or 0].append((bytes(message.key() or b""), number))
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
    plan: Plan, broker: BrokerProcess, workers: list[Worker], feeder: Feeder, dice: random.Random
) -> Deaths:
    deaths = Deaths()

    def alive_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            feeder.feed()
            for worker in workers:
                worker.look()
            time.sleep(0.01)

    end = time.monotonic() + plan.killing_s
    alive_for(1.0)
    while time.monotonic() < end:
        alive_for(dice.uniform(*plan.pauses_s))
        if dice.randrange(plan.broker_one_in) == 0:
            broker.kill()
            broker.start()
            deaths.brokers += 1
            continue
        worker = dice.choice(workers)
        if plan.frozen_one_in and dice.randrange(plan.frozen_one_in) == 0:
            worker.freeze(plan.frozen_s)
            deaths.frozen += 1
        else:
            worker.kill()
            deaths.workers += 1
    for worker in workers:
        worker.thaw()
    return deaths


def run(plan: Plan, folder: Path) -> Result:
    """Do a whole run. ODRADEK_SEED decides about the kills."""
    seed = int(os.environ.get("ODRADEK_SEED", "1"))
    print(f"ODRADEK_SEED={seed}")
    broker = BrokerProcess(
        folder,
        ["log.durability=page-cache", "group.initial.rebalance.delay.ms=0", *plan.settings],
    )
    broker.start()
    try:
        for topic in ("source", "target"):
            create_topic(broker.address, topic, PARTITIONS)
        feeder = Feeder(broker.address, plan.records_each, plan.killing_s)
        workers = [Worker(plan, broker.address, name, folder) for name in NAMES]
        try:
            deaths = _kill_at_random(plan, broker, workers, feeder, random.Random(seed))
            feeder.finish()

            def all_done() -> bool:
                for worker in workers:
                    worker.look()
                return all(worker.done for worker in workers)

            if plan.library != "odradek":
                until = time.monotonic() + FOREIGN_PATIENCE_S
                while not all_done() and time.monotonic() < until:
                    time.sleep(0.02)
                for worker in workers:
                    if not worker.done:
                        print(f"{worker.name} stands still")
                        worker.kill()
            _wait_or_show_output(all_done, workers)
        finally:
            for worker in workers:
                worker.kill()
        print(deaths)
        return Result(
            deaths,
            {worker.name: worker.starts for worker in workers},
            sum(map(len, read_target(broker.address, "read_uncommitted"))),
            read_target(broker.address, "read_committed"),
            {worker.name: worker.last_words for worker in workers},
        )
    finally:
        broker.stop()


def _wait_or_show_output(condition: Callable[[], bool], workers: list[Worker]) -> None:
    end = time.monotonic() + REST_S
    while not condition():
        if time.monotonic() > end:
            words = "\n".join(
                f"{worker.name}:\n{worker.last_words}" for worker in workers if not worker.done
            )
            pytest.fail(f"workers did not end in {REST_S} s:\n{words}")
        time.sleep(0.02)
