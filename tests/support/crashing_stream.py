"""A Spark application that tests kill: it writes text files to a topic, in a batch for each file.

    python -m crashing_stream FOLDER BROKER TOPIC SEMANTICS

FOLDER has the checkpoint, `in/`, `later/` and `faults/`; the application writes the JVM's pid to
`jvm.pid` there. It runs two queries: the first writes the first file; the second, with the fault
points armed, writes the others. The exit code is 0 if both queries succeeded.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TASKS = 2


def main(folder: Path, broker: str, topic: str, semantics: str) -> None:
    """Write all files of `in/` and `later/`."""
    from odradek.spark import SHORT_JOB_OPTIONS, session

    # A task may fail twice before its batch fails; a batch must not fail.
    spark = session(
        "crashing",
        f"local[{TASKS},3]",
        log_file=folder / "spark.log",
        spark_sql_shuffle_partitions=str(TASKS),
        spark_ui_enabled="false",
        spark_driver_extraJavaOptions=SHORT_JOB_OPTIONS,
    )
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    (folder / "jvm.pid").write_text(str(gateway.proc.pid))

    def write() -> None:
        read = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in"))
        query = (
            read.repartition(TASKS)
            .writeStream.format("odradek")
            .option("kafka.bootstrap.servers", broker)
            .option("topic", topic)
            .option("semantics", semantics)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    write()
    (folder / "faults" / "armed").touch()
    for path in sorted((folder / "later").iterdir()):
        path.rename(folder / "in" / path.name)
    write()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main(Path(sys.argv[1]), *sys.argv[2:])
