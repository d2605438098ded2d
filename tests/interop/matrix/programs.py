"""Ways to run a program of the matrix and to read its checks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.interop.matrix import toolchains
from tests.interop.matrix.row import DEADLINE_S, KAFKA, OURS, Check, Place, executed, told

from foreign_programs import answered
from kafka_cluster import java as kafka_java
from kafka_cluster import spark_format_jars

ROOT = Path(__file__).resolve().parents[3]
_SUITE_DEADLINE_S = 3000
_LONG_DEADLINE_S = 900
_OF_ALL = re.compile(r"(\d+) of (\d+) ")
_BROKER = re.compile(rf"\[({OURS}|{KAFKA})\b")

Run = Callable[[Path, Place], Sequence[Check]]


def _with_restarts(
    command: Sequence[str], place: Place, deadline_s: float = DEADLINE_S
) -> subprocess.CompletedProcess[str]:
    return answered(command, place.folder, lambda _: place.restart(), deadline_s=deadline_s)


def program(*command: str) -> Run:
    """Runs a program, which tells its checks: `{tool}` in a command stands for the tool's path.

    A program that prints `wanted: ...` gets the broker killed and started again.
    """

    def run(tool: Path, place: Place) -> list[Check]:
        words = [word.format(tool=tool) for word in command or ("{tool}",)]
        return told(_with_restarts([*words, place.address, place.name], place))

    return run


def python(name: str, *arguments: str) -> Run:
    """Runs a program of the folder `python`, which tells its checks, in the tool's environment."""
    return program("{tool}", str(toolchains.PYTHON / f"{name}.py"), *arguments)


def java(*runs: tuple[str, ...]) -> Run:
    """Runs programs of tests/interop/java on a class path: their names, and arguments behind the
    address. The last line of each, `N of N things`, tells that all is well."""

    def run(tool: Path, place: Place) -> list[Check]:
        checks: list[Check] = []
        for name, *arguments in runs:
            command: list[str | Path] = [
                kafka_java(),
                "-cp",
                tool,
                toolchains.JAVA / f"{name}.java",
            ]
            done = executed([*command, place.address, *arguments], place.folder)
            last = (done.stdout.splitlines() or [""])[-1]
            found = _OF_ALL.match(last)
            well = done.returncode == 0 and found is not None and found[1] == found[2]
            problem = "" if well else (done.stdout + done.stderr)[-2000:] or "no output"
            checks.append(Check(" ".join((name, *arguments)), problem))
        return checks

    return run


def java_told(name: str, *options: str) -> Run:
    """Runs a compiled program of tests/interop/java, which tells its checks. Its arguments: the
    address, a name, and an empty folder. It may want the broker killed: `wanted: restart`."""

    def run(tool: Path, place: Place) -> list[Check]:
        command = [kafka_java(), "-Xmx1g", *options, "-cp", str(tool), name]
        command += [place.address, place.name, str(place.folder)]
        return told(_with_restarts(command, place, _LONG_DEADLINE_S))

    return run


def spark(name: str) -> Run:
    """Runs a program of the folder `python` with this interpreter, which has Spark, and jars of
    Spark's own format from the folder `tool`. Its arguments: the jars, and java_told's."""

    def run(tool: Path, place: Place) -> list[Check]:
        jars = ",".join(map(str, spark_format_jars(tool)))
        command = [sys.executable, str(toolchains.PYTHON / f"{name}.py"), jars]
        command += [place.address, place.name, str(place.folder)]
        return told(_with_restarts(command, place, _LONG_DEADLINE_S))

    return run


def compared() -> Run:
    """Runs a program that prints `CALL: RESULT`, the same at any broker.

    Each line is a check, which fails here if the result is not that of Apache Kafka's run. A
    program that prints `wanted: ...` gets the broker killed and started again.
    """
    results_at_kafka: dict[str, str] = {}

    def run(tool: Path, place: Place) -> list[Check]:
        done = _with_restarts([str(tool), place.address], place)
        printed = _by_call(done.stdout.splitlines())
        if place.kind == KAFKA:
            results_at_kafka.clear()
            results_at_kafka.update(printed)
        checks = [
            Check(call, "" if result == results_at_kafka.get(call) else f"the result is {result}")
            for call, result in printed.items()
        ]
        if done.returncode != 0:
            checks.append(Check("the program ends well", done.stderr[-2000:]))
        return checks

    return run


def _by_call(lines: Sequence[str]) -> dict[str, str]:
    """The results by their calls; a repeated call has a number behind it."""
    seen: Counter[str] = Counter()
    results = {}
    for line in lines:
        call, _, result = line.partition(": ")
        seen[call] += 1
        results[call if seen[call] == 1 else f"{call} {seen[call]}"] = result
    return results


def suite(*arguments: str) -> Run:
    """Runs tests of this repository, which start their own brokers.

    The first parameter of a test is the broker that it is for, `ours` or `kafka`; a test without
    one compares both.
    """
    reported: list[ElementTree.Element] = []

    def run(_: Path, place: Place) -> list[Check]:
        if place.kind == KAFKA:  # all tests run with this one, for both brokers
            report = place.folder / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
            command += ["--kafka", "--budget=full", f"--junitxml={report}", *arguments]
            done = executed(command, ROOT, deadline_s=_SUITE_DEADLINE_S)
            if not report.exists():
                return [Check("the tests are found", (done.stdout + done.stderr)[-2000:])]
            reported[:] = ElementTree.parse(report).iter("testcase")
        return list(_of_broker(reported, place.kind))

    return run


def _of_broker(cases: Sequence[ElementTree.Element], kind: str) -> Iterator[Check]:
    for case in cases:
        name = case.get("name", "")
        broker = _BROKER.search(name)
        if case.find("skipped") is None and (broker is None or broker[1] == kind):
            problems = [case.find(each) for each in ("failure", "error")]
            found = [each.get("message", "failed") for each in problems if each is not None]
            yield Check(_BROKER.sub("[", name), found[0] if found else "")
