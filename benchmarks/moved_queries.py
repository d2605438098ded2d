"""Two Spark queries that begin at one cluster and continue at another, for `benchmarks.mirror`.

    python -m benchmarks.moved_queries run HOST:PORT FOLDER
    python -m benchmarks.moved_queries count HOST:PORT FOLDER

`run` lets each query read all records that its topic has. The query `files` writes text files below
FOLDER, and the query `topic` writes the topic `moved-copy` exactly once. FOLDER also has the
checkpoints of both queries. `count` prints a JSON object with the number of rows that each query
has written, and the number of different rows among them.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

COPY = "moved-copy"
#: The topic that each query reads.
READS = {"files": "moved-00", "topic": "moved-01"}
_OFFSETS_OF_A_BATCH = "200000"


def checkpoint(folder: Path, query: str) -> Path:
    """The checkpoint of a query below FOLDER."""
    return folder / "checkpoints" / query


def _run(spark: Any, bootstrap: str, folder: Path) -> None:
    for query, topic in READS.items():
        frame = (
            spark.readStream.format("odradek")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .option("maxOffsetsPerTrigger", _OFFSETS_OF_A_BATCH)
            .load()
            # A row is the partition and the record's number.
            .selectExpr("concat(partition, ' ', substring(CAST(value AS STRING), 1, 10)) AS value")
        )
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint(folder, query)))
        if query == "topic":
            writer = writer.format("odradek").option("kafka.bootstrap.servers", bootstrap)
            writer = writer.option("topic", COPY)
        else:
            writer = writer.format("text").option("path", str(folder / "text"))
        writer.trigger(availableNow=True).start().awaitTermination()


def _count(spark: Any, bootstrap: str, folder: Path) -> dict[str, tuple[int, int]]:
    copies = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", COPY)
        .option("kafka.isolation.level", "read_committed")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    found = {"files": spark.read.text(str(folder / "text")), "topic": copies}
    return {query: (rows.count(), rows.distinct().count()) for query, rows in found.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("action", choices=("run", "count"))
    options.add_argument("bootstrap")
    options.add_argument("folder", type=Path)
    arguments = options.parse_args()
    from benchmarks.spark import spark_session

    spark = spark_session(None)
    try:
        if arguments.action == "run":
            _run(spark, arguments.bootstrap, arguments.folder)
        else:
            print(json.dumps(_count(spark, arguments.bootstrap, arguments.folder)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
