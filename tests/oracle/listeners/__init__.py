"""The combinations of listener settings that Apache Kafka accepts: `recorded.json`, and the program
that records this file.

    python -m tests.oracle.listeners    record the file again
"""
