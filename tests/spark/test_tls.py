"""Spark reads and writes with TLS, and does not show its secrets."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from certificates import Authority
from odradek.broker import SubprocessBroker

SECRET = "a-secret-word"
CA = Authority()


@pytest.fixture
def options(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options of a job, for a broker that requires client certificates."""
    CA.write(tmp_path / "ca.pem")
    CA.issue().write(tmp_path / "broker.pem")
    CA.issue("job", ()).write(tmp_path / "job.pem", SECRET)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tmp_path / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": tmp_path / "ca.pem",
        "ssl.client.auth": "required",
    }
    with SubprocessBroker(settings=settings) as broker:
        yield {
            "kafka.bootstrap.servers": broker.bootstrap,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(tmp_path / "job.pem"),
            "kafka.ssl.key.password": SECRET,
        }


@pytest.mark.full
@pytest.mark.spark
def test_n19_batches_are_written_and_read_over_mutual_tls(
    spark: SparkSession, options: dict[str, str]
) -> None:
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("odradek").options(**options).option("topic", "t").mode("append").save()
    read = spark.read.format("odradek").options(**options).option("subscribe", "t").load()
    values = read.selectExpr("CAST(value AS STRING)").collect()
    assert sorted(int(row[0]) for row in values) == list(range(100))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        read.explain(extended=True)
    jvm_session = spark._jsparkSession
    executions = jvm_session.sharedState().statusStore().executionsList()
    plans = [executions.apply(i).physicalPlanDescription() for i in range(executions.size())]
    assert plans and all(SECRET not in plan for plan in [*plans, shown.getvalue()])
