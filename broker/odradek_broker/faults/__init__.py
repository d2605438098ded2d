"""Ordered faults of a broker that was started with `--testing`.

A rule (`rules.py`) selects requests by API, topic, group, transactional id or client id, and says
what becomes of them, and how often; it also has the files of a disk that is slow or full.
`orders.py` reads rules from JSON; `answers.py` finds the names in a request and gives the error
answer of every API. A broker that was started without the option has none of this.

Ordered faults are apart from the fault points of `platform/fault_points.py`, at which a broker
under test kills itself: no order arms one.
"""
