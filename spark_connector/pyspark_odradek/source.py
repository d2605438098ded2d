"""The format "odradek": its name, its rows, its readers and writers.

PySpark looks up `DefaultSource` in every importable top-level module `pyspark_*`, so that
`format("odradek")` needs no `register`. Spark makes a new instance for each step of a query, for
some steps on executors. So the options are parsed where they are needed, and an instance has no
state.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_odradek.errors import OptionsError
from pyspark_odradek.options import QueryKind, columns_of, parse_sink, parse_source
from pyspark_odradek.schema import schema_of


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
        """The schema. All options are parsed, so that `load()` already reports problems."""
        # The options of both kinds of query are accepted, because batch and stream have one schema,
        # and Spark does not tell this method the kind of the query.
        parse_source(self.options, QueryKind.EITHER)
        return schema_of(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_odradek.batch_reader import BatchReader

        return BatchReader(parse_source(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_odradek.transactional_writer import TransactionalBatchWriter
        from pyspark_odradek.writer import BatchJobWriter

        if overwrite:
            problem = 'a topic cannot be overwritten; write with mode("append"), or delete the topic first'
            raise OptionsError([problem])
        options = parse_sink(self.options)
        kind = TransactionalBatchWriter if options.exactly_once else BatchJobWriter
        return kind(options, schema)

    # Spark passes the parameters of the following methods by name.

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_odradek.stream_reader import StreamReader

        return StreamReader(parse_source(self.options, QueryKind.STREAM), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from pyspark_odradek.transactional_writer import TransactionalStreamWriter
        from pyspark_odradek.writer import StreamWriter

        # `overwrite` means outputMode("complete"). As in Spark's own sink, the whole result is
        # written each time.
        options = parse_sink(self.options, streaming=True)
        kind = TransactionalStreamWriter if options.exactly_once else StreamWriter
        return kind(options, schema)
