"""Faults that tests order over HTTP from a broker that was started with `--testing`.

A rule (`rules.py`) selects requests by API, topic, group, transactional id or client id, and
defines how and how often they fail; other rules make the disk slow or full. `orders.py` parses
rules from JSON; `answers.py` finds the names in a request and makes the error answer of every API.
Without `--testing` a broker does not load this package.

These faults are unrelated to the fault points of `platform/fault_points.py`, at which a broker
under test kills itself. No request can arm a fault point.
"""
