"""Exactly-once writes: docs/rules/spark.md has the protocol, rule by rule (S-01..).

`identity` has the names, `ledger` the decision log as values, `protocol` the steps of tasks and
driver; these are pure. `brokers` carries out the steps, `task` the transaction of a task.
"""
