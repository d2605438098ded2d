"""The format itself: its name, its rows, its readers and writers.

PySpark asks every importable top-level module `pyspark_*` for a `DefaultSource`, so that
`format("odradek")` needs no `register`. An instance is made anew for each step of a query, some of them
on executors: options are parsed where they are needed and nothing is kept here.
"""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_odradek.errors import OptionsError
from pyspark_odradek.options import includes_headers, parse_sink, parse_source
from pyspark_odradek.schema import row_schema


class DefaultSource(DataSource):
    """`format("odradek")`: Kafka topics, with the options and rows of Spark's own `kafka` format.

    ::

        spark.read.format("odradek")
            .option("kafka.bootstrap.servers", "localhost:9092")
            .option("subscribe", "flights")
            .load()

        frame.selectExpr("carrier AS key", "to_json(struct(*)) AS value")
            .write.format("odradek").mode("append")
            .option("kafka.bootstrap.servers", "localhost:9092")
            .option("topic", "flights")
            .save()
    """

    @classmethod
    def name(cls) -> str:
        return "odradek"

    def schema(self) -> StructType:
        """Parses all options, so that what is wrong is said by `load()` already."""
        # Spark does not say here whether the query is a stream.
        parse_source(self.options, streaming=True)
        return row_schema(includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_odradek.batch_reader import BatchReader

        return BatchReader(parse_source(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_odradek.transactional_writer import TransactionalBatchWriter
        from pyspark_odradek.writer import BatchWriter

        _refuse_overwrite(overwrite)
        options = parse_sink(self.options)
        kind = TransactionalBatchWriter if options.exactly_once else BatchWriter
        return kind(options, schema)

    # The names of the parameters are part of the interface: Spark passes them by name.

    def streamReader(self, schema: StructType) -> NoReturn:
        _not_yet("readStream")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from pyspark_odradek.transactional_writer import TransactionalStreamWriter
        from pyspark_odradek.writer import StreamWriter

        _refuse_overwrite(overwrite)
        options = parse_sink(self.options, streaming=True)
        kind = TransactionalStreamWriter if options.exactly_once else StreamWriter
        return kind(options, schema)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OptionsError(
            [
                "a topic cannot be overwritten; write with mode(\"append\"), or delete the topic "
                'first (a stream: outputMode("append") or ("update"))'
            ]
        )


def _not_yet(what: str) -> NoReturn:
    raise NotImplementedError(
        f"odradek: {what} is not supported yet, only batch queries are. Use read and write with "
        'startingOffsets and endingOffsets, or Spark\'s own format("kafka") meanwhile'
    )
