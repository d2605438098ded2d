"""Which combinations of listeners Apache Kafka takes: `recorded.json`, and how it was recorded.

python -m tests.oracle.listeners        asks Kafka again
"""
