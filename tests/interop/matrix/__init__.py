"""Programs and tools of others, each run against our broker and an Apache Kafka.

    python -m tests.interop.matrix [ROW*]     run, keep the results, write docs/compatibility.md

The rows are in `table.py`, the results of the last run of each in `results.json`. A row whose
toolchain or tool is missing is skipped, with the reason; its result stays as it was.
"""
