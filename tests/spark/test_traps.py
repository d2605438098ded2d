"""The table "When something goes wrong" in docs/spark/connector.md: the usual mistakes, and their
errors."""

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

#: The beginning of a row -> the tests of the row.
TESTS = {
    "Spark needs Java 17": ["test_without_java_the_error_says_how_to_get_one"],
    "PySpark is not installed": ["test_without_pyspark_the_error_says_how_to_get_it"],
    "PYSPARK_PYTHON=...": ["test_an_interpreter_without_the_connector_is_named"],
    "DATA_SOURCE_NOT_FOUND": ["test_workers_without_the_package_do_not_find_the_format"],
    "Cannot run program": ["test_workers_whose_interpreter_is_not_there"],
    "UNSUPPORTED_DATA_SOURCE_SAVE_MODE": ["test_a_write_needs_the_mode_append"],
    "a topic cannot be overwritten": ["test_modes"],
    "kafka.bootstrap.servers is missing": [
        "test_without_an_address_both_directions_say_so",
        "test_a_stream_says_what_is_wrong_when_it_starts",
    ],
    "no broker of": [
        "test_a_broker_that_is_not_there_is_told_within_the_time_limit",
        "test_a_write_to_nobody_is_told_within_the_time_limit",
    ],
    "there is no topic": ["test_a_topic_or_partition_that_is_not_there_is_named"],
    "topic 'x' not found": ["test_a_write_to_a_topic_that_nobody_creates"],
    "there is no column value": [
        "test_rows_of_a_wrong_shape_are_refused_before_anything_is_written",
        "test_a_stream_says_what_is_wrong_when_it_starts",
    ],
    "column value is int but must be": [
        "test_rows_of_a_wrong_shape_are_refused_before_anything_is_written"
    ],
    "the schema of a read is fixed": ["test_a_schema_of_ones_own_is_refused"],
    "there is no option": ["test_unknown_options_name_the_nearest"],
    "DataLoss: ... the log starts at": ["test_what_retention_has_deleted_is_data_loss"],
    "run ... was superseded": ["test_s06_the_older_of_two_runs_fails_and_names_the_newer"],
    "is at batch 7, but batch 9 was written": [
        "test_a_copied_checkpoint_that_is_behind_is_refused",
        "test_s07_an_old_checkpoint_is_found_out",
    ],
    "was written with 10 rows, and now has 12": ["test_a_replay_that_has_other_rows_is_refused"],
    "was written with 10 rows for other topics": [
        "test_s07_as_many_rows_for_other_topics_are_no_replay",
        "test_s07_a_stream_that_is_restarted_with_another_topic_does_not_lose_a_batch",
    ],
    "the decision is revoked": [
        "test_s12_without_kip939_recovery_that_comes_too_late_is_loud_and_loses_nothing"
    ],
    "is lost in part": ["test_s11_a_batch_that_is_lost_in_part_is_loud"],
    "the decision log ... cannot be created": ["test_a_decision_log_that_may_not_be_made"],
    "semantics=exactly_once needs transactions": [
        "test_what_exactly_once_writes_cannot_obey_is_said"
    ],
    "odradek does not support Update mode": ["test_the_update_mode_is_refused_by_spark"],
    "the checkpoint holds": ["test_the_checkpoint_of_another_kind_of_query_is_refused"],
    "records may be lost": ["test_c1_a_log_that_was_cut_is_loss"],
}


def rows() -> list[str]:
    """The first cells, without markup."""
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
def test_without_an_address_both_directions_say_so(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=re.escape("kafka.bootstrap.servers is missing; set it")):
        write(spark, topic="t")
    with pytest.raises(Exception, match=re.escape("kafka.bootstrap.servers is missing; set it")):
        spark.read.format("odradek").option("subscribe", "t").load()


@pytest.mark.spark
@pytest.mark.parametrize("semantics", ["exactly_once", "at_least_once"])
@pytest.mark.full
def test_a_write_to_nobody_is_told_within_the_time_limit(
    spark: SparkSession, semantics: str
) -> None:
    told = r"no broker of 127\.0\.0\.1:1 could be reached within 1500 ms"
    with pytest.raises(Exception, match=told):
        write(spark, topic="t", semantics=semantics, **NOBODY)


@pytest.mark.spark
@pytest.mark.full
def test_a_write_to_a_topic_that_nobody_creates(spark: SparkSession) -> None:
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
def test_a_stream_says_what_is_wrong_when_it_starts(
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


async def test_a_decision_log_that_may_not_be_made() -> None:
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
    """The output of a program whose Spark runs this interpreter for all Python."""
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
    """An interpreter with everything but the package."""
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
def test_workers_whose_interpreter_is_not_there(tmp_path: Path) -> None:
    assert "Cannot run program" in run_alone(tmp_path / "nothing" / "python", REGISTER + LOAD)


def test_without_pyspark_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkNotFound, match=r"pip install 'odradek\[spark\]'"):
        session()
