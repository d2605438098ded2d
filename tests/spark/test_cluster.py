"""A Spark standalone cluster of real processes: what docs/spark/connector.md says of running on one.

pytest tests/spark/test_cluster.py -m slow
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from odradek import NewTopic, sync
from odradek.broker import SubprocessBroker
from odradek.spark import JavaNotFound, find_java, shim_home

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

SPARK_HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
HERE = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
WAIT_S = 120
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


@pytest.fixture
def environment() -> dict[str, str]:
    """For Spark's own scripts; every Python of the cluster is this one."""
    try:
        java = find_java()
    except JavaNotFound as error:
        pytest.skip(str(error))
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    return kept | {
        "JAVA_HOME": str(shim_home(java) if java.lacks_module else java.home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        # As if installed there: tests run from a checkout.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


@contextmanager
def daemon(
    folder: Path, environment: dict[str, str], ready: str, *arguments: str
) -> Iterator[re.Match[str]]:
    """One of Spark's processes until it says `ready`; ended by its pid."""
    log = folder / f"{arguments[0].rpartition('.')[2]}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=folder,
        )
    try:
        deadline = time.monotonic() + WAIT_S
        while (found := re.search(ready, log.read_text("utf-8", "replace"))) is None:
            assert process.poll() is None, log.read_text("utf-8", "replace")
            assert time.monotonic() < deadline, log.read_text("utf-8", "replace")
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_a_stream_runs_on_a_standalone_cluster(
    environment: dict[str, str], odradek_broker: SubprocessBroker, tmp_path: Path
) -> None:
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
    place = ["-c", "2", "-m", "1g", "-d", str(tmp_path / "work")]
    with (
        daemon(
            tmp_path, environment, r"Starting Spark master at (spark://\S+)", MASTER, *HERE
        ) as m,
        daemon(tmp_path, environment, "registered with master", WORKER, *HERE, *place, m[1]),
    ):
        submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", m[1]]
        for setting in (
            "spark.ui.enabled=false",
            "spark.driver.host=127.0.0.1",
            "spark.executor.memory=512m",
        ):
            submit += ["--conf", setting]
        run = subprocess.run(
            [*submit, str(job), bootstrap, str(tmp_path / "checkpoint")],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            check=False,
        )
        assert run.returncode == 0, run.stderr[-4000:]
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
