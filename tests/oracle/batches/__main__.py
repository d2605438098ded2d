"""Record Kafka's results for the batches, or compare ours with them.

python -m tests.oracle.batches record     start an Apache Kafka, ask twice, keep its answers
python -m tests.oracle.batches compare    our broker against the recording
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from tests.oracle.batches import recorded
from tests.oracle.batches.differences import compare

from broker_process import BrokerProcess
from kafka_cluster import KafkaCluster


def _record() -> int:
    turns = []
    for _ in range(2):
        with (
            tempfile.TemporaryDirectory(prefix="batches-") as folder,
            KafkaCluster(Path(folder)) as cluster,
        ):
            turns.append(asyncio.run(recorded.ask_all("127.0.0.1", cluster.nodes[0].port)))
    unsteady = [title for title, said in turns[0].items() if turns[1][title] != said]
    for title in unsteady:
        print(f"UNSTEADY {title}: {turns[0][title]}, then {turns[1][title]}")
    recorded.save(turns[0])
    print(f"{len(turns[0])} recorded")
    return 1 if unsteady else 0


def _compare() -> int:
    with tempfile.TemporaryDirectory(prefix="batches-") as folder:
        broker = BrokerProcess(Path(folder), ("log.durability=page-cache",))
        broker.start()
        try:
            ours = asyncio.run(recorded.ask_all("127.0.0.1", broker.port))
        finally:
            broker.stop()
    verdict = compare(recorded.load(), ours)
    print("\n".join(verdict.lines))
    print(f"{len(ours)} cases, {verdict.explained} differ for a reason")
    return 1 if verdict.lines else 0


if __name__ == "__main__":
    commands = {"record": _record, "compare": _compare}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    sys.exit(commands[sys.argv[1]]())
