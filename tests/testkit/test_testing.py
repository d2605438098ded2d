"""The pytest plugin, and brokers started from Python."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.fixtures import FixtureFunctionDefinition

import budget
import odradek.testing
from odradek.broker import Broker, BrokerFailed, SubprocessBroker
from odradek.faults import FaultRefused
from odradek_client.admin import Admin, ConfigResource
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import IllegalState
from odradek_client.producer.producer import Producer
from odradek_testkit import pytest_plugin
from product_modules import MODULES, PACKAGES
from waiting import wait_until


async def write(bootstrap: str, topic: str, *values: bytes) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)


async def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        return [(await consumer.getone()).value for _ in range(count)]


async def test_the_fixture_gives_a_broker_that_survives_a_kill(
    odradek_broker: SubprocessBroker, unique_topic: str, tmp_path: Path
) -> None:
    assert odradek_broker.data_dir == tmp_path / "odradek"
    address, pid = odradek_broker.bootstrap, odradek_broker.pid
    await write(address, unique_topic, b"one", b"two")
    odradek_broker.kill()
    odradek_broker.start()
    assert odradek_broker.bootstrap == address
    assert odradek_broker.pid != pid
    assert await read(address, unique_topic, 2) == [b"one", b"two"]


async def test_the_session_broker_is_shared(
    odradek_broker_session: SubprocessBroker, unique_topic: str
) -> None:
    await write(odradek_broker_session.bootstrap, unique_topic, b"one")
    assert await read(odradek_broker_session.bootstrap, unique_topic, 1) == [b"one"]


def test_unique_topics_are_legal_and_different(unique_topic: str) -> None:
    assert unique_topic.startswith("test_unique_topics_are_legal_and_different-")
    assert len(unique_topic) <= 249


def test_importing_the_plugin_is_cheap() -> None:
    program = (
        "import sys, pytest, odradek.testing;"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('construct', 'crc32c', 'cramjam', 'structlog', 'odradek_client', 'odradek_protocol',"
        " 'odradek_broker', 'typer', 'uvloop')])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment, check=True
    ).stdout
    assert output.strip() == b"[]"


def test_every_package_is_imported_as_it_is_written() -> None:
    marked = {name for name in PACKAGES if "PYTEST_DONT_REWRITE" in MODULES[name].read_text()}
    assert marked == pytest_plugin.PACKAGES == PACKAGES.keys()


def test_the_page_has_each_fixture_with_a_type_that_can_be_imported(repository: Path) -> None:
    page = (repository / "docs" / "use" / "testing.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \|", page, re.MULTILINE)
    types = {
        name: re.sub(r"Iterator\[(.+)\]| \| None", r"\1", fixture.__annotations__["return"])
        for name, fixture in _fixtures()
    }
    assert dict(rows) == types
    for name in {*types.values()} - {"str", "Mapping[str, object]", "SparkSession"}:
        assert isinstance(getattr(odradek.testing, name), type)


def _fixtures() -> Iterator[tuple[str, Callable[..., object]]]:
    for name in odradek.testing.__all__:
        found = vars(odradek.testing).get(name)
        if isinstance(found, FixtureFunctionDefinition):
            yield name, found._get_wrapped_function()


async def test_the_fixtures_keep_old_records(
    odradek_broker: SubprocessBroker, odradek_broker_session: SubprocessBroker
) -> None:
    for broker in (odradek_broker, odradek_broker_session):
        async with Admin(bootstrap_servers=broker.bootstrap) as admin:
            resource = ConfigResource.broker(1)
            found = await admin.describe_configs(resource, names=["log.retention.ms"])
            assert found[resource]["log.retention.ms"].value == "-1"


async def configured(bootstrap: str, *names: str) -> list[str | None]:
    """The values that a broker reports for its settings."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        resource = ConfigResource.broker(1)
        found = await admin.describe_configs(resource, names=list(names))
        return [found[resource][name].value for name in names]


class TestWithSettings:
    @pytest.fixture
    def odradek_broker_settings(self) -> dict[str, object]:
        return {"num.partitions": 3, "auto.create.topics.enable": False}

    async def test_the_settings_fixture_overrides_the_defaults(
        self, odradek_broker: SubprocessBroker
    ) -> None:
        names = ("num.partitions", "auto.create.topics.enable", "log.retention.ms")
        assert await configured(odradek_broker.bootstrap, *names) == ["3", "false", "-1"]


@pytest.mark.parametrize("make", [Broker, SubprocessBroker])
def test_an_unknown_setting_of_a_broker_is_an_error(make: type[Broker | SubprocessBroker]) -> None:
    with pytest.raises(ValueError, match=r"is no broker setting; did you mean num\.partitions"):
        make(settings={"num.partition": 3})


@pytest.mark.full
def test_settings_of_a_conftest_reach_both_brokers(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        """
import pytest

@pytest.fixture(scope="session")
def odradek_broker_settings():
    return {"num.partitions": 5, "log.retention.ms": 1000}
"""
    )
    (tmp_path / "test_both.py").write_text(
        """
from odradek.sync import Admin
from odradek import ConfigResource

def test_both(odradek_broker, odradek_broker_session):
    for broker in (odradek_broker, odradek_broker_session):
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            one = ConfigResource.broker(1)
            found = admin.describe_configs(one, names=["num.partitions", "log.retention.ms"])[one]
            assert (found["num.partitions"].value, found["log.retention.ms"].value) == ("5", "1000")
"""
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


async def test_a_consumer_of_a_new_group_does_not_wait_for_others(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    """The test compares a setting, because it must not depend on time."""
    assert await configured(odradek_broker.bootstrap, "group.initial.rebalance.delay.ms") == ["0"]
    await write(odradek_broker.bootstrap, unique_topic, b"one")
    async with Consumer(
        unique_topic,
        bootstrap_servers=odradek_broker.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
    ) as consumer:
        assert (await consumer.getone()).value == b"one"


async def test_a_broker_runs_in_this_process(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path / "data", settings={"num.partitions": 1}) as broker:
        address = broker.bootstrap
        await write(address, "t", b"one")
        await broker.restart()
        assert broker.bootstrap == address
        assert await read(address, "t", 1) == [b"one"]
        with pytest.raises(IllegalState, match="can be killed"):
            await broker.kill()
        with pytest.raises(IllegalState, match="running already"):
            await broker.start()
    assert (tmp_path / "data").exists()
    with pytest.raises(OSError), socket.create_connection(address.split(":")):  # type: ignore[arg-type]
        pass


async def test_a_broker_runs_in_its_own_process() -> None:
    async with Broker(mode="subprocess") as broker:
        await write(broker.bootstrap, "t", b"one")
        await broker.kill()
        await broker.start()
        assert await read(broker.bootstrap, "t", 1) == [b"one"]
        data = broker.data_dir
        assert data.exists()
    assert not data.exists()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(BrokerFailed, match=r"(?s)code 2.*num\.partitions"),
        SubprocessBroker(data_dir=tmp_path, settings={"num.partitions": "many"}),
    ):
        pass


async def test_a_broker_in_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as first:
        with pytest.raises(BrokerFailed, match="in use"):
            async with Broker(listen=first.bootstrap):
                pass


def test_a_broker_that_was_not_started_has_no_address(tmp_path: Path) -> None:
    with pytest.raises(IllegalState, match="not started"):
        _ = SubprocessBroker(data_dir=tmp_path).bootstrap
    with pytest.raises(ValueError, match="mode='thread'"):
        Broker(mode="thread")  # type: ignore[arg-type]


@pytest.mark.full
async def test_a_group_continues_after_its_broker_was_killed(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    """Connections, coordinator and membership are restored, and no record is lost or duplicated."""
    async with Consumer(
        unique_topic,
        bootstrap_servers=odradek_broker.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        enable_auto_commit=False,
    ) as consumer:
        await write(odradek_broker.bootstrap, unique_topic, b"one", b"two")
        assert [(await consumer.getone()).value for _ in range(2)] == [b"one", b"two"]
        await consumer.commit()
        odradek_broker.kill()
        assert await consumer.poll(200) == []
        odradek_broker.start()
        await write(odradek_broker.bootstrap, unique_topic, b"three")
        async with asyncio.timeout(60):
            assert (await consumer.getone()).value == b"three"
            await consumer.commit()
        committed = await consumer.committed((unique_topic, 0))
        assert committed is not None
        assert committed.offset == 3


async def test_a_broker_under_test_takes_orders_of_faults(
    odradek_faulty_broker: SubprocessBroker, unique_topic: str
) -> None:
    async with Broker(testing=True) as inside:
        for broker in (odradek_faulty_broker, inside):
            fault = broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=unique_topic)
            await write(broker.bootstrap, unique_topic, b"one")
            (listed,) = broker.faults.list()
            assert (listed.id, listed.met, listed.over) == (fault.id, 1, True)
            broker.faults.remove(fault)
            with pytest.raises(FaultRefused):
                broker.faults.remove(fault)
            broker.faults.clear()
            assert broker.faults.list() == []
    with pytest.raises(IllegalState):
        _ = inside.faults


_FORGETFUL = """
import sys
from odradek import Broker
folder = sys.argv[1] or None
broker = Broker.subprocess(data_dir=folder)
broker.start()
print(broker.bootstrap, broker._scratch.name, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", budget.of_which([False, True], [True]))
@pytest.mark.parametrize("has_place", budget.of_which([False, True], [False]))
def test_a_broker_ends_with_a_program_that_never_closed_it(
    tmp_path: Path, killed: bool, has_place: bool
) -> None:
    folder = tmp_path / "kept"
    program = subprocess.Popen(
        [sys.executable, "-c", _FORGETFUL, str(folder) if has_place else ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    with program.stdin, program.stdout:
        address, scratch = program.stdout.readline().split()
        asyncio.run(write(address, "orders", b"one"))
        if killed:
            program.kill()
        else:
            program.stdin.close()
        program.wait()
    host, _, port = address.rpartition(":")

    def has_gone() -> bool:
        with socket.socket() as client:
            return client.connect_ex((host, int(port))) != 0 and not Path(scratch).exists()

    wait_until(has_gone, "the broker and its folder are gone", 30.0)
    if has_place:
        with SubprocessBroker(data_dir=folder) as broker:
            assert asyncio.run(read(broker.bootstrap, "orders", 1)) == [b"one"]


def test_the_faults_error_names_the_fixture_that_takes_orders(
    odradek_broker: SubprocessBroker,
) -> None:
    with pytest.raises(IllegalState, match="odradek_faulty_broker"):
        odradek_broker.faults.clear()
