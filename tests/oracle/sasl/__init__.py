"""How Apache Kafka authenticates by SASL, request by request: `recorded.json`, and how it was
recorded.

python -m tests.oracle.sasl        asks Kafka again
"""
