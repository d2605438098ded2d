"""The crash matrix: real processes, killed between any two steps of a batch (S-01 to S-16).

The default run has one row of the matrix. All rows take about half an hour: ``pytest
tests/spark/test_exactly_once_crashes.py -m slow``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest

import helper_process
from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.admin import NewTopic
from pyspark_odradek.exactly_once.fault_points import (
    FOLDER_VARIABLE,
    POINT_VARIABLE,
    SparkFaultPoint,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BATCHES, ROWS = 3, 40
PATIENCE_S = 300.0
RUNS_MAX = 4
#: The victims: the process at the fault point, by an exception ("step") or by SIGKILL ("worker");
#: the driver; the broker.
VICTIMS = ("step", "worker", "driver", "broker")


class Application:
    """The program `crashing_stream` and its broker."""

    def __init__(self, folder: Path, broker: SubprocessBroker, semantics: str) -> None:
        self.folder = folder
        self.broker = broker
        self.semantics = semantics
        self.topic = "out"
        for name in ("in", "later", "faults"):
            (folder / name).mkdir()
        for batch in range(BATCHES):
            path = folder / ("later" if batch else "in") / f"{batch}.txt"
            path.write_text("".join(f"{batch}-{row}\n" for row in range(ROWS)))
            os.utime(path, (1_700_000_000 + batch,) * 2)
        with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics(NewTopic(self.topic, partitions=2))

    def start(self, point: SparkFaultPoint | None = None) -> subprocess.Popen[bytes]:
        environment = helper_process.environment()
        environment.pop(POINT_VARIABLE, None)
        if point is not None:
            environment |= {
                POINT_VARIABLE: point.value,
                FOLDER_VARIABLE: str(self.folder / "faults"),
            }
        work = (self.folder, self.broker.bootstrap, self.topic, self.semantics)
        with (self.folder / "driver.log").open("ab") as output:
            return subprocess.Popen(
                helper_process.command("crashing_stream", *work),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    def wait_for_point(self, driver: subprocess.Popen[bytes]) -> int:
        """Wait until a process has reached the fault point. Returns its pid."""
        reached = self.folder / "faults" / "reached"
        deadline = time.monotonic() + PATIENCE_S
        while not reached.exists():
            assert driver.poll() is None, f"it ended before the fault point: {self.log()}"
            assert time.monotonic() < deadline, f"the fault point is not reached: {self.log()}"
            time.sleep(0.05)
        return int(reached.read_text())

    def kill_victim(self, victim: str, driver: subprocess.Popen[bytes], waiting: int) -> None:
        go = self.folder / "faults" / "go"
        if victim == "worker":
            os.kill(waiting, signal.SIGKILL)
        elif victim == "driver":
            self.kill_driver(driver)
            # With the driver its workers are killed, as if the machine had crashed.
            with contextlib.suppress(ProcessLookupError):
                os.kill(waiting, signal.SIGKILL)
        elif victim == "broker":
            self.broker.kill()
            self.broker.start()
            go.touch()
        else:
            (self.folder / "faults" / "go.tmp").write_text("raise")
            (self.folder / "faults" / "go.tmp").rename(go)

    def kill_driver(self, driver: subprocess.Popen[bytes]) -> None:
        jvm = int((self.folder / "jvm.pid").read_text())
        for pid in (jvm, driver.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.wait()

    def run_to_the_end(self, driver: subprocess.Popen[bytes]) -> int:
        """Restart the program until it succeeds. Returns the number of restarts."""
        for again in range(RUNS_MAX):
            try:
                code = driver.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill_driver(driver)
                raise AssertionError(f"it does not end: {self.log()}") from None
            if code == 0:
                return again
            driver = self.start()
        self.kill_driver(driver)
        raise AssertionError(f"it failed {RUNS_MAX} times: {self.log()}")

    def log(self) -> str:
        path = self.folder / "driver.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def visible(self) -> Counter[str]:
        """The committed records, as a foreign consumer reads them."""
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap, isolation_level="read_committed"
        )
        try:
            partitions = [kafka.TopicPartition(self.topic, number) for number in range(2)]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            consumer.seek_to_beginning()
            values: Counter[str] = Counter()
            deadline = time.monotonic() + 30
            while any(consumer.position(each) < ends[each] for each in partitions):
                assert time.monotonic() < deadline, "something holds readers back"
                for some in consumer.poll(timeout_ms=250).values():
                    values.update(record.value.decode() for record in some)
            return values
        finally:
            consumer.close()

    def open_transactions(self) -> list[str]:
        with sync.Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            return [x.transactional_id for x in admin.list_transactions(states=["Ongoing"])]


EVERYTHING = Counter(f"{batch}-{row}" for batch in range(BATCHES) for row in range(ROWS))


@pytest.fixture
def application(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Application]:
    semantics = getattr(request, "param", "exactly_once")
    with SubprocessBroker(data_dir=tmp_path / "broker") as broker:
        yield Application(tmp_path, broker, semantics)


def crash(application: Application, victim: str, point: SparkFaultPoint) -> int:
    driver = application.start(point)
    try:
        waiting = application.wait_for_point(driver)
        application.kill_victim(victim, driver, waiting)
        return application.run_to_the_end(driver)
    finally:
        if driver.poll() is None:
            application.kill_driver(driver)


def check(application: Application) -> None:
    assert application.visible() == EVERYTHING
    assert application.open_transactions() == []


@pytest.mark.full
def test_a_driver_killed_between_two_commits_loses_and_repeats_no_row(
    application: Application,
) -> None:
    assert crash(application, "driver", SparkFaultPoint.ONE_ENDED) == 1
    check(application)


@pytest.mark.slow
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("point", SparkFaultPoint, ids=lambda point: point.value)
def test_a_crash_at_any_step_loses_and_repeats_no_row(
    application: Application, victim: str, point: SparkFaultPoint
) -> None:
    started_again = crash(application, victim, point)
    check(application)
    if victim == "driver":
        assert started_again >= 1


@pytest.mark.slow
@pytest.mark.parametrize("application", ["at_least_once"], indirect=True)
def test_a_crash_with_at_least_once_repeats_rows(application: Application) -> None:
    """The repeated rows show that the checks of the matrix can fail."""
    crash(application, "driver", SparkFaultPoint.TASK_PREPARED)
    visible = application.visible()
    assert set(visible) == set(EVERYTHING)
    assert visible != EVERYTHING
