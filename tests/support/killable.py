"""A broker, ours or Apache Kafka's, that a test may kill and start again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from broker_process import BrokerProcess
from kafka_cluster import KafkaCluster

#: Settings for our broker in addition to those of a test: acknowledged records survive a kill, and
#: old records are kept.
_OURS = {"log.durability": "fsync", "log.retention.ms": "-1"}


class Killable(NamedTuple):
    """A running broker. `restart` kills it with SIGKILL, and returns when it is up again at the
    same address."""

    address: str
    restart: Callable[[], None]


@contextmanager
def killable(kind: str, folder: Path, settings: Mapping[str, str]) -> Iterator[Killable]:
    """Run a broker of a kind, "ours" or "kafka". `settings`: settings that both kinds know."""
    if kind == "kafka":
        with KafkaCluster(folder, 1, settings) as cluster:
            node = cluster.nodes[0]

            def restart_kafka() -> None:
                node.kill()
                node.start()
                node.wait_until_up()

            yield Killable(cluster.bootstrap, restart_kafka)
        return
    broker = BrokerProcess(folder, [f"{k}={v}" for k, v in {**settings, **_OURS}.items()])
    broker.start()

    def restart() -> None:
        broker.kill()
        broker.start()

    try:
        yield Killable(broker.address, restart)
        broker.stop()
    finally:
        broker.clean_up()
