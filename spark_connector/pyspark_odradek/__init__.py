"""Spark's way to Kafka topics in pure Python: `format("odradek")`, no JAR.

Importing this is cheap, and must not fail: PySpark imports every module called `pyspark_*` when the
first data source is looked up.
"""

from __future__ import annotations

from pyspark_odradek.source import DefaultSource as DefaultSource
