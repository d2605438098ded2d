"""The table "When something goes wrong" in docs/spark/connector.md: each usual mistake causes the
error in its row."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import budget
from odradek.broker import SubprocessBroker
from odradek.spark import SparkNotFound, find_java, session
from odradek_client.errors import ClusterAuthorizationFailed, UnknownTopicOrPartition
from pyspark_odradek.errors import SinkError
from pyspark_odradek.exactly_once.decision_log import DecisionLog

HERE = Path(__file__).parent
DOCUMENT = HERE.parent.parent / "docs" / "spark" / "connector.md"
NOBODY = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "1500"}
WAIT_S = 120

#: The beginning of a row -> the names of its tests.
TESTS = {
    "Spark needs Java 17": ["test_the_error_without_java_says_how_to_get_it"],
    "PySpark is not installed": ["test_the_error_without_pyspark_says_how_to_get_it"],
    "PYSPARK_PYTHON=...": ["test_the_error_names_an_interpreter_without_the_connector"],
    "DATA_SOURCE_NOT_FOUND": ["test_workers_without_the_package_do_not_find_the_format"],
    "DATA_SOURCE_NOT_FOUND for a write": ["test_writes_work_in_threads_that_have_called_session"],
    "Cannot run program": ["test_workers_without_their_interpreter_cannot_be_run"],
    "UNSUPPORTED_DATA_SOURCE_SAVE_MODE": ["test_a_write_needs_the_mode_append"],
    "a topic cannot be overwritten": ["test_only_the_save_mode_append_is_accepted"],
    "kafka.bootstrap.servers is missing": [
        "test_a_read_and_a_write_without_bootstrap_servers_are_refused",
        "test_a_stream_with_invalid_options_fails_when_it_starts",
    ],
    "no broker of": [
        "test_a_read_fails_within_the_time_limit_if_no_broker_is_reachable",
        "test_a_write_fails_within_the_time_limit_if_no_broker_is_reachable",
    ],
    "there is no topic": ["test_a_read_of_an_unknown_topic_or_partition_names_it"],
    "topic 'x' not found": ["test_a_write_to_a_missing_topic_names_it"],
    "there is no column value": [
        "test_columns_of_wrong_names_and_types_are_refused_before_a_write",
        "test_a_stream_with_invalid_options_fails_when_it_starts",
    ],
    "column value is int but must be": [
        "test_columns_of_wrong_names_and_types_are_refused_before_a_write"
    ],
    "the schema of a read is fixed": ["test_a_read_with_another_schema_is_refused"],
    "there is no option": ["test_the_error_for_an_unknown_option_names_the_nearest_one"],
    "DataLoss: ... the log starts at": ["test_records_deleted_by_retention_are_data_loss"],
    "DataLoss: a DataFrame that was planned": [
        "test_s21_a_stream_fails_if_a_static_topic_has_grown_since_it_was_loaded"
    ],
    "run ... was superseded": ["test_s06_the_older_of_two_runs_fails_and_names_the_newer"],
    "another job with commitId": [
        "test_s16_messages_for_jobs_speak_of_commit_ids_and_not_of_checkpoints"
    ],
    "is at batch 7, but batch 9 was written": [
        "test_an_outdated_copy_of_a_checkpoint_is_refused",
        "test_s07_an_outdated_checkpoint_is_refused",
    ],
    "was continued with a newer checkpoint": [
        "test_s19_the_old_checkpoint_is_refused_when_a_new_one_has_written"
    ],
    "commitVersion 2 ... is refused": [
        "test_s16_a_version_below_the_newest_is_refused_in_any_case"
    ],
    "was written with 10 rows, and now has 12": ["test_a_replay_with_other_rows_is_refused"],
    "was written with 10 rows for other topics": [
        "test_s07_a_replay_with_rows_for_other_topics_is_refused",
        "test_s07_a_stream_restarted_with_another_topic_fails_and_loses_no_batch",
    ],
    "the decision is revoked": ["test_s12_a_late_recovery_without_kip939_fails_and_loses_no_row"],
    "is lost in part": ["test_s11_a_partly_lost_batch_fails_the_query"],
    "the decision log ... cannot be created": [
        "test_a_decision_log_that_cannot_be_created_is_an_error"
    ],
    "semantics=exactly_once needs transactions": [
        "test_options_that_exactly_once_writes_cannot_obey_are_refused"
    ],
    "odradek does not support Update mode": ["test_the_update_mode_is_refused_by_spark"],
    "the checkpoint holds": ["test_the_checkpoint_of_another_source_is_refused"],
    "records may be lost": ["test_c1_a_topic_recreated_with_a_longer_log_is_data_loss"],
}


def rows() -> list[str]:
    """The first cell of each row of the table, without markup."""
    section = DOCUMENT.read_text().partition("## When something goes wrong")[2]
    table = section.partition("| What you see |")[2].partition("\n\n")[0].splitlines()[2:]
    return [line.strip("|").split(" |")[0].strip().replace("`", "") for line in table]


def test_every_row_of_the_table_has_its_tests() -> None:
    assert len(rows()) == len(TESTS)
    for row, beginning in zip(rows(), TESTS, strict=True):
        assert row.startswith(beginning)
    sources = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    defined = set(re.findall(r"^(?:async )?def (test_\w+)", sources, re.MULTILINE))
    assert {name for names in TESTS.values() for name in names} <= defined


# --- Tests that other files do not have -----------------------------------------------------------


def write(spark: SparkSession, mode: str = "append", **options: str) -> None:
    frame = spark.sql("SELECT 'x' AS value")
    frame.write.format("odradek").mode(mode).options(**options).save()


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["errorifexists", "ignore"])
def test_a_write_needs_the_mode_append(spark: SparkSession, mode: str) -> None:
    with pytest.raises(Exception, match=r'UNSUPPORTED_DATA_SOURCE_SAVE_MODE.*"Append"'):
        write(spark, mode, topic="t", **NOBODY)


@pytest.mark.spark
def test_a_read_and_a_write_without_bootstrap_servers_are_refused(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=re.escape("kafka.bootstrap.servers is missing; set it")):
        write(spark, topic="t")
    with pytest.raises(Exception, match=re.escape("kafka.bootstrap.servers is missing; set it")):
        spark.read.format("odradek").option("subscribe", "t").load()


@pytest.mark.spark
@pytest.mark.parametrize("semantics", ["exactly_once", "at_least_once"])
@pytest.mark.full
def test_a_write_fails_within_the_time_limit_if_no_broker_is_reachable(
    spark: SparkSession, semantics: str
) -> None:
    told = r"no broker of 127\.0\.0\.1:1 could be reached within 1500 ms"
    with pytest.raises(Exception, match=told):
        write(spark, topic="t", semantics=semantics, **NOBODY)


@pytest.mark.spark
@pytest.mark.full
def test_a_write_to_a_missing_topic_names_it(spark: SparkSession) -> None:
    with (
        SubprocessBroker(settings={"auto.create.topics.enable": "false"}) as broker,
        pytest.raises(Exception, match=r"topic 'nowhere' not found within 1500 ms.*create it"),
    ):
        options = NOBODY | {"kafka.bootstrap.servers": broker.bootstrap}
        write(spark, topic="nowhere", **options)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("column", "options", "told"),
    budget.of_which(
        [
            ("value", {"topic": "t"}, r"kafka\.bootstrap\.servers is missing"),
            (
                "other",
                {"topic": "t", **NOBODY},
                "there is no column `value`; the columns are other",
            ),
            ("value", NOBODY, "nothing says which topic"),
        ],
        [("value", NOBODY, "nothing says which topic")],
    ),
)
def test_a_stream_with_invalid_options_fails_when_it_starts(
    spark: SparkSession, tmp_path: Path, column: str, options: dict[str, str], told: str
) -> None:
    stream = spark.readStream.format("rate").load()
    frame = stream.selectExpr(f"CAST(value AS STRING) AS {column}")
    writer: Any = frame.writeStream.format("odradek").options(**options)
    with pytest.raises(Exception, match=told):
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(WAIT_S)


@pytest.mark.spark
def test_the_update_mode_is_refused_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().groupBy("value").count()
    counts = stream.selectExpr("CAST(count AS STRING) AS value")
    writer = counts.writeStream.format("odradek").outputMode("update").options(topic="t", **NOBODY)
    with pytest.raises(Exception, match="odradek does not support Update mode"):
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(WAIT_S)


async def test_a_decision_log_that_cannot_be_created_is_an_error() -> None:
    class Forbidding:
        async def describe_topics(self, topic: str) -> None:
            raise UnknownTopicOrPartition("it is not there")

        async def create_topics(self, topic: object) -> None:
            raise ClusterAuthorizationFailed("you may not")

    nothing: Any = None
    forbidding: Any = Forbidding()
    log = DecisionLog("decisions", nothing, forbidding, nothing)
    with pytest.raises(
        SinkError, match=r"no decision log decisions and it cannot be created.*Create"
    ):
        await log._create()


def run_alone(python: Path, job: str) -> str:
    """Run a program whose Spark uses this interpreter for all Python processes. The program must
    fail; returns its errors."""
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    environment.pop("PYSPARK_DRIVER_PYTHON", None)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    environment["JAVA_HOME"] = str(find_java().home)
    code = (
        "from pyspark.sql import SparkSession\n"
        "spark = (SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        ".config('spark.driver.host', '127.0.0.1').getOrCreate())\n" + job
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    return run.stderr


REGISTER = "from pyspark_odradek import DefaultSource\nspark.dataSource.register(DefaultSource)\n"
LOAD = "spark.read.format('odradek').options(subscribe='t').load()\n"


@pytest.mark.spark
@pytest.mark.full
def test_workers_without_the_package_do_not_find_the_format(tmp_path: Path) -> None:
    """The interpreter of the workers finds all packages except the connector's."""
    (tmp_path / "sitecustomize.py").write_text(
        "import pkgutil, sys\n"
        "sys.modules['pyspark_odradek'] = None\n"
        "every = pkgutil.iter_modules\n"
        "pkgutil.iter_modules = lambda *a: (m for m in every(*a) if m.name != 'pyspark_odradek')\n"
    )
    bare = tmp_path / "python"
    bare.write_text(
        f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    bare.chmod(0o755)
    said = run_alone(bare, LOAD)
    assert "DATA_SOURCE_NOT_FOUND" in said
    assert "odradek" in said
    assert "No module named 'pyspark_odradek" in run_alone(bare, REGISTER + LOAD)


@pytest.mark.spark
@pytest.mark.full
def test_workers_without_their_interpreter_cannot_be_run(tmp_path: Path) -> None:
    assert "Cannot run program" in run_alone(tmp_path / "nothing" / "python", REGISTER + LOAD)


def test_the_error_without_pyspark_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkNotFound, match=r"pip install 'odradek\[spark\]'"):
        session()
