"""Spark reads and writes with a user's password, by batches and streams, including exactly-once,
and never shows the password."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.admin import NewTopic, UserScramCredentialUpsertion
from sasl_brokers import LISTENER, as_admin, as_user, scram_line

pytestmark = pytest.mark.spark

SECRET = "a-hidden-word"
MECHANISM = "SCRAM-SHA-512"
WAIT_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that has the user `job`."""
    settings = LISTENER | {"log.durability": "page-cache"}
    folder = tmp_path_factory.mktemp("broker")
    with SubprocessBroker(data_dir=folder, settings=settings) as broker:
        with sync.Admin(**as_admin(broker.bootstrap)) as admin:
            admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion("job", SECRET, MECHANISM)
            )
        yield broker.bootstrap


def options(broker: str, line: str = scram_line("job", SECRET)) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.jaas.config": line,
    }


def plans(spark: SparkSession) -> str:
    """The plans of all queries so far, as Spark's web pages show them."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    shown = [executions.apply(i) for i in range(executions.size())]
    return "".join(each.physicalPlanDescription() + str(each.description()) for each in shown)


@pytest.mark.full
def test_s17_a_stream_reads_and_writes_exactly_once(
    spark: SparkSession, broker: str, tmp_path: Path
) -> None:
    job = as_user(broker, MECHANISM, "job", SECRET)
    with sync.Admin(**job) as admin:
        admin.create_topics([NewTopic("in", 2), NewTopic("out", 2)])
    with sync.Producer(**job) as producer:
        for number in range(100):
            producer.send("in", str(number).encode())
    read = spark.readStream.format("odradek").options(**options(broker))
    frame = read.option("subscribe", "in").option("startingOffsets", "earliest").load()

    def run() -> list[Any]:
        query = (
            frame.selectExpr("value")
            .writeStream.format("odradek")
            .options(**options(broker))
            .option("topic", "out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            assert query.awaitTermination(WAIT_S)
            query.explain(extended=True)
        said = shown.getvalue() + json.dumps([each.json for each in query.recentProgress])
        assert SECRET not in said
        return list(query.recentProgress)

    assert run()
    with sync.Producer(**job) as producer:
        producer.send("in", b"100")
    run()
    table = spark.read.format("odradek").options(**options(broker)).option("subscribe", "out")
    committed = table.option("kafka.isolation.level", "read_committed").load()
    values = [int(row[0]) for row in committed.selectExpr("CAST(value AS STRING)").collect()]
    assert sorted(values) == list(range(101))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        committed.explain(extended=True)
    described = plans(spark)
    assert described and SECRET not in described + shown.getvalue()


@pytest.mark.full
def test_s17_a_batch_uses_a_password_from_a_file(
    spark: SparkSession, broker: str, tmp_path: Path
) -> None:
    """A task reads the file on the machine where it runs."""
    (tmp_path / "passwords").write_text(f"job={SECRET}\n", "utf-8")
    given = options(broker)
    del given["kafka.sasl.jaas.config"]
    given |= {
        "kafka.sasl.username": "job",
        "kafka.sasl.password": f"${{file:{tmp_path}/passwords:job}}",
    }
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("odradek").options(**given).option("topic", "t").mode("append").save()
    read = spark.read.format("odradek").options(**given).option("subscribe", "t").load()
    assert read.count() == 100
    assert SECRET not in plans(spark)


@pytest.mark.full
def test_s17_a_wrong_password_is_reported_at_once(spark: SparkSession, broker: str) -> None:
    wrong = "another-hidden-word"
    given = options(broker, scram_line("job", wrong))
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    for semantics in ("exactly_once", "at_least_once"):
        with pytest.raises(Exception, match=r"refuses user .job.") as writing:
            rows.write.format("odradek").options(**given, semantics=semantics).option(
                "topic", "t"
            ).mode("append").save()
        assert wrong not in str(writing.value)
    with pytest.raises(PySparkException, match=r"refuses user .job.") as reading:
        spark.read.format("odradek").options(**given).option("subscribe", "t").load().collect()
    assert wrong not in str(reading.value)
    assert wrong not in plans(spark)
