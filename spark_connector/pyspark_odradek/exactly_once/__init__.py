"""Exactly-once writes: docs/rules/spark.md has the protocol, rule by rule (S-01..).

Three modules are pure: `identity` has the names, `ledger` the records of the decision log, and
`protocol` the steps of tasks and driver. `brokers` carries out the steps, and `task` has the
transaction of a task.
"""
