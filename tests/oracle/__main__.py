"""Record Kafka's answers, and compare with them.

    python -m tests.oracle record [NAME*]     start an Apache Kafka, play, keep its answers
    python -m tests.oracle check [NAME*]      start one, play twice: as recorded?
    python -m tests.oracle compare [NAME*]    our broker against the recording
    python -m tests.oracle list [NAME*]       the scenarios and their versions
    python -m tests.oracle page               write the sections of docs/compatibility.md
    python -m tests.oracle random [FAMILY*]   start both, play the random scenarios of --seeds

`--bootstrap HOST:PORT` uses a running broker in place of starting one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fnmatch
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from tests.oracle import recordings
from tests.oracle.differences import differing
from tests.oracle.judge import OUR_SETTINGS, compare
from tests.oracle.page import PAGE, page
from tests.oracle.play import Answers, play
from tests.oracle.random_scenarios.comparison import both_brokers, compare_seeds
from tests.oracle.random_scenarios.families import FAMILIES
from tests.oracle.scenarios import chosen

from broker_process import BrokerProcess
from kafka_cluster import KafkaCluster, compiled

_COMMANDS = ("record", "check", "compare", "list", "page", "random")
_RECEIVER = Path(__file__).parent / "java" / "TelemetryReceiver.java"


@contextlib.contextmanager
def _address(given: str | None, ours: bool) -> Iterator[tuple[str, int]]:
    if given is not None:
        host, _, port = given.rpartition(":")
        yield host, int(port)
        return
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        if ours:
            broker = BrokerProcess(Path(folder), OUR_SETTINGS)
            broker.start()
            try:
                yield "127.0.0.1", broker.port
            finally:
                broker.kill()
        else:
            # Without a plugin that receives client metrics, Kafka rejects all requests about them.
            plugins = compiled(_RECEIVER, Path(folder))
            settings = {"metric.reporters": _RECEIVER.stem}
            with KafkaCluster(Path(folder), settings=settings, plugins=plugins) as cluster:
                yield "127.0.0.1", cluster.nodes[0].port


def _played(
    address: tuple[str, int], pattern: str, salt: str
) -> dict[tuple[str, int], Answers | str]:
    runs = [(scenario, version) for _, scenario in chosen(pattern) for version in scenario.runs()]
    return asyncio.run(play(*address, runs, salt))


def _record(address: tuple[str, int], pattern: str) -> int:
    first, second = (_played(address, pattern, f"{os.getpid():x}{turn}") for turn in "ab")
    trouble = 0
    for module, scenario in chosen(pattern):
        kept: dict[int, Answers] = {}
        for version in scenario.runs():
            one, other = first[scenario.name, version], second[scenario.name, version]
            if isinstance(one, str) or isinstance(other, str):
                print(
                    f"BROKEN {scenario.name}-v{version}: {one if isinstance(one, str) else other}"
                )
                trouble += 1
                continue
            for path, was, now in differing(one, other):
                print(f"UNSTEADY {scenario.name}-v{version} {path}: {was!r}, then {now!r}")
                trouble += 1
            kept[version] = one
        if kept:
            recordings.save(module, scenario.name, scenario.api, kept)
    print(f"{len(first)} runs recorded, {trouble} broken or unsteady")
    return 1 if trouble else 0


def _check(address: tuple[str, int], pattern: str, turns: int) -> int:
    lines: list[str] = []
    for turn in range(turns):
        played = _played(address, pattern, f"{os.getpid():x}{turn}")
        lines += compare(played, pattern, with_reasons=False).lines
        print(f"turn {turn + 1}: {len(played)} runs", file=sys.stderr)
    print("\n".join(lines) if lines else "no difference")
    return 1 if lines else 0


def _compare(address: tuple[str, int], pattern: str, with_reasons: bool) -> int:
    played = _played(address, pattern, f"{os.getpid():x}")
    verdict = compare(played, pattern, with_reasons=with_reasons)
    print("\n".join(verdict.lines))
    print(
        f"{verdict.runs} runs: {verdict.unexplained_runs} differ without a reason, "
        f"{verdict.explained_runs} with one"
    )
    return 1 if verdict.lines else 0


def _random(pattern: str, seeds: Sequence[int]) -> int:
    differ = 0
    with (
        tempfile.TemporaryDirectory(prefix="oracle-") as folder,
        both_brokers(Path(folder)) as (kafka, ours),
    ):
        for number, family in enumerate(fnmatch.filter(FAMILIES, pattern)):
            found = asyncio.run(compare_seeds(kafka, ours, family, seeds, f"r{number}x"))
            print("\n".join([*map(str, found), f"{family}: {len(seeds)} scenarios,"]), end=" ")
            print(f"{len(found)} differ", flush=True)
            differ += len(found)
    return 1 if differ else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("pattern", nargs="?", default="*", help="names, or module/name, with *")
    parser.add_argument("--bootstrap", help="a broker that runs already, HOST:PORT")
    parser.add_argument("--strict", action="store_true", help="compare: reasons do not count")
    parser.add_argument("--turns", type=int, default=2, help="for check")
    parser.add_argument("--seeds", default="1-40", help="for random: FIRST-LAST")
    given = parser.parse_intermixed_args()
    if given.command == "list":
        for module, scenario in chosen(given.pattern):
            print(f"{module}/{scenario.name}: {scenario.api} {scenario.runs()}")
        return 0
    if given.command == "page":
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
        return 0
    if given.command == "random":
        first, _, last = given.seeds.partition("-")
        return _random(given.pattern, range(int(first), int(last or first) + 1))
    with _address(given.bootstrap, given.command == "compare") as address:
        if given.command == "record":
            return _record(address, given.pattern)
        if given.command == "check":
            return _check(address, given.pattern, given.turns)
        return _compare(address, given.pattern, not given.strict)


if __name__ == "__main__":
    sys.exit(main())
