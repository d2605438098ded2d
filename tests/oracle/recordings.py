"""The recorded answers: `answers/<module>/<scenario>.json`. Equal answers of several versions are
stored once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.oracle.play import Answers

FOLDER = Path(__file__).parent / "answers"


def path_of(module: str, scenario: str) -> Path:
    return FOLDER / module / f"{scenario}.json"


def load(module: str, scenario: str) -> dict[int, Answers]:
    """The recorded answers by version; empty if nothing is recorded."""
    path = path_of(module, scenario)
    if not path.exists():
        return {}
    parts = json.loads(path.read_text("utf-8"))
    return {
        version: [
            {**answer, "api": _with_version(answer["api"], version)} for answer in part["answers"]
        ]
        for part in parts
        for version in part["versions"]
    }


def save(module: str, scenario: str, api: str, answers: Mapping[int, Answers]) -> None:
    """Write the file of a scenario."""
    parts: list[dict[str, Any]] = []
    for version, given in sorted(answers.items()):
        shown = [{**a, "api": _without_version(a["api"], api, version)} for a in given]
        for part in parts:
            if part["answers"] == shown:
                part["versions"].append(version)
                break
        else:
            parts.append({"versions": [version], "answers": shown})
    path = path_of(module, scenario)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_written(parts), "utf-8")


def _without_version(name: str, api: str, version: int) -> str:
    return f"{api} v*" if name == f"{api} v{version}" else name


def _with_version(name: str, version: int) -> str:
    return name.replace(" v*", f" v{version}")


def _written(parts: list[dict[str, Any]]) -> str:
    """The file's text, one answer per line."""
    lines = []
    for part in parts:
        answers = ",\n".join(
            "  " + json.dumps(answer, sort_keys=True, ensure_ascii=False)
            for answer in part["answers"]
        )
        versions = json.dumps(part["versions"])
        lines.append(f' {{"versions": {versions}, "answers": [\n{answers}\n ]}}')
    return "[\n" + ",\n".join(lines) + "\n]\n"
