"""SASL authentication by Apache Kafka, request by request: `recorded.json`, and the program that
records it.

python -m tests.oracle.sasl asks Kafka again
"""
