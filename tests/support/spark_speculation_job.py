"""Batch writes and a stream whose first task is slow, so that Spark starts a second
attempt of the task.

python spark_speculation_job.py BOOTSTRAP FOLDER HOW SINK SOURCE HTTP
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE_S = 120
_ROW_BYTES = 1_000
_STARTS_MAX = 5
#: With "late": the delay of the answer that the first attempt waits for, the time after which the
#: second attempt begins, and the time for which the program waits for the first attempt.
_ANSWER_MS = 8_000
_LATER_S = 1.0
_END_S = 12.0


def rows_of(how: str, folder: str, http: str) -> Any:
    """Return the function for `mapInArrow` that makes rows, and waits in the attempts of task 0.

    With "stuck", the first attempt returns its rows, and then waits until it is killed. With
    "together", each of the two attempts returns its rows, and then waits until the other has done
    so. With "late", the first attempt gets its transactional id only when the other has committed.
    """

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        slow = context.partitionId() == 0

        def wait(name: str) -> None:
            deadline = time.monotonic() + PATIENCE_S
            while not Path(folder, name).exists() and time.monotonic() < deadline:
                time.sleep(0.01)

        if how == "late" and slow and attempt == 0:
            from odradek.faults import Faults

            wait("late-other-task")
            wait("late-1")
            Faults.at(http).delay("InitProducerId", _ANSWER_MS)
            Path(folder, "late-0").touch()
        elif how == "late" and slow:
            Path(folder, f"late-{attempt}").touch()
            wait("late-0")
            time.sleep(_LATER_S)
        for batch in batches:
            values = [f"{number:0{_ROW_BYTES}}" for number in batch.column(0).to_pylist()]
            yield pa.record_batch({"value": pa.array(values)})
        if how == "late":
            Path(folder, "late-other-task").touch()
        elif slow:
            Path(folder, f"{how}-{attempt}").touch()
            wait("nothing" if how == "stuck" and attempt == 0 else f"{how}-{1 - attempt}")

    return rows


def main() -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    from spark_stream import LATE_START

    bootstrap, folder, how, sink, source, http = sys.argv[1:]
    spark = SparkSession.builder.appName("speculation").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "topic": sink}
    how, _, kind = how.partition("-")
    if kind == "stream":
        read = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        frame = read.options(subscribe=source, startingOffsets="earliest").load()
        numbers = frame.selectExpr("cast(cast(value AS string) AS long) AS id")
        made = numbers.mapInArrow(rows_of(how, folder, http), "value string")
        writer = made.writeStream.format("odradek").options(**options)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
        for tries_left in reversed(range(_STARTS_MAX)):
            query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if LATE_START not in str(error) or not tries_left:
                    raise
            else:
                break
    else:
        made = spark.range(0, 2_000, 1, 2).mapInArrow(rows_of(how, folder, http), "value string")
        if kind == "named":
            options["commitId"] = how
        made.write.format("odradek").mode("append").options(**options).save()
    if how == "late":
        time.sleep(_END_S)
    spark.stop()


if __name__ == "__main__":
    main()
