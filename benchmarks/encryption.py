"""Costs of TLS and SASL, at our broker and at Kafka, with librdkafka as client.

    python -m benchmarks.encryption [--megabytes 200] [--rounds 3] [--no-kafka] [--json]

The client produces in plaintext and encrypted: records of 1 KB in batches of 1 MB and of 16 KB,
acks=all, no compression, one partition. Then it reads the topic from its beginning. Brokers and
listeners take turns. Our broker runs with page-cache durability, like Kafka. The ratio compares a
listener with the plaintext listener of the same broker in the same round. "CPU" is the broker's
processor time for a megabyte that is produced and consumed.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from benchmarks.support import Report, Spread, cpu_s, parser, say, shown

from odradek.broker import SubprocessBroker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from certificates import Authority
from kafka_cluster import KafkaCluster, KafkaUnavailable, class_path, free_ports, java

CA = Authority()
_PASSWORD = "changeit"
_VALUE = bytes(range(256)) * 4
_PATIENCE_S = 120.0
_BATCHES = {"1 MB": 1_000_000, "16 KB": 16_384}
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_admin: Any = confluent_kafka.admin


@dataclass
class Side:
    """A broker, with the address of its listener for each protocol."""

    name: str
    pid: int
    addresses: Mapping[str, str]
    #: The (produced MB/s, consumed MB/s, CPU ms per MB) of each round, by (batch, protocol).
    found: dict[tuple[str, str], list[tuple[float, float, float | None]]] = field(
        default_factory=dict
    )


def _settings(folder: Path) -> dict[str, str]:
    """The settings of the listeners, which both brokers share."""
    keystore = folder / "broker.p12"
    keystore.write_bytes(CA.issue().pkcs12(_PASSWORD))
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.password": _PASSWORD,
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{_JAAS} user_bench="secret";',
    }


@contextlib.contextmanager
def _ours(folder: Path) -> Iterator[Side]:
    ports = free_ports(3)
    names = ("PLAINTEXT", "SSL", "SASL_SSL")
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    settings: dict[str, object] = {
        "log.durability": "page-cache",
        "listeners": listeners,
        **_settings(folder),
    }
    with SubprocessBroker(listen=addresses["PLAINTEXT"], settings=settings) as broker:
        assert broker.pid is not None
        yield Side("odradek", broker.pid, addresses)


@contextlib.contextmanager
def _kafka(folder: Path) -> Iterator[Side]:
    cluster = KafkaCluster(folder / "kafka", settings=_settings(folder))
    node = cluster.nodes[0]
    ports = free_ports(2)
    for name, port in zip(("SSL", "SASL_SSL"), ports, strict=True):
        node.add_listener(name, port)
    with cluster:
        addresses = {"PLAINTEXT": cluster.bootstrap}
        addresses |= {
            name: f"127.0.0.1:{port}" for name, port in zip(("SSL", "SASL_SSL"), ports, strict=True)
        }
        yield Side("Apache Kafka", node.pid, addresses)


def _client(folder: Path, side: Side, protocol: str) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap.servers": side.addresses[protocol],
        "security.protocol": protocol,
        "log_level": 0,
    }
    if protocol != "PLAINTEXT":
        given["ssl.ca.location"] = str(folder / "ca.pem")
    if protocol == "SASL_SSL":
        given |= {"sasl.mechanism": "PLAIN", "sasl.username": "bench", "sasl.password": "secret"}
    return given


def _produce(settings: dict[str, Any], topic: str, batch_bytes: int, count: int) -> float:
    """Produce all records of a topic. Returns MB/s."""
    producer = confluent_kafka.Producer(
        {
            **settings,
            "batch.size": batch_bytes,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    producer.list_topics(topic, _PATIENCE_S)
    began_s = time.perf_counter()
    for number in range(count):
        producer.produce(topic, _VALUE)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(_PATIENCE_S):
        raise SystemExit("the records were not acknowledged in time")
    return count * len(_VALUE) / 1e6 / (time.perf_counter() - began_s)


def _consume(settings: dict[str, Any], topic: str, count: int) -> float:
    """Consume the topic. Returns MB/s, measured from the first record on."""
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left, began_s = count, 0.0
    while left > 0:
        got = consumer.consume(min(left, 10_000), _PATIENCE_S)
        if not got:
            raise SystemExit("the records did not come back in time")
        if not began_s:
            began_s, count, left = time.perf_counter(), count - len(got), left - len(got)
            continue
        left -= len(got)
    took_s = time.perf_counter() - began_s
    consumer.close()
    return count * len(_VALUE) / 1e6 / took_s


def _round(folder: Path, side: Side, protocol: str, batch: str, megabytes: int) -> None:
    settings = _client(folder, side, protocol)
    topic, count = f"t-{uuid.uuid4().hex[:8]}", megabytes * 1_000_000 // len(_VALUE)
    admin = _admin.AdminClient(settings)
    for made in admin.create_topics([_admin.NewTopic(topic, 1)]).values():
        made.result(_PATIENCE_S)
    before = cpu_s(side.pid)
    produced = _produce(settings, topic, _BATCHES[batch], count)
    consumed = _consume(settings, topic, count)
    after = cpu_s(side.pid)
    spent_ms = None if before is None or after is None else (after - before) / megabytes * 1000
    for gone in admin.delete_topics([topic]).values():
        gone.result(_PATIENCE_S)
    side.found.setdefault((batch, protocol), []).append((produced, consumed, spent_ms))


def _tell(report: Report, sides: list[Side]) -> None:
    columns = (
        "batches",
        "broker",
        "listener",
        "produce MB/s",
        "ratio",
        "consume MB/s",
        "ratio",
        "CPU ms/MB",
    )
    report.table("Encryption", columns)
    for batch in _BATCHES:
        for side in sides:
            plain = side.found[batch, "PLAINTEXT"]
            for protocol in side.addresses:
                rounds = side.found[batch, protocol]
                produced = Spread.of([each[0] for each in rounds])
                consumed = Spread.of([each[1] for each in rounds])
                ratios = (
                    Spread.of(
                        [one[0] / other[0] for one, other in zip(rounds, plain, strict=True)]
                    ),
                    Spread.of(
                        [one[1] / other[1] for one, other in zip(rounds, plain, strict=True)]
                    ),
                )
                spent = [each[2] for each in rounds if each[2] is not None]
                spent_ms = Spread.of(spent).median if spent else None
                report.row(
                    (
                        batch,
                        side.name,
                        protocol,
                        f"{produced.median:.0f}",
                        str(ratios[0]),
                        f"{consumed.median:.0f}",
                        str(ratios[1]),
                        shown(spent_ms, ".2f"),
                    ),
                    produced_mb_per_s=produced.median,
                    consumed_mb_per_s=consumed.median,
                    cpu_ms_per_mb=spent_ms,
                )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--megabytes", type=int, default=200)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--no-kafka", dest="kafka", action="store_false", help="ours alone")
    arguments = options.parse_args()
    report = Report("encryption", as_json=arguments.json)
    report.machine()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as held:
        folder = Path(name)
        CA.write(folder / "ca.pem")
        sides = [held.enter_context(_ours(folder))]
        if arguments.kafka:
            try:
                java()
                class_path()
                sides.append(held.enter_context(_kafka(folder)))
            except KafkaUnavailable as problem:
                say(f"without Apache Kafka: {problem}")
        # The first round is a warm-up, whose results are not used.
        for number in range(arguments.rounds + 1):
            for batch in _BATCHES:
                for side in sides:
                    for protocol in side.addresses:
                        say(f"round {number}: {batch}, {side.name}, {protocol}")
                        _round(folder, side, protocol, batch, arguments.megabytes)
            if not number:
                for side in sides:
                    side.found.clear()
        _tell(report, sides)


if __name__ == "__main__":
    main()
