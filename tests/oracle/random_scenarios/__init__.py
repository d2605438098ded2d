"""Random scenarios: a seed determines the requests of each, which are sent to Kafka and to our
broker.

The recorded scenarios test cases that somebody has thought of; the random ones test other cases.
Random scenarios leave out the deliberate differences of our broker (`tests/oracle/differences.py`,
docs/compatibility.md), and producers that mix both versions of transactions, because no client does
so.
"""
