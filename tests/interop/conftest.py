"""One broker for all foreign clients; each test uses its own topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker_process import BrokerProcess
from foreign_topics import topic_maker
from kafka_cluster import KafkaCluster

# Records of tests have old timestamps: retention must not delete them.
SETTINGS = [
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=500",
    "group.consumer.min.session.timeout.ms=500",
    "group.consumer.session.timeout.ms=3000",
    "group.consumer.min.heartbeat.interval.ms=50",
    "group.consumer.heartbeat.interval.ms=200",
    "log.durability=page-cache",
    "log.retention.ms=-1",
]


@pytest.fixture(scope="session")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker; the test run fails if it does not stop cleanly."""
    broker = BrokerProcess(tmp_path_factory.mktemp("interop"), SETTINGS)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def address(broker_process: BrokerProcess) -> str:
    return broker_process.address


@pytest.fixture(scope="session")
def new_topic(address: str) -> Callable[..., str]:
    """Return a function that creates a topic with a number of partitions, under a name that no
    other test uses."""
    return topic_maker(address)


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.kafka)])
def either(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of our broker with its default settings. With `--kafka` each test runs a second
    time, with the address of an Apache Kafka."""
    if request.param == "kafka":
        cluster: KafkaCluster = request.getfixturevalue("kafka")
        yield cluster.bootstrap
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("either"), ["log.retention.ms=-1"])
    broker.start()
    yield broker.address
    broker.stop()
