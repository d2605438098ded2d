"""Let Apache Kafka check every combination of listener settings in `recorded.json`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parents[2] / "support"
RECORDED = Path(__file__).with_name("recorded.json")
_PROGRAM = Path(__file__).with_name("Listeners.java")


def record() -> None:
    """Record Kafka's result for each set of settings."""
    sys.path.insert(0, str(SUPPORT))
    from kafka_cluster import class_path, java

    cases = json.loads(RECORDED.read_text("utf-8"))
    asked = ""
    for case in cases:
        asked += "".join(f"{key}={value}\n" for key, value in case["settings"].items()) + "--\n"
    answers = subprocess.run(
        [java(), "-cp", class_path(), str(_PROGRAM)],
        input=asked,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    ).stdout.splitlines()
    for case, answer in zip(cases, answers, strict=True):
        case["kafka"] = answer
    RECORDED.write_text(json.dumps(cases, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    record()
