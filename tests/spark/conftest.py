"""One Spark session and one broker for all tests of the format; each test uses its own topics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foreign_topics import create_topic, delete_topic, send_records, topic_maker
from kafka_cluster import KafkaCluster, KafkaUnavailable, spark_format_jars, spark_jars
from live_brokers import live_broker
from odradek.spark import SHORT_JOB_OPTIONS, JavaNotFound, session, shut_down
from spark_stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Records of tests have old timestamps: retention must not delete them.
SETTINGS = {
    "log.durability": "page-cache",
    "log.retention.ms": "-1",
}


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the output of Spark and its workers."""
    folder: Path = tmp_path_factory.mktemp("spark")
    return folder / "spark.log"


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config, spark_log: Path) -> Iterator[SparkSession]:
    """A session on two cores; its files and output are in pytest's directory.

    With `--kafka` it also has Spark's own `kafka` format.
    """
    folder = spark_log.parent
    jars = []
    if pytestconfig.getoption("--kafka"):
        try:
            jars = spark_format_jars(spark_jars())
        except KafkaUnavailable as error:
            pytest.fail(f"--kafka was asked for, and cannot be had: {error}", pytrace=False)
    try:
        made = session(
            "odradek tests",
            "local[2]",
            log_file=spark_log,
            spark_local_dir=str(folder),
            spark_sql_warehouse_dir=str(folder / "warehouse"),
            spark_driver_extraJavaOptions=f"{SHORT_JOB_OPTIONS} -Djava.io.tmpdir={folder}",
            # A worker may start late on a busy machine, which must not fail the tests.
            spark_python_authenticate_socketTimeout="120s",
            spark_sql_shuffle_partitions="2",
            spark_sql_session_timeZone="UTC",
            **({"spark_jars": ",".join(map(str, jars))} if jars else {}),
        )
    except JavaNotFound as error:
        pytest.skip(str(error))
    yield made
    shut_down(made)


@pytest.fixture(scope="session")
def spark_broker(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a running broker."""
    folder: Path = tmp_path_factory.mktemp("broker")
    with live_broker(pytestconfig, SETTINGS, folder) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def new_topic(spark_broker: str) -> Callable[..., str]:
    """Return a function that creates a topic with a number of partitions, under a name that no
    other test uses."""
    return topic_maker(spark_broker)


@pytest.fixture
def produce(spark_broker: str) -> Callable[..., None]:
    """Return a function that sends records (partition, key, value, timestamp_ms, headers) with a
    foreign client."""

    return functools.partial(send_records, spark_broker)


@pytest.fixture
def stream(spark: SparkSession, spark_broker: str, tmp_path: Path) -> Callable[..., Stream]:
    """Return a function that makes a stream: `stream(subscribe=..., ...)`; options with dots are
    given as a dict."""

    def make(dotted: dict[str, str] | None = None, **options: str) -> Stream:
        given = {"startingOffsets": "earliest"} | options | (dotted or {})
        return Stream(spark, spark_broker, tmp_path / "checkpoint", given)

    return make


@pytest.fixture
def recreate_topic(spark_broker: str) -> Callable[[str], None]:
    """Return a function that deletes a topic, and creates a new topic of the same name with one
    partition."""

    def replace(topic: str) -> None:
        delete_topic(spark_broker, topic)
        create_topic(spark_broker, topic)

    return replace


@pytest.fixture(params=["odradek", "kafka"])
def either_broker(request: pytest.FixtureRequest) -> str:
    """Runs a test marked `kafka` twice: with the address of our broker, and with that of Apache
    Kafka."""
    if request.param == "odradek":
        address: str = request.getfixturevalue("spark_broker")
        return address
    cluster: KafkaCluster = request.getfixturevalue("kafka")
    return cluster.bootstrap
