"""Foreign programs and tools, each run against our broker and an Apache Kafka.

    python -m tests.interop.matrix [ROW*]     run, keep the results, write docs/compatibility.md

`table.py` has the rows, `results.json` the last result of each row. A row whose toolchain or tool
is missing is skipped, and the reason is kept; its earlier result stays as it was.
"""
