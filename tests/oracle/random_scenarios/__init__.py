"""Scenarios of random requests, each determined by a seed, which are sent to Kafka and to our
broker.

The recorded scenarios test what somebody has thought of; these test the rest. They leave out the
deliberate differences of our broker (`tests/oracle/differences.py`, docs/compatibility.md), and
producers that mix both versions of transactions, which no client does.
"""
