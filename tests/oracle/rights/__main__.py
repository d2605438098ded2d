"""The commands `record`, `list` and `random`; the docstring of the package describes them."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from tests.oracle.differences import differing
from tests.oracle.rights import recorded
from tests.oracle.rights.cases import CASES
from tests.oracle.rights.cells import Cell, cells
from tests.oracle.rights.random_cells import compare_seeds
from tests.oracle.rights.secured_kafka import SALTS, SecuredKafka
from tests.oracle.rights.turns import play


def _record(chosen: list[Cell]) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="rights-") as folder,
        SecuredKafka(Path(folder)) as kafka,
    ):
        first, second = (asyncio.run(play(kafka.connect, chosen, salt)) for salt in SALTS)
    trouble = 0
    kept: dict[str, recorded.Turns] = {}
    by_name = {cell.name: cell.case.api for cell in chosen}
    for api in sorted(set(by_name.values())):
        turns = recorded.load(api)
        for (name, version), one in first.items():
            if by_name[name] != api:
                continue
            other = second[name, version]
            if isinstance(one, str) or isinstance(other, str):
                print(f"BROKEN {name}-v{version}: {one if isinstance(one, str) else other}")
                trouble += 1
                continue
            for path, was, now in differing(one, other):
                print(f"UNSTEADY {name}-v{version} {path}: {was!r}, then {now!r}")
                trouble += 1
            turns[name, version] = one
        kept[api] = turns
    known = {
        (cell.name, version)
        for case in CASES
        for cell in cells(case)
        for version in cell.scenario.runs()
    }
    for api, found in kept.items():
        recorded.save(api, {key: answers for key, answers in found.items() if key in known})
    print(f"{len(first)} turns recorded, {trouble} broken or unsteady")
    return 1 if trouble else 0


def _random(seeds: str) -> int:
    first, _, last = seeds.partition("-")
    chosen = range(int(first), int(last or first) + 1)
    with tempfile.TemporaryDirectory(prefix="rights-") as folder:
        found = compare_seeds(Path(folder), chosen)
    print("\n".join([*found, f"{len(chosen)} seeds, {len(found)} cells with different answers"]))
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.rights", description=__doc__)
    parser.add_argument("command", choices=["record", "list", "random"])
    parser.add_argument("pattern", nargs="?", default="*", help="names of cases or APIs, with *")
    parser.add_argument("--seeds", default="1-60", help="for random: FIRST-LAST, at most 1500")
    given = parser.parse_args()
    if given.command == "random":
        return _random(given.seeds)
    chosen = [
        cell
        for case in CASES
        if any(fnmatchcase(each, given.pattern) for each in (case.name, case.api))
        for cell in cells(case)
    ]
    if given.command == "list":
        for cell in chosen:
            print(f"{cell.name}: {cell.case.api} {cell.scenario.runs()}")
        return 0
    return _record(chosen)


if __name__ == "__main__":
    sys.exit(main())
