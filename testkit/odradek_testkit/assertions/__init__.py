"""Assertions about topics and groups. An assertion waits until it holds, or fails at its timeout.

    check = Assertions("127.0.0.1:9092")
    check.assert_produced("orders", b"4 apples", within_s=5)
    check.assert_lag_zero("billing")
    await check.aio.assert_produced("orders", {"key": "ada"})        # in async tests

A failure shows the records or offsets that were found and, with Odradek's broker, the reason, in
the words of `odradek explain`. Assertions work with any Kafka.
"""

from odradek_testkit.assertions.asynchronous import AsyncAssertions
from odradek_testkit.assertions.blocking import Assertions

__all__ = ["Assertions", "AsyncAssertions"]
