"""Run rows of the matrix, keep their results and write them into docs/compatibility.md.

    python -m tests.interop.matrix [ROW*]

The exit code is 1 if a row passed on Apache Kafka but failed on our broker, and the row gives no
reason for the failure.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from tests.interop.matrix import results
from tests.interop.matrix.run import brokers, run
from tests.interop.matrix.table import ROWS
from tests.oracle.page import PAGE, page


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pattern", nargs="*", default=["*"], help="keys of rows, with *")
    given = parser.parse_args()
    wanted = [
        row for row in ROWS if any(fnmatch.fnmatchcase(row.key, each) for each in given.pattern)
    ]
    kept = {row.key: found for row in ROWS if (found := results.load().get(row.key)) is not None}
    unexplained = 0
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder, brokers(Path(folder)) as both:
        for row in wanted:
            found = run(row, both, Path(folder))
            if not found.skipped or row.key not in kept:
                kept[row.key] = found
                results.save(kept)
            unexplained += found.differ and not row.differs
            print(
                f"{row.key}: skipped: {found.skipped}"
                if found.skipped
                else f"{row.key}: Odradek {found.ours}, Kafka {found.kafka}",
                flush=True,
            )
    if all(row.key in kept for row in ROWS):
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
