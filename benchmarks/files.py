"""Comparison of `odradek produce` and `odradek consume` with kcat: a file to a topic and back.

    python -m benchmarks.files [--rounds 3] [--records 1000000] [--size 100] [--json]

The file has one record per line; the broker is ours, with page-cache durability. The programs take
turns, each in a separate process. The result is the processor time of the process (user and
system), including its start. The output is compared with the file. kcat is in Debian's packages
(`apt-get install kcat`); without kcat there is no ratio.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.clients import delete, topic_with
from benchmarks.support import Report, Spread, odradek_broker, parser, say

#: The target: a multiple of kcat's processor time.
TARGET = 3.0
_PATIENCE_S = 600


def spent_s(command: list[str], stdout: Path) -> tuple[float, float]:
    """Run a program. Returns its processor time and wall time. Raises SystemExit if it fails."""
    before, started = os.times(), time.perf_counter()
    with stdout.open("wb") as out:
        done = subprocess.run(command, stdout=out, check=False, timeout=_PATIENCE_S)
    after, wall_s = os.times(), time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    user_s = after.children_user - before.children_user
    return user_s + after.children_system - before.children_system, wall_s


def write_lines(path: Path, records: int, size: int) -> None:
    """Write a file of lines that all differ in their first bytes."""
    rest = b"".join(b"%c" % (97 + index % 26) for index in range(size - 12)) + b"\n"
    with path.open("wb") as file:
        for index in range(records):
            file.write(b"%012d" % index + rest)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--size", type=int, default=100, help="bytes of a line")
    arguments = options.parse_args()
    if arguments.size < 12:
        options.error("--size: a line has at least 12 bytes")
    report = Report("files", as_json=arguments.json)
    report.machine()
    odradek = [sys.executable, "-m", "odradek"]
    kcat = shutil.which("kcat")
    with (
        tempfile.TemporaryDirectory(prefix="odradek-files-") as folder,
        odradek_broker("page-cache", metrics=False) as broker,
    ):
        source, result = Path(folder, "lines"), Path(folder, "result")
        write_lines(source, arguments.records, arguments.size)
        at, file = ["-b", broker.bootstrap], str(source)
        spent: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number in range(arguments.rounds):
            say(f"round {number + 1}")
            for name in ("odradek", "kcat") if kcat else ("odradek",):
                topic = topic_with(broker.bootstrap, 1)
                if name == "odradek":
                    produce = [*odradek, "produce", *at, topic, file]
                    consume = [*odradek, "consume", *at, topic, "-e"]
                else:
                    produce = ["kcat", *at, "-P", "-t", topic, "-l", file]
                    consume = ["kcat", *at, "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
                for what, command in (("produce", produce), ("consume", consume)):
                    spent.setdefault((what, name), []).append(spent_s(command, result))
                if not filecmp.cmp(source, result, shallow=False):
                    raise SystemExit(f"{name} read something else than it wrote")
                delete(broker.bootstrap, topic)
    report.table(
        f"{arguments.records:,} lines of {arguments.size} B (target: {TARGET} x kcat)",
        ("program", "CPU s", "wall s", "x kcat's CPU"),
    )
    for (what, name), times in spent.items():
        cpu_s = statistics.median(cpu for cpu, _ in times)
        wall_s = statistics.median(wall for _, wall in times)
        base = spent.get((what, "kcat"))
        ratio = (
            Spread.of([a / b for (a, _), (b, _) in zip(times, base, strict=True)]) if base else None
        )
        missed = ratio is not None and ratio.median > TARGET
        report.row(
            (
                f"{name} {what}",
                f"{cpu_s:.2f}",
                f"{wall_s:.2f}",
                "-" if ratio is None else str(ratio) + (" **missed**" if missed else ""),
            ),
            cpu_s=round(cpu_s, 3),
            wall_s=round(wall_s, 3),
            ratio=None if ratio is None else round(ratio.median, 3),
            met=not missed,
        )


if __name__ == "__main__":
    main()
