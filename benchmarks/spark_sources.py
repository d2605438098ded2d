"""Data sources in Python that do nothing, for `benchmarks.spark`: what Spark itself costs.

Spark's Python workers import this module, so it must lie on their PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


class NothingReader(DataSourceStreamReader):
    """One offset further each time, so many tasks, one row each."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._offset = 0

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        self._offset += 1
        return {"at": self._offset}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        yield (b"row",)


class NothingWriter(DataSourceStreamArrowWriter):
    """Counts nothing, keeps nothing."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        return

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        return


class NothingSource(DataSource):
    """`format("odradek-nothing")`."""

    @classmethod
    def name(cls) -> str:
        return "odradek-nothing"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: StructType) -> NothingReader:
        return NothingReader(int(self.options["partitions"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> NothingWriter:
        return NothingWriter()
