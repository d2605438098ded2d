"""Ordered faults of a broker that was started with `--testing`.

A rule (`rules.py`) selects requests by API, topic, group, transactional id or client id, and
defines their failure and the number of failures; rules also make the disk slow or full. `orders.py`
parses rules from JSON; `answers.py` finds the names in a request and makes the error answer of
every API. A broker that was started without the option loads none of this.

Ordered faults are unrelated to the fault points of `platform/fault_points.py`, at which a broker
under test kills itself: no order arms a fault point.
"""
