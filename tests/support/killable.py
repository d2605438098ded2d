"""A broker, ours or Apache Kafka's, that a test may kill and start again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from broker_process import BrokerProcess
from kafka_cluster import KafkaCluster

#: Our settings beside those of a test: what was answered survives a kill, as do old records.
_OURS = {"log.durability": "fsync", "log.retention.ms": "-1"}


class Killable(NamedTuple):
    """A running broker. `restart` kills it (signal 9) and returns when it is up again, at the same
    address."""

    address: str
    restart: Callable[[], None]


@contextmanager
def killable(kind: str, folder: Path, settings: Mapping[str, str]) -> Iterator[Killable]:
    """Run a broker of a kind, "ours" or "kafka"; `settings` are names that both know."""
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
