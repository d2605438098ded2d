"""Fixtures for tests that need a real broker; pytest finds them automatically.

    def test_orders(odradek_cluster):
        with Producer(bootstrap_servers=odradek_cluster.bootstrap) as producer:
            producer.send_and_wait("orders", b"...")

`odradek_cluster`: a cluster of one broker for only this test, so that tests can use the same names.
It is made in milliseconds, faults can be injected, and it may be killed and restarted. One
process makes the clusters of all tests of a run, including those in pytest-xdist's workers.
`odradek_clusters` makes further clusters.

`odradek_broker`: a broker of the test's own, on a free port, with a directory of its own; it may be
stopped, killed and restarted. `odradek_broker_session`: one broker for the whole run, for tests
that only need some broker; use `unique_topic` with it. `odradek_faulty_broker`: like
`odradek_broker`, and faults can be injected (`odradek_faulty_broker.faults`). All these brokers
keep records of any age: with Kafka's retention of seven days, a test would lose old records at the
check every five minutes.

`odradek_broker_settings`: settings of all these brokers, by Kafka's names, which override their
defaults. Override the fixture in a conftest.py, with scope="session". For only `odradek_broker`, a
module or a class may also override it:

    @pytest.fixture(scope="session")
    def odradek_broker_settings():
        return {"num.partitions": 3, "auto.create.topics.enable": False}

`odradek_spark`: a SparkSession for the whole run. `assert_exactly_once` asserts that a query of
your own writes each of its rows once, whatever interrupts it (docs/spark/connector.md).

`@pytest.mark.simulated(seeds=200, faults=True)`: an `async` test with the fixture
`simulated_cluster` is run once for each seed on virtual time, against a broker in the same process
whose network, disk, clock and process fail as the seed decides. A test of a session timeout of 45 s
takes milliseconds:

    @pytest.mark.simulated(seeds=200, faults=True)
    async def test_orders(simulated_cluster):
        async with Producer(bootstrap_servers=simulated_cluster.bootstrap) as producer:
            await producer.send_and_wait("orders", b"...")

The fixtures import what they need, because every run of pytest loads this module.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from odradek_testkit.broker import SubprocessBroker
    from odradek_testkit.clusters import Cluster, Clusters
    from odradek_testkit.simulation.cluster import SimulatedCluster
    from odradek_testkit.spark_testing import ExactlyOnceCheck

_numbers = count(1)
#: The seed of the present run of a simulated test.
_SEED = pytest.StashKey[int]()
#: The server that gives the workers of pytest-xdist the address for clusters.
_ADDRESS_SERVER = pytest.StashKey[Any]()
_WORKER_KEY = "odradek_clusters_ask"
#: The runs of pytest in this process. A test of a pytest plugin may run pytest inside a run.
_runs: list[pytest.Config] = []
#: The settings of the brokers, unless `odradek_broker_settings` overrides them.
_SETTINGS: dict[str, object] = {"log.retention.ms": -1}


def make_unique_topic(prefix: str = "topic") -> str:
    """A topic name that was never returned before, in this process or another."""
    import os

    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and give a worker of pytest-xdist the address for clusters."""
    _runs.append(config)
    given = getattr(config, "workerinput", {}).get(_WORKER_KEY)
    if given:
        import os

        from_controller: str = given
        os.environ["ODRADEK_CLUSTERS_ASK"] = from_controller
    config.addinivalue_line(
        "markers",
        "simulated(seeds=20, faults=False, settings=None): run on virtual time against a simulated"
        " broker, once for each seed (a number of them, or a list)",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the address of the server for clusters. The first test that
    needs a cluster starts the host process for all workers."""
    from odradek_testkit.clusters import AddressServer

    stash = node.config.stash
    if _ADDRESS_SERVER not in stash:
        stash[_ADDRESS_SERVER] = AddressServer()
    node.workerinput[_WORKER_KEY] = stash[_ADDRESS_SERVER].address


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process that makes clusters, unless this run of pytest is inside another run, because
    the outer run still needs the process."""
    import sys

    server = config.stash.get(_ADDRESS_SERVER, None)
    if server is not None:
        server.close()
    if config in _runs:
        _runs.remove(config)
    if not _runs and "odradek_testkit.clusters" in sys.modules:
        from odradek_testkit.clusters import close_shared

        close_shared()


@pytest.fixture
def simulated_cluster(request: pytest.FixtureRequest) -> SimulatedCluster | None:
    """The broker of a test that is marked `simulated`; see `odradek_testkit.simulation.cluster`."""
    if request.node.get_closest_marker("simulated") is None:
        pytest.fail("simulated_cluster is for tests marked @pytest.mark.simulated", pytrace=False)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is marked `simulated` with each of its seeds; other tests are not
    affected."""
    marker = pyfuncitem.get_closest_marker("simulated")
    if marker is None:
        return None
    import inspect

    from odradek_testkit.simulation.cluster import run_test

    test = inspect.unwrap(pyfuncitem.obj)
    if not inspect.iscoroutinefunction(test) or "simulated_cluster" not in pyfuncitem.funcargs:
        pytest.fail("a simulated test is async, and takes simulated_cluster", pytrace=False)
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    async def run(cluster: SimulatedCluster) -> None:
        await test(**{**arguments, "simulated_cluster": cluster})

    options = dict(marker.kwargs)
    for seed in _seeds(marker.args, options):
        pyfuncitem.stash[_SEED] = seed
        run_test(pyfuncitem.name, run, [seed], **options)
    return True


def _seeds(positional: tuple[object, ...], options: dict[str, Any]) -> Iterable[int]:
    """The seeds of a simulated test; `options` keeps the other arguments of the marker. Fails the
    test if an argument would have no effect."""
    from odradek_broker.config.broker import require_known
    from odradek_protocol.settings import did_you_mean

    seeds = options.pop("seeds", 20)
    if isinstance(seeds, int):
        seeds = range(1, seeds + 1)
    unknown = next(iter(options.keys() - {"faults", "settings"}), None)
    if positional:
        problem = f"takes its arguments by name: seeds={positional[0]!r}"
    elif unknown is not None:
        problem = f"takes no {unknown}{did_you_mean(unknown, ('seeds', 'faults', 'settings'))}"
    elif not seeds or not all(isinstance(seed, int) for seed in seeds):
        problem = "takes as seeds a number from 1, or a list of numbers"
    else:
        try:
            require_known(options.get("settings") or {})
        except ValueError as error:
            problem = str(error)
        else:
            return cast("Iterable[int]", seeds)
    pytest.fail(f"the marker simulated: {problem}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Add the seed of a failed simulated test to its line of the summary, and the broker's log to
    the report of a failed test with `odradek_cluster`."""
    report: Any = yield
    cluster = getattr(item, "funcargs", {}).get("odradek_cluster")
    if report.failed and cluster is not None:
        report.sections.append(("Log of odradek_cluster", cluster.log_tail()))
    crash = getattr(report.longrepr, "reprcrash", None)
    if report.when == "call" and report.failed and crash is not None and _SEED in item.stash:
        crash.message = f"seed {item.stash[_SEED]}: {crash.message}"
    return report


@pytest.fixture
def unique_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that only this test has, made from the name of the test."""
    import re

    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-.")
    return make_unique_topic(readable[:150] or "topic")


@pytest.fixture(scope="session")
def odradek_broker_settings() -> Mapping[str, object]:
    """The settings of the brokers, by default none; override this fixture in your own
    conftest.py."""
    return {}


@pytest.fixture(scope="session")
def odradek_clusters() -> Clusters:
    """The factory of clusters: `with odradek_clusters.create(settings) as cluster`."""
    from odradek_testkit.clusters import shared

    return shared()


@pytest.fixture
def odradek_cluster(
    odradek_clusters: Clusters, odradek_broker_settings: Mapping[str, object]
) -> Iterator[Cluster]:
    """A cluster for only this test, which is deleted after the test."""
    with odradek_clusters.create(odradek_broker_settings) as cluster:
        yield cluster
        _warn_of_unused_faults(cluster)


@pytest.fixture(scope="session")
def odradek_broker_session(
    odradek_broker_settings: Mapping[str, object],
) -> Iterator[SubprocessBroker]:
    """A broker for all tests that use the fixture, in a process of its own; its data is deleted at
    the end."""
    from odradek_testkit.broker import SubprocessBroker

    with SubprocessBroker(settings=_SETTINGS | dict(odradek_broker_settings)) as broker:
        yield broker


@pytest.fixture
def odradek_broker(
    tmp_path: Path, odradek_broker_settings: Mapping[str, object]
) -> Iterator[SubprocessBroker]:
    """A broker for only this test, in a separate process, with its data under `tmp_path`."""
    from odradek_testkit.broker import SubprocessBroker

    settings = _SETTINGS | dict(odradek_broker_settings)
    with SubprocessBroker(data_dir=tmp_path / "odradek", settings=settings) as broker:
        yield broker


@pytest.fixture
def odradek_faulty_broker(
    tmp_path: Path, odradek_broker_settings: Mapping[str, object]
) -> Iterator[SubprocessBroker]:
    """A broker like `odradek_broker`, into which faults can be injected with
    `odradek_faulty_broker.faults`."""
    from odradek_testkit.broker import SubprocessBroker

    settings = _SETTINGS | dict(odradek_broker_settings)
    folder = tmp_path / "odradek-faulty"
    with SubprocessBroker(data_dir=folder, settings=settings, testing=True) as broker:
        yield broker
        _warn_of_unused_faults(broker)


def _warn_of_unused_faults(ordered: Cluster | SubprocessBroker) -> None:
    from odradek_client.errors import OdradekError

    # A test may have ended its broker.
    with suppress(OdradekError):
        ordered.faults.warn_of_unused()


@pytest.fixture(scope="session")
def odradek_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A SparkSession on two cores for the whole run, or the active session if there is one.

    The test is skipped, with the reason, if PySpark or Java is missing. You may override this
    fixture in your own conftest.py.
    """
    from pyspark_odradek.session import (
        SHORT_JOB_OPTIONS,
        JavaNotFound,
        SparkNotFound,
        session,
        shut_down,
    )

    folder = tmp_path_factory.mktemp("spark")
    try:
        from pyspark.sql import SparkSession

        there = SparkSession.getActiveSession()
        spark = there or session(
            "odradek tests",
            "local[2,4]",
            log_file=folder / "spark.log",
            spark_local_dir=str(folder),
            spark_sql_warehouse_dir=str(folder / "warehouse"),
            spark_driver_extraJavaOptions=f"{SHORT_JOB_OPTIONS} -Djava.io.tmpdir={folder}",
            spark_sql_shuffle_partitions="2",
            spark_sql_session_timeZone="UTC",
        )
    except ImportError:
        pytest.skip("PySpark is not installed; `pip install 'odradek[spark]'` brings it")
    except (JavaNotFound, SparkNotFound) as error:
        pytest.skip(str(error))
    yield spark
    if there is None:
        shut_down(spark)


@pytest.fixture
def assert_exactly_once(
    odradek_spark: SparkSession, odradek_broker: SubprocessBroker, tmp_path: Path
) -> ExactlyOnceCheck:
    """The assertion that a query writes exactly once; see `ExactlyOnceCheck.__call__`."""
    from odradek_testkit.spark_testing import ExactlyOnceCheck

    return ExactlyOnceCheck(odradek_spark, odradek_broker, tmp_path)
