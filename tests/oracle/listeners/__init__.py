"""The combinations of listener settings that Apache Kafka accepts: `recorded.json`, and the program
that records it.

python -m tests.oracle.listeners records it again
"""
