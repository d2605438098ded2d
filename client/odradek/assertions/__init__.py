"""Assertions about topics and groups, which wait until they hold or their time is over.

    check = Assertions("127.0.0.1:9092")
    check.assert_produced("orders", b"4 apples", within_s=5)
    check.assert_lag_zero("billing")
    await check.aio.assert_produced("orders", {"key": "ada"})        # in async tests

A failure shows what was found and, with our broker, why, in the words of `odradek explain`. They
work with any Kafka.
"""

from odradek.assertions.asynchronous import AsyncAssertions
from odradek.assertions.blocking import Assertions

__all__ = ["Assertions", "AsyncAssertions"]
