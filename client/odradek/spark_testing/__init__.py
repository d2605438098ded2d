"""Exactly-once as an assertion about a query of one's own; the fixture `assert_exactly_once` is its
door.

    def test_flights_are_written_once(assert_exactly_once):
        assert_exactly_once(my_transform, records)

`interruptions` has what goes wrong on purpose and how it gets into Spark's tasks, `verdict` what is
found and expected, `check` the runs.
"""

from odradek.spark_testing.check import ExactlyOnceCheck, Report
from odradek.spark_testing.interruptions import INTERRUPTIONS, InjectedFailure

__all__ = ["INTERRUPTIONS", "ExactlyOnceCheck", "InjectedFailure", "Report"]
