"""Scenarios of random requests, each from a seed, which are sent to Kafka and to our broker.

Recorded scenarios ask what somebody thought of; these find what nobody did. They leave out what
ours deliberately answers differently (`tests/oracle/differences.py`, docs/compatibility.md), and
producers that mix the versions of transactions, as no client does.
"""
