"""Variants of our source and sink that measure the time of planning and commits, for
`benchmarks.spark`.

Spark's Python workers import this module, so it must be on their PYTHONPATH.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_odradek.source import DefaultSource
from pyspark_odradek.stream_reader import StreamReader
from pyspark_odradek.transactional_writer import TransactionalStreamWriter
from pyspark_odradek.writer import StreamWriter

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def timed(method: F) -> F:
    """Measure the time of the block, and append the name and the milliseconds to the file
    `timings`."""

    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        found = method(self, *arguments, **named)
        with self.timings.open("a") as file:
            file.write(f"{method.__name__} {(time.perf_counter() - started) * 1000:.3f}\n")
        return found

    return wrapper  # type: ignore[return-value]


class TimedReader(StreamReader):
    """Our stream reader, with the time of its work on the driver measured."""

    timings: Path
    latestOffset = timed(StreamReader.latestOffset)
    partitions = timed(StreamReader.partitions)


class TimedWriter(StreamWriter):
    """Our writer for at_least_once, with the time of its work on the driver measured."""

    timings: Path
    commit = timed(StreamWriter.commit)


class TimedTransactionalWriter(TransactionalStreamWriter):
    """Our writer for exactly_once, with the time of its work on the driver measured."""

    timings: Path
    commit = timed(TransactionalStreamWriter.commit)


class TimedSource(DefaultSource):
    """`format("odradek-timed")`: our source, with times measured. The option `timings` names the
    file for the times."""

    @classmethod
    def name(cls) -> str:
        return "odradek-timed"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        source, timings = self._ours()
        return _timed_as(TimedReader, source.streamReader(schema), timings)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        source, timings = self._ours()
        writer = source.streamWriter(schema, overwrite)
        if isinstance(writer, TransactionalStreamWriter):
            return _timed_as(TimedTransactionalWriter, writer, timings)
        return _timed_as(TimedWriter, writer, timings)

    def schema(self) -> StructType:
        return self._ours()[0].schema()

    def _ours(self) -> tuple[DefaultSource, Path]:
        options = dict(self.options)
        timings = Path(options.pop("timings"))
        return DefaultSource(options), timings


def _timed_as(kind: type[T], found: Any, timings: Path) -> T:
    found.__class__ = kind
    found.timings = timings
    made: T = found
    return made
