"""The recorded answers: `answers/<api>.json`, cell by cell. Equal answers of several versions are
stored once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.oracle.play import Answers

FOLDER = Path(__file__).parent / "answers"
#: (name of the cell, version) -> the answers of that turn.
Turns = Mapping[tuple[str, int], Answers]


def path_of(api: str) -> Path:
    return FOLDER / f"{api}.json"


def load(api: str) -> dict[tuple[str, int], Answers]:
    """The recorded turns; empty if there are none."""
    path = path_of(api)
    if not path.exists():
        return {}
    found: dict[str, list[dict[str, Any]]] = json.loads(path.read_text("utf-8"))
    return {
        (name, version): [
            {**answer, "api": answer["api"].replace(" v*", f" v{version}")}
            for answer in part["answers"]
        ]
        for name, parts in found.items()
        for part in parts
        for version in part["versions"]
    }


def save(api: str, turns: Turns) -> None:
    """Write the file of an API."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for (name, version), answers in sorted(turns.items()):
        shown = [_without_version(answer, api, version) for answer in answers]
        parts = cells.setdefault(name, [])
        same = next((part for part in parts if part["answers"] == shown), None)
        if same is None:
            parts.append({"versions": [version], "answers": shown})
        else:
            same["versions"].append(version)
    path_of(api).parent.mkdir(exist_ok=True)
    path_of(api).write_text(_written(cells), "utf-8")


def _without_version(answer: dict[str, Any], api: str, version: int) -> dict[str, Any]:
    return {**answer, "api": f"{api} v*"} if answer["api"] == f"{api} v{version}" else answer


def _written(cells: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The file's text, one answer per line."""
    shown = []
    for name, parts in cells.items():
        lines = [
            f'  {{"versions": {json.dumps(part["versions"])}, "answers": [\n'
            + ",\n".join(
                "   " + json.dumps(answer, sort_keys=True, ensure_ascii=False)
                for answer in part["answers"]
            )
            + "\n  ]}"
            for part in parts
        ]
        shown.append(f" {json.dumps(name)}: [\n" + ",\n".join(lines) + "\n ]")
    return "{\n" + ",\n".join(shown) + "\n}\n"
