"""Play the cases on an Apache Kafka, and record its answers."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from tests.oracle.sasl.cases import PLAINTEXT, SASL, SETTINGS, SHORT
from tests.oracle.sasl.play import play, set_credentials

from kafka_cluster import KafkaCluster, free_ports

RECORDED = Path(__file__).with_name("recorded.json")
#: The time in s after which changed credentials are in force.
_SETTLE_S = 2.0


def record() -> None:
    """Record Kafka's answers."""
    ports = dict(zip((SASL, SHORT), free_ports(2), strict=True))
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        cluster = KafkaCluster(Path(folder), settings=SETTINGS)
        node = cluster.nodes[0]
        for name, port in ports.items():
            node.add_listener(name, port, SASL)
        with cluster:
            addresses = {name: ("127.0.0.1", port) for name, port in ports.items()}
            addresses[PLAINTEXT] = ("127.0.0.1", node.port)
            asyncio.run(set_credentials(addresses[PLAINTEXT]))
            time.sleep(_SETTLE_S)
            told = asyncio.run(play(addresses))
    RECORDED.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    record()
