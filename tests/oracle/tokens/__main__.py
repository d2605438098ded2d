"""Play the cases on an Apache Kafka, and record its answers."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from tests.oracle.tokens.cases import PLAINTEXT, SASL, settings
from tests.oracle.tokens.play import play

from kafka_cluster import KafkaCluster, free_ports

RECORDED = Path(__file__).with_name("recorded.json")
#: The controller answers before the broker has replayed the change.
_SETTLE_S = 1.0


def record() -> None:
    """Record Kafka's answers."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        cluster = KafkaCluster(Path(folder), settings=settings())
        node = cluster.nodes[0]
        node.add_listener(SASL, port, SASL)
        with cluster:
            addresses = {SASL: ("127.0.0.1", port), PLAINTEXT: ("127.0.0.1", node.port)}
            told = asyncio.run(play(addresses, settle_s=_SETTLE_S))
    RECORDED.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    record()
