"""Fixtures, options and settings of all tests."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

import budget
import compiled_sources
import live_brokers
import record_codecs
import written_directory
from kafka_cluster import KafkaCluster, KafkaUnavailable
from odradek_protocol.records import native

# A shell lets its background programs ignore Ctrl+C, and their child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of programs; without bytecode files each would compile all its modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# By default Spark starts workers with the `python3` of the PATH, which may not have these packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

REPOSITORY = Path(__file__).resolve().parents[1]


#: Fixtures that always start a broker of this project, whatever `--bootstrap` is.
_OWN_BROKERS = frozenset(
    {"odradek_broker", "odradek_faulty_broker", "odradek_broker_session", "broker_process"}
)

#: The value of the key "path" is the module before which logging was reset last.
_module_of_log: dict[str, Path] = {}

#: In a short run, the modules of `tests/spark` that share the Spark session are one unit of work.
#: The module of the documents ends the Java process, so it runs before the Spark modules.
_SPARK_UNIT = "tests/spark"
_DOCUMENTS = "tests/cli/test_snippets.py"
_TIDY = "tests/tidy"

#: The folders with the slowest modules, in the order in which they start.
_SLOWEST_FOLDERS = ("cli", "interop", "adversity", "sim", "spark", "protocol")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("odradek")
    group.addoption(
        "--budget",
        choices=(budget.SHORT, budget.FULL, budget.REST),
        help="the share of the tests: short (default without a path), full, or the rest of full",
    )
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


def pytest_configure(config: pytest.Config) -> None:
    budget.choose(config)
    # Each run has the same examples: a failure must depend on the code, not on the run.
    # HYPOTHESIS_PROFILE=thorough has more examples.
    settings.register_profile(
        "default",
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=budget.examples(100),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("thorough", deadline=None, max_examples=500, print_blob=True)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    elsewhere = live_brokers.elsewhere(config) is not None

    def is_unwanted(item: pytest.Item) -> bool:
        if not budget.is_wanted(item):
            return True
        if item.get_closest_marker("kafka") and not config.getoption("--kafka"):
            return True
        return elsewhere and (
            item.get_closest_marker("own_broker") is not None
            or not _OWN_BROKERS.isdisjoint(getattr(item, "fixturenames", ()))
        )

    wanted: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if is_unwanted(item) else wanted).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    # The longest units run first, so that all processes end at about the same time.
    items[:] = sorted(wanted, key=_rank)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile all sources once, if several processes will run the tests."""
    if session.config.getoption("numprocesses", None):
        compiled_sources.compile_all()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from scanning thousands of tests, during collection and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process one module at a time, but all modules of the Spark session to the same
    process.

    A second Java would take longer to start than many tests take to run.
    """
    if config.getoption("dist") != "loadfile":
        return None
    scheduling = LoadFileScheduling(config, log)
    module_of = scheduling._split_scope
    scheduling._split_scope = lambda node_id: _unit(module_of(node_id))
    return scheduling


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reset logging before each module, to the state of a new process.

    Brokers and the Spark connector configure logging for the rest of their process.
    """
    if _module_of_log.get("path") != item.path:
        _module_of_log["path"] = item.path
        structlog.reset_defaults()
        for name in ("odradek", "odradek.client"):
            logging.getLogger(name).setLevel(logging.NOTSET)


@functools.cache
def _unit(module: str) -> str:
    """The unit of work of a test module, whose path is relative to the repository."""
    path = REPOSITORY / module
    # The modules in this folder parse every source file, which should happen only once.
    if path.parent == REPOSITORY / _TIDY:
        return _TIDY
    # In a full run, a process with all Spark tests would take longer than all other processes.
    if not budget.is_short() or path.parent != REPOSITORY / _SPARK_UNIT:
        return module
    return _SPARK_UNIT if "pytest.mark.spark" in path.read_text() else module


def _rank(item: pytest.Item) -> int:
    path = item.path.relative_to(REPOSITORY)
    first = (_DOCUMENTS, _SPARK_UNIT, _TIDY)
    if (unit := _unit(path.as_posix())) in first:
        return first.index(unit)
    ranks = (*first, *_SLOWEST_FOLDERS)
    return ranks.index(path.parts[1]) if path.parts[1] in ranks else len(ranks)


@pytest.fixture(scope="session")
def live_bootstrap(request: pytest.FixtureRequest) -> str:
    """The address in `--bootstrap`; without this option, the address of a broker that the fixture
    `odradek_broker_session` starts."""
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
    """A node of Apache Kafka with its default settings, for tests marked `kafka`."""
    yield from _kafka(tmp_path_factory.mktemp("kafka"), 1)


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three nodes of Apache Kafka. A test that stops a node must start it again, and wait until it
    is up."""
    yield from _kafka(tmp_path_factory.mktemp("kafka-cluster"), 3)


@pytest.fixture(scope="session")
def written_data(tmp_path_factory: pytest.TempPathFactory) -> written_directory.WrittenData:
    """Data directories with every kind of file, left by brokers that have ended. Tests must not
    change them."""
    return written_directory.write_data(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="module", params=record_codecs.TWINS)
def codec_twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the tests of a module twice: with the compiled and with the pure record codec."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "CODEC", record_codecs.twin(request.param))
        yield request.param
