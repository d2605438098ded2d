"""The results of producing malformed batches: recorded from Apache Kafka, compared with ours.

Hundreds of batches (`cases.py`), encoded byte by byte with wrong fields (`malformed_batches.py`),
are produced one after another. The result of each is the answer, the growth of the log, and the
stored batch. `answers.json` has Kafka's results, `differences.py` the deliberate differences with
their reasons. For a new case, add it and run

    python -m tests.oracle.batches record     (Java needed, see tests/support/kafka_cluster.py)
    python -m tests.oracle.batches compare
"""
