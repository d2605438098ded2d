"""Apache Kafka's answers during SASL authentication, request by request: `recorded.json`, and the
program that records this file.

    python -m tests.oracle.sasl    record the file again
"""
