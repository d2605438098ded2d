"""Run the benchmarks of `ALL` one after another, and print the tables of
docs/operate/performance.md.

    python -m benchmarks [--json] > tables.md

A run takes about twenty minutes, and needs a machine that does nothing else.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.support import parser, say

ALL = (
    "broker",
    "clients",
    "transactions",
    "start",
    "codec",
    "append",
    "records",
    "validation",
    "groups",
)


def main() -> None:
    arguments = parser(__doc__).parse_args()
    options = ["--json"] if arguments.json else []
    failed = []
    for name in ALL:
        say(f"--- {name}")
        if not arguments.json:
            print(f"\n## python -m benchmarks.{name}\n", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False)
        if done.returncode:
            failed.append(name)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
