"""Let Apache Kafka's mapper map every name by every rule."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path

from tests.oracle.principals.cases import NAMES, NOT_SUPPORTED, REFUSED_HERE, RULES

SUPPORT = Path(__file__).parents[2] / "support"
RECORDED = Path(__file__).with_name("recorded.json")
_PROGRAM = Path(__file__).with_name("Principals.java")


def record() -> None:
    """Record the results: rules -> one for each name. `None`: the name has no principal."""
    sys.path.insert(0, str(SUPPORT))
    from kafka_cluster import class_path, java

    rules = (*RULES, *REFUSED_HERE, *NOT_SUPPORTED)
    asked = "".join(
        f"{b64encode(rule.encode()).decode()} {b64encode(name.encode()).decode()}\n"
        for rule in rules
        for name in NAMES
    )
    answers = subprocess.run(
        [java(), "-cp", class_path(), str(_PROGRAM)],
        input=asked,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    ).stdout.splitlines()
    found: dict[str, list[str | None] | str] = {}
    for index, rule in enumerate(rules):
        of_rule = answers[index * len(NAMES) : (index + 1) * len(NAMES)]
        assert len(of_rule) == len(NAMES)
        refused = of_rule[0] == "refused"
        found[rule] = "refused" if refused else [_name(answer) for answer in of_rule]
    lines = [f"{json.dumps(rule)}: {json.dumps(results)}" for rule, results in found.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _name(answer: str) -> str | None:
    return b64decode(answer[1:]).decode() if answer.startswith("=") else None


if __name__ == "__main__":
    record()
