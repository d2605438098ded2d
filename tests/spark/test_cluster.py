"""A Spark standalone cluster of real processes, as docs/spark/connector.md describes it.

pytest tests/spark/test_cluster.py -m slow
"""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek import NewTopic, sync
from odradek.broker import SubprocessBroker
from odradek.spark import JavaNotFound
from spark_cluster import environment, standalone_cluster, submit

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

ROWS = 5000

JOB = """
import sys
from pyspark.sql import SparkSession

bootstrap, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("on a cluster").getOrCreate()
assert spark.sparkContext.master.startswith("spark://")
query = (
    spark.readStream.format("odradek")
    .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": "in"})
    .option("startingOffsets", "earliest")
    .load()
    .select("key", "value")
    .writeStream.format("odradek")
    .options(**{"kafka.bootstrap.servers": bootstrap, "topic": "out"})
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
"""


def test_a_stream_runs_on_a_standalone_cluster(
    odradek_broker: SubprocessBroker, tmp_path: Path
) -> None:
    try:
        variables = environment()
    except JavaNotFound as error:
        pytest.skip(str(error))
    bootstrap = odradek_broker.bootstrap
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("in", 2), NewTopic("out", 2)])
    with sync.Producer(bootstrap_servers=bootstrap) as producer:
        sent = [producer.send("in", b"%d" % n) for n in range(ROWS)]
        producer.flush()
        for each in sent:
            each.result()
    job = tmp_path / "job.py"
    job.write_text(JOB)
    with standalone_cluster(tmp_path, variables) as master:
        submit(master, variables, job, [bootstrap, str(tmp_path / "checkpoint")])
    places = [("out", 0), ("out", 1)]
    found: list[bytes | None] = []
    with sync.Consumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        ends = consumer.end_offsets(*places)
        consumer.assign(places)
        while any(consumer.position(each) < end for each, end in ends.items()):
            found += [record.value for record in consumer.poll(1000)]
    assert sorted(found, key=lambda value: int(value or b"-1")) == [b"%d" % n for n in range(ROWS)]
