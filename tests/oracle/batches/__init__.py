"""What becomes of odd batches: recorded from Apache Kafka, compared with ours.

Hundreds of batches (`cases.py`), made byte by byte with wrong fields (`malformed_batches.py`), are
produced one after another. Kept of each are the answer, how far the log moved, and what is stored.
`answers.json` has Kafka's; `differences.py` what differs on purpose, with the reason. A new case:
write it down, then

    python -m tests.oracle.batches record     (Java needed, see tests/support/kafka_cluster.py)
    python -m tests.oracle.batches compare
"""
