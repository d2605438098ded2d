"""Ordered faults: what the users of a broker that was started with `--testing` may let happen to
it.

A rule (`rules.py`) picks requests by API, topic, group, transactional id or client id, and says
what becomes of them, and how often. `orders.py` reads rules from JSON, `requests.py` tells what a
request names, `answers.py` gives the error answer of every API, `disk.py` the files of a disk that
is slow or full. Nothing of it is there in a broker that was started without the option.

These are apart from the fault points of `platform/fault_points.py`, at which a broker under test
kills itself: no order arms one.
"""
