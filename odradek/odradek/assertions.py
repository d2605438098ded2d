"""Public names of `odradek_testkit.assertions`."""

from odradek_testkit.assertions import (
    Assertions,
    AsyncAssertions,
)

__all__ = ["Assertions", "AsyncAssertions"]
