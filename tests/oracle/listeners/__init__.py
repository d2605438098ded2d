"""The combinations of listeners that Apache Kafka accepts: `recorded.json`, and the program that
records it.

python -m tests.oracle.listeners asks Kafka again
"""
