"""An assertion that a user's query writes exactly once, used through the fixture
`assert_exactly_once`.

    def test_flights_are_written_once(assert_exactly_once):
        assert_exactly_once(my_transform, records)

`interruptions` has the injected failures, `verdict` the comparison of rows, `check` the runs.
"""

from odradek_testkit.spark_testing.check import ExactlyOnceCheck, Report
from odradek_testkit.spark_testing.interruptions import INTERRUPTIONS, InjectedFailure

__all__ = ["INTERRUPTIONS", "ExactlyOnceCheck", "InjectedFailure", "Report"]
