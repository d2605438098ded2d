"""A data source of Spark for Kafka topics in pure Python: `format("odradek")`, without a JAR.

The import of this module is cheap, needs no PySpark, and must not fail: PySpark imports every
module with a name like `pyspark_*` when the first data source is looked up.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_odradek.source import DefaultSource as DefaultSource


def __getattr__(name: str) -> Any:
    """The attribute `DefaultSource`, which PySpark looks up. The class is imported only when it is
    looked up, because the rest of this package works without PySpark.
    """
    if name == "DefaultSource":
        from pyspark_odradek.source import DefaultSource

        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
