"""Record the answers of the releases of Apache Kafka that can be emulated."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from tests.oracle.emulation.recorded import RELEASES, path_of
from tests.oracle.emulation.scenarios import SCENARIOS
from tests.oracle.play import Answers, play

from kafka_cluster import KafkaCluster


def _played(port: int, salt: str) -> dict[str, Answers]:
    runs = [(scenario, 3) for scenario in SCENARIOS]
    played = asyncio.run(play("127.0.0.1", port, runs, salt))
    broken = {name: answers for (name, _), answers in played.items() if isinstance(answers, str)}
    if broken:
        raise SystemExit(f"BROKEN: {broken}")
    return {name: answers for (name, _), answers in played.items() if not isinstance(answers, str)}


def record(profile: str) -> None:
    """Start a release, play everything twice, and keep the answers if they are the same both
    times."""
    with (
        tempfile.TemporaryDirectory(prefix="oracle-") as folder,
        KafkaCluster(Path(folder), version=RELEASES[profile]) as kafka,
    ):
        first, second = (_played(kafka.nodes[0].port, salt) for salt in "ab")
    if first != second:
        names = [name for name in first if first[name] != second[name]]
        raise SystemExit(f"{profile}: two turns differ in {names}")
    text = json.dumps(first, indent=1, sort_keys=True, ensure_ascii=False)
    path_of(profile).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] != ["record"]:
        raise SystemExit("python -m tests.oracle.emulation record [PROFILE]")
    for each in sys.argv[2:] or RELEASES:
        record(each)
