"""Exactly-once writes: docs/rules/spark.md has the protocol, rule by rule (S-01..).

`identity` names, `ledger` is the decision log as values, `protocol` the steps of tasks and driver;
these are pure. `brokers` carries the steps out, `task` leaves a transaction open.
"""
