"""Data sources in Python that do nothing, for `benchmarks.spark`: they show Spark's own costs.

Spark's Python workers import this module, so it must be on their PYTHONPATH. It imports nothing of
ours, because that would add to the costs.
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


def spare_imports() -> None:
    """Make the change to garbage collection that our connector makes in Spark's workers."""
    from pyspark_odradek import blocking

    blocking.imports.spare()


class NothingReader(DataSourceStreamReader):
    """A reader whose offset grows by one with each batch. Each batch has `partitions` tasks with
    one row each."""

    def __init__(self, partitions: int, spares_imports: bool) -> None:
        self._partitions = partitions
        self._spares_imports = spares_imports
        self._offset = 0

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        self._offset += 1
        return {"at": self._offset}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        if self._spares_imports:
            spare_imports()
        yield (b"row",)


class NothingWriter(DataSourceStreamArrowWriter):
    """A writer that discards its rows."""

    def __init__(self, spares_imports: bool) -> None:
        self._spares_imports = spares_imports

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if self._spares_imports:
            spare_imports()
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        return

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        return


class NothingSource(DataSource):
    """`format("odradek-nothing")`. `sparesImports`: imported modules are excluded from garbage
    collections, as with our source."""

    @classmethod
    def name(cls) -> str:
        return "odradek-nothing"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: StructType) -> NothingReader:
        return NothingReader(int(self.options["partitions"]), self._spares_imports)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NothingWriter:
        return NothingWriter(self._spares_imports)

    @property
    def _spares_imports(self) -> bool:
        return self.options.get("sparesImports") == "true"
