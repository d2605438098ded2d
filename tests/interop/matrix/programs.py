"""Ways to run a program of the matrix, and to read its checks from its output."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.interop.matrix import toolchains
from tests.interop.matrix.row import DEADLINE_S, KAFKA, Check, Place, executed, told

from foreign_programs import answered
from kafka_cluster import java as kafka_java
from kafka_cluster import spark_format_jars

_LONG_DEADLINE_S = 900
_OF_ALL = re.compile(r"(\d+) of (\d+) ")
_OF_GO = re.compile(r"^ *--- (?P<result>PASS|FAIL|SKIP): (?P<name>\S+) ", re.MULTILINE)

Run = Callable[[Path, Place], Sequence[Check]]


def _with_restarts(
    command: Sequence[str], place: Place, deadline_s: float = DEADLINE_S
) -> subprocess.CompletedProcess[str]:
    return answered(command, place.folder, lambda _: place.restart(), deadline_s=deadline_s)


def program(*command: str) -> Run:
    """Return a function that runs a program that prints its checks.

    `{tool}` in the command is replaced by the tool's path. When the program prints `wanted: ...`,
    the broker is killed and started again.
    """

    def run(tool: Path, place: Place) -> list[Check]:
        words = [word.format(tool=tool) for word in command or ("{tool}",)]
        return told(_with_restarts([*words, place.address, place.name], place))

    return run


def python(name: str, *arguments: str) -> Run:
    """Return a function that runs a program of the folder `python` in the tool's virtual
    environment; the program prints its checks."""
    return program("{tool}", str(toolchains.PYTHON / f"{name}.py"), *arguments)


def java(*runs: tuple[str, ...]) -> Run:
    """Return a function that runs programs of tests/interop/java with a class path.

    `runs`: the name of each program, and its arguments after the address. A program succeeds if its
    last line is `N of N things`.
    """

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
    """Return a function that runs a compiled program of tests/interop/java; the program prints its
    checks.

    The program's arguments are the address, a name, and an empty folder. When the program prints
    `wanted: restart`, the broker is killed and started again.
    """

    def run(tool: Path, place: Place) -> list[Check]:
        command = [kafka_java(), "-Xmx1g", *options, "-cp", str(tool), name]
        command += [place.address, place.name, str(place.folder)]
        return told(_with_restarts(command, place, _LONG_DEADLINE_S))

    return run


def spark(name: str) -> Run:
    """Return a function that runs a program of the folder `python` with this interpreter, because
    this interpreter has pyspark.

    The program's arguments are the jars of Spark's own `kafka` format in the folder `tool`, the
    address, a name, and an empty folder.
    """

    def run(tool: Path, place: Place) -> list[Check]:
        jars = ",".join(map(str, spark_format_jars(tool)))
        command = [sys.executable, str(toolchains.PYTHON / f"{name}.py"), jars]
        command += [place.address, place.name, str(place.folder)]
        return told(_with_restarts(command, place, _LONG_DEADLINE_S))

    return run


def compared() -> Run:
    """Return a function that runs a program that prints `CALL: RESULT` in each line.

    Each line is a check, which passes if the result is the same as in Apache Kafka's run. When the
    program prints `wanted: ...`, the broker is killed and started again.
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
    """The results by call. The key of a repeated call ends with a number."""
    seen: Counter[str] = Counter()
    results = {}
    for line in lines:
        call, _, result = line.partition(": ")
        seen[call] += 1
        results[call if seen[call] == 1 else f"{call} {seen[call]}"] = result
    return results


def go_tests(pattern: str, environment: Mapping[str, str], seeds: str) -> Run:
    """Return a function that runs those compiled tests of Go whose names match the pattern.

    `seeds`: the environment variable for the broker's address.
    """

    def run(tool: Path, place: Place) -> list[Check]:
        command = [str(tool), "-test.v", "-test.count=1", f"-test.timeout={_LONG_DEADLINE_S}s"]
        done = executed(
            [*command, "-test.run", pattern],
            place.folder,
            {**environment, seeds: place.address},
            deadline_s=_LONG_DEADLINE_S + 30,
        )
        results = {found["name"]: found["result"] for found in _OF_GO.finditer(done.stdout)}
        # The results of the subtests determine the result of their parent.
        parents = {name.rpartition("/")[0] for name in results}
        checks = [
            Check(name, "" if result == "PASS" else _output(name, done.stdout))
            for name, result in results.items()
            if name not in parents and result != "SKIP"
        ]
        if not checks or (done.returncode != 0 and not any(each.problem for each in checks)):
            checks.append(Check("the tests end well", (done.stdout + done.stderr)[-2000:]))
        return checks

    return run


def _output(name: str, printed: str) -> str:
    """The lines that a test of Go has printed before and after its result."""
    around = printed.partition(f"--- FAIL: {name} ")
    return (around[0][-1000:] + "".join(around[1:])[:1000]) or "failed"
