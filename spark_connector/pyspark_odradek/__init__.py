"""Spark's way to Kafka topics in pure Python: `format("odradek")`, no JAR.

Importing this is cheap, needs no PySpark, and must not fail: PySpark imports every module called
`pyspark_*` when the first data source is looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_odradek.source import DefaultSource as DefaultSource


def __getattr__(name: str) -> Any:
    """`DefaultSource`, which PySpark asks for; what else is in this package does without
    PySpark."""
    if name == "DefaultSource":
        from pyspark_odradek.source import DefaultSource

        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
