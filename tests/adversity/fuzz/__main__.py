"""Search for bytes that break the product.

    python -m tests.adversity.fuzz TARGET... --minutes M     M minutes each; `all`: every target
    python -m tests.adversity.fuzz --list                    lists the targets

Inputs that reach new code are kept in the folder `--corpus`; the next run begins with them.
Findings are kept in `found/`.
Requires `pip install -e '.[fuzz]'`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.adversity.fuzz.target import FOLDER, TARGETS

_CORPUS = Path("~/.cache/odradek/fuzz").expanduser()
_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_EXECUTIONS = re.compile(r"^#(\d+)\t|number_of_executed_units: +(\d+)")


def _fuzz(name: str, seconds: int, corpus: Path) -> bool:
    """Run a worker; print its output and a summary. Returns False if the worker died or found
    a problem."""
    corpus.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.adversity.fuzz.worker", name, str(seconds), str(corpus)]
    worker = subprocess.Popen(
        command,
        cwd=FOLDER.parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    coverage, executions, findings = "", 0, 0
    assert worker.stdout is not None
    try:
        for line in worker.stdout:
            print(line, end="", flush=True)
            findings += line.startswith("FOUND ")
            if seen := _COVERAGE.search(line):
                coverage = "{} edges, {} features, {} inputs".format(*seen.groups())
            if count := _EXECUTIONS.search(line):
                executions = max(executions, int(count[1] or count[2]))
        code = worker.wait()
    finally:
        worker.kill()
    print(
        f"\n{name}: {seconds} s, {executions} executions, {coverage}, {findings} findings,"
        f" exit code {code}",
        flush=True,
    )
    return code == 0 and not findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.adversity.fuzz")
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)}; or all"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="for each target")
    parser.add_argument("--corpus", type=Path, default=_CORPUS, help=f"default: {_CORPUS}")
    parser.add_argument("--list", action="store_true", help="name the targets")
    given = parser.parse_args()
    if given.list:
        print("\n".join(TARGETS))
        return 0
    names = TARGETS if given.targets == ["all"] else given.targets
    if not names or not set(names) <= set(TARGETS):
        parser.error(f"name targets among: {', '.join(TARGETS)}; or all")
    sound = [_fuzz(name, int(given.minutes * 60), given.corpus / name) for name in names]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
