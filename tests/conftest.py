"""What every test may lean on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import live_brokers
import record_codecs
import written_directory
from kafka_cluster import KafkaCluster, KafkaUnavailable
from odradek_protocol.records import native

# A shell ignores Ctrl+C for what it starts in the background, and programs under test inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Spark starts its workers with the `python3` of the PATH unless told which one has our packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# The same examples on every run: a failure is a property of the code, not of the day. More of them
# with HYPOTHESIS_PROFILE=thorough.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", deadline=None, max_examples=500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

REPOSITORY = Path(__file__).resolve().parents[1]


#: Fixtures of brokers that are ours, whatever `--bootstrap` says.
_OWN_BROKERS = frozenset(
    {"odradek_broker", "odradek_faulty_broker", "odradek_broker_session", "broker_process"}
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("odradek")
    group.addoption(
        "--kafka",
        action="store_true",
        help="run the tests marked kafka too, against Apache Kafka started from its jars (Java, Maven)",
    )
    group.addoption(
        live_brokers.OPTION,
        metavar="HOST:PORT",
        help="run the tests that only talk to a broker against this one, not one of our own",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    elsewhere = live_brokers.elsewhere(config) is not None

    def is_unwanted(item: pytest.Item) -> bool:
        if item.get_closest_marker("kafka") and not config.getoption("--kafka"):
            return True
        return elsewhere and (
            item.get_closest_marker("own_broker") is not None
            or not _OWN_BROKERS.isdisjoint(getattr(item, "fixturenames", ()))
        )

    left_out = [item for item in items if is_unwanted(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        # Fixtures of modules are made once; one Java serves all of Spark's tests of a process,
        # which begin and end its sessions in the order in which they stand.
        in_java = item.path.parent.name == "spark" or "spark_session" in getattr(
            item, "fixturenames", ()
        )
        group = "spark" if in_java else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def live_bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker to talk to: ours with the settings of a user's tests, or what `--bootstrap`
    names."""
    named = live_brokers.elsewhere(request.config)
    if named is not None:
        return named.bootstrap
    address: str = request.getfixturevalue("odradek_broker_session").bootstrap
    return address


def _kafka(folder: Path, nodes: int) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(folder, nodes)
    try:
        cluster.start()
    except KafkaUnavailable as error:
        pytest.fail(f"--kafka was asked for, and cannot be had: {error}", pytrace=False)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One node of Apache Kafka, with the settings that it ships. For tests marked `kafka`."""
    yield from _kafka(tmp_path_factory.mktemp("kafka"), 1)


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three nodes of Apache Kafka. Who stops one starts it again, and waits until it is up."""
    yield from _kafka(tmp_path_factory.mktemp("kafka-cluster"), 3)


@pytest.fixture(scope="session")
def written_data(tmp_path_factory: pytest.TempPathFactory) -> written_directory.WrittenData:
    """Data directories with every kind of file, of a broker that is gone. Nobody changes them."""
    return written_directory.write_data(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="module", params=record_codecs.TWINS)
def codec_twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a module's tests with the compiled record codec, and with the pure one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "CODEC", record_codecs.twin(request.param))
        yield request.param
