"""Apache Kafka's answers during SASL authentication, request by request: `recorded.json`, and the
program that records it.

python -m tests.oracle.sasl records it again
"""
