"""Play the cases with an Apache Kafka, and record its answers.

With the argument `open`, only the cases without an authorizer are played.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from tests.oracle.tokens.cases import CASES, OPEN_CASES, PLAINTEXT, SASL, settings
from tests.oracle.tokens.play import play

from kafka_cluster import KafkaCluster, free_ports

RECORDED = Path(__file__).with_name("recorded.json")
OPEN_RECORDED = Path(__file__).with_name("recorded_without_authorizer.json")
#: The wait between the controller's answer and the next step. The broker applies the change in this
#: time, which is seconds on a busy machine.
_SETTLE_S = 3.0


def record(*, authorizer: bool) -> None:
    """Record Kafka's answers, with or without an authorizer."""
    cases, path = (CASES, RECORDED) if authorizer else (OPEN_CASES, OPEN_RECORDED)
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        cluster = KafkaCluster(Path(folder), settings=settings(authorizer=authorizer))
        node = cluster.nodes[0]
        node.add_listener(SASL, port, SASL)
        with cluster:
            addresses = {SASL: ("127.0.0.1", port), PLAINTEXT: ("127.0.0.1", node.port)}
            playing = play(addresses, cases, authorizer=authorizer, settle_s=_SETTLE_S)
            told = asyncio.run(playing)
    path.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["open"]:
        record(authorizer=True)
    record(authorizer=False)
