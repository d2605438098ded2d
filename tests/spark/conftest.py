"""One Spark session and one broker for all tests of the format; topics keep the tests apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka.admin
import pytest

from foreign_topics import topic_maker
from live_brokers import live_broker
from odradek.spark import JavaNotFound, session, shut_down

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Timestamps of tests are old: nothing may be deleted for its age.
SETTINGS = {
    "log.durability": "page-cache",
    "log.retention.ms": "-1",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores whose files and output are under pytest's directory."""
    folder = tmp_path_factory.mktemp("spark")
    try:
        made = session(
            "odradek tests",
            "local[2]",
            log_file=folder / "spark.log",
            spark_local_dir=str(folder),
            spark_sql_warehouse_dir=str(folder / "warehouse"),
            # Short jobs: the second compiler would cost more than it brings.
            spark_driver_extraJavaOptions=f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={folder}",
            # A worker that starts late on a busy machine is no failure.
            spark_python_authenticate_socketTimeout="120s",
            spark_sql_shuffle_partitions="2",
            spark_sql_session_timeZone="UTC",
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
    """Creates a topic with so many partitions, under a name that no other test has."""
    return topic_maker(spark_broker)


@pytest.fixture
def produce(spark_broker: str) -> Callable[..., None]:
    """Sends records by somebody else's client: (partition, key, value, timestamp_ms, headers)."""

    def send(topic: str, records: Sequence[tuple[Any, ...]]) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": spark_broker, "log_level": 0})
        for partition, key, value, timestamp_ms, headers in records:
            producer.produce(
                topic,
                value,
                key,
                partition=partition,
                timestamp=timestamp_ms,
                headers=headers,
            )
        assert producer.flush(20) == 0

    return send
