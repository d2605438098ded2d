"""Names of local properties of Spark's tasks (S-01). They are internal to Spark and may change, so
tests check them."""

from __future__ import annotations

#: Of a stream: the id of the query, which its checkpoint keeps; the id of the query's run; the
#: number of the batch.
QUERY_PROPERTY = "sql.streaming.queryId"
RUN_PROPERTY = "spark.jobGroup.id"
BATCH_PROPERTY = "streaming.sql.batchId"
#: The number of the query in its session; jobs of an RDD have none.
EXECUTION_PROPERTY = "spark.sql.execution.id"
