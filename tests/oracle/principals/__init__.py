"""The names that Kafka's mapper makes of certificates' names, for rules of all kinds.

python -m tests.oracle.principals    record the file again
"""
