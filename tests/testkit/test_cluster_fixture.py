"""The fixture `odradek_cluster`: in runs of pytest, with and without workers, and with unittest."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import budget
from odradek.broker import SubprocessBroker
from waiting import wait_until

_HELPERS = """
import os
from odradek.sync import Consumer, Producer

def write_and_read(bootstrap, value):
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_and_wait("orders", value)
    settings = {"group_id": "workers", "auto_offset_reset": "earliest"}
    with Consumer("orders", bootstrap_servers=bootstrap, **settings) as consumer:
        records = []
        while not records:
            records = consumer.poll(timeout_ms=1000)
        consumer.commit()
    return [record.value for record in records]

def parent_of(cluster):
    # The process that forked the broker has made the directory.
    return cluster.data_dir.parent.parent.name
"""

_TESTS = """
import pytest
from helpers import parent_of, write_and_read

@pytest.mark.parametrize("number", range(6))
def test_same_names(odradek_cluster, number):
    value = b"%d" % number
    assert write_and_read(odradek_cluster.bootstrap, value) == [value]
    print("PARENT", parent_of(odradek_cluster))
"""


def plain_environment(folder: Path) -> dict[str, str]:
    """The environment of this run, without the variables of this run's pytest and clusters."""
    names = [name for name in os.environ if not name.startswith(("PYTEST_", "ODRADEK_CLUSTERS"))]
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return {**{name: os.environ[name] for name in names}, "PYTHONPATH": path}


def run(
    folder: Path, *options: str, expect: int = 0, environment: dict[str, str] | None = None
) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rP", *options, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={
            **plain_environment(folder),
            **(environment or {}),
        },
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "helpers.py").write_text(_HELPERS)
    (tmp_path / "test_suite.py").write_text(_TESTS)
    return tmp_path


def parents(output: str) -> list[str]:
    return [line.split()[1] for line in output.splitlines() if line.startswith("PARENT ")]


@pytest.mark.full
@pytest.mark.parametrize("workers", budget.of_which([0, 3], [3]))
def test_all_tests_of_a_run_have_clusters_of_one_process(suite: Path, workers: int) -> None:
    found = parents(run(suite, f"-n{workers}"))
    assert (len(found), len(set(found))) == (6, 1)


_CHILDREN = """
import os
from pathlib import Path

def test_children(WITH):
    children = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                command = (process / "cmdline").read_text()
            except OSError:
                continue
            if parent in (os.getpid(), os.getppid()) and "virtual_clusters" in command:
                children.append(command)
    assert len(children) == EXPECTED
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="the test reads /proc")
@pytest.mark.parametrize(("fixture", "processes"), [("tmp_path", 0), ("odradek_cluster", 1)])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.full
def test_only_a_run_with_the_fixture_starts_a_cluster_process(
    tmp_path: Path, fixture: str, processes: int, workers: int
) -> None:
    text = _CHILDREN.replace("WITH", fixture).replace("EXPECTED", str(processes))
    (tmp_path / "test_suite.py").write_text(text)
    run(tmp_path, f"-n{workers}")


@pytest.mark.full
def test_the_fixture_can_use_a_running_broker(suite: Path) -> None:
    with SubprocessBroker(testing=True) as broker:
        found = parents(run(suite, "-n2", environment={"ODRADEK_CLUSTERS": broker.http}))
        assert len(set(found)) == 1


@pytest.mark.full
def test_settings_of_a_conftest_reach_the_cluster(suite: Path) -> None:
    (suite / "conftest.py").write_text(
        """
import pytest

@pytest.fixture(scope="session")
def odradek_broker_settings():
    return {"auto.create.topics.enable": False}
"""
    )
    (suite / "test_suite.py").write_text(
        """
import pytest
from odradek.errors import OdradekError
from odradek.sync import Producer

def test_no_topic_is_created(odradek_cluster):
    with Producer(bootstrap_servers=odradek_cluster.bootstrap, max_block_ms=1000) as producer:
        with pytest.raises(OdradekError):
            producer.send_and_wait("orders", b"one")
"""
    )
    run(suite)


@pytest.mark.full
def test_a_failed_test_shows_the_log_of_its_broker(suite: Path) -> None:
    (suite / "test_suite.py").write_text(
        "def test_fails(odradek_cluster):\n"
        "    odradek_cluster.faults.full_disk()\n"
        "    assert False\n"
    )
    output = run(suite, expect=1)
    assert "Log of odradek_cluster" in output
    assert "a fault is injected on request" in output


@pytest.mark.full
def test_clients_left_open_by_a_test_do_not_disturb_the_next(suite: Path) -> None:
    (suite / "test_suite.py").write_text(
        """
import pytest
from helpers import write_and_read
from odradek.sync import Consumer, Producer

left = []

@pytest.mark.parametrize("number", range(4))
def test_forgets_to_close(odradek_cluster, number):
    bootstrap = odradek_cluster.bootstrap
    assert write_and_read(bootstrap, b"%d" % number) == [b"%d" % number]
    producer = Producer(bootstrap_servers=bootstrap, transactional_id="shop")
    producer.start()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_and_wait("orders", b"left open")
    consumer = Consumer("orders", bootstrap_servers=bootstrap, group_id="workers")
    consumer.start()
    consumer.poll(timeout_ms=10)
    left.extend((producer, consumer))
    odradek_cluster.faults.full_disk()

def test_ends(odradek_cluster):
    assert write_and_read(odradek_cluster.bootstrap, b"last") == [b"last"]
    import os
    os._exit(0)  # those that were left open would be waited for
"""
    )
    run(suite)


@pytest.mark.full
def test_no_event_loop_is_left_by_the_fixture(suite: Path) -> None:
    (suite / "test_suite.py").write_text(
        """
import asyncio
import pytest
from odradek import Producer

loops = []

@pytest.mark.parametrize("number", range(3))
@pytest.mark.asyncio
async def test_own_loop(odradek_cluster, number):
    loops.append(asyncio.get_running_loop())
    async with Producer(bootstrap_servers=odradek_cluster.bootstrap) as producer:
        await producer.send_and_wait("orders", b"one")
    odradek_cluster.restart()

def test_all_loops_are_closed():
    assert len(set(map(id, loops))) == 3
    assert all(loop.is_closed() for loop in loops)
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
"""
    )
    run(suite, "-W", "error", "-o", "asyncio_default_fixture_loop_scope=function")


_UNITTEST = """
import unittest
from helpers import parent_of, write_and_read
from odradek.unittest import ClusterMixin, ClusterTestCase
from odradek import Producer

class OrdersTest(ClusterTestCase):
    cluster_settings = {"num.partitions": 2}

    def test_one(self):
        self.assertEqual(write_and_read(self.cluster.bootstrap, b"one"), [b"one"])
        print("PARENT", parent_of(self.cluster))

    def test_two(self):
        self.assertEqual(write_and_read(self.cluster.bootstrap, b"two"), [b"two"])
        print("PARENT", parent_of(self.cluster))

class AsyncOrdersTest(ClusterMixin, unittest.IsolatedAsyncioTestCase):
    async def test_three(self):
        async with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
            await producer.send_and_wait("orders", b"three")
        print("PARENT", parent_of(self.cluster))
"""


@pytest.mark.full
def test_the_unittest_class_works_alone_and_under_pytest(suite: Path) -> None:
    (suite / "test_suite.py").write_text(_UNITTEST)
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-v", "test_suite"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=suite,
        env=plain_environment(suite),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for output in (done.stdout, run(suite, "-n2")):
        found = parents(output)
        assert (len(found), len(set(found))) == (3, 1)


@pytest.mark.full
def test_clusters_end_with_a_killed_run(suite: Path) -> None:
    (suite / "test_suite.py").write_text(
        """
import os
import signal
from pathlib import Path

def test_is_killed(odradek_cluster):
    Path("address").write_text(odradek_cluster.bootstrap)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    run(suite, "-n0", expect=-9)
    host, _, port = (suite / "address").read_text().rpartition(":")

    def has_gone() -> bool:
        with socket.socket() as client:
            return client.connect_ex((host, int(port))) != 0

    wait_until(has_gone, "the broker has ended", 30.0)


@pytest.mark.full
def test_a_nested_pytest_run_does_not_end_the_outer_clusters(suite: Path) -> None:
    (suite / "conftest.py").write_text('pytest_plugins = ["pytester"]\n')
    (suite / "test_suite.py").write_text(
        """
def test_before(odradek_cluster):
    pass

def test_of_a_plugin(pytester):
    pytester.makepyfile("def test_inner(odradek_cluster): pass")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)

def test_after(odradek_cluster):
    pass
"""
    )
    run(suite, "-n0")


_FAULTS = """
import pytest
from odradek.sync import Producer

def test_met(odradek_cluster):
    odradek_cluster.faults.fail("Metadata", "LEADER_NOT_AVAILABLE")
    with Producer(bootstrap_servers=odradek_cluster.bootstrap) as producer:
        producer.send_and_wait("orders", b"x")

def test_misspelt(odradek_cluster):
    odradek_cluster.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="odrers")

def test_cleared(odradek_cluster):
    odradek_cluster.faults.delay("Fetch", 10, times=None)
    odradek_cluster.faults.clear()

def test_ended(odradek_cluster):
    odradek_cluster.faults.delay("Fetch", 10)
    odradek_cluster.kill()
"""


def test_a_fault_that_nothing_met_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(_FAULTS)
    told = run(tmp_path, "-n0")
    assert "nothing met it: fault='fail', api='Produce', code='NOT_ENOUGH_REPLICAS'" in told
    assert told.count("FaultUnused: a fault was ordered, and nothing met it") == 2
    assert "2 warnings" in told
