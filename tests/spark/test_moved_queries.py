"""Spark queries that go on at another cluster, to which their records were mirrored."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.broker import SubprocessBroker
from odradek.sync import Consumer, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"log.durability": "page-cache"}


def _write(bootstrap: str, numbers: range) -> None:
    """A transaction for every three records: its markers take offsets."""
    with Producer(bootstrap_servers=bootstrap, transactional_id="writer") as producer:
        producer.init_transactions()
        for first in numbers[::3]:
            producer.begin_transaction()
            for number in range(first, min(first + 3, numbers.stop)):
                producer.send_and_wait("flights", b"%d" % number, partition=number % 2)
            producer.commit_transaction()


def _run(spark: SparkSession, bootstrap: str, sink: str, checkpoint: Path, folder: Path) -> None:
    """Run the query with this sink until it has read everything."""
    frame = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", "5")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
    if sink == "topic":
        writer = (
            writer.format("odradek")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", "copied")
        )
    else:
        writer = writer.format("text").option("path", str(folder))
    writer.trigger(availableNow=True).start().awaitTermination()


def _committed(bootstrap: str, topic: str) -> Counter[int]:
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign([(topic, number) for number in partitions])
        ends = consumer.end_offsets(*((topic, number) for number in partitions))
        found: Counter[int] = Counter()
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            batches = consumer.getmany(timeout_ms=500)
            found.update(int(record.value) for some in batches.values() for record in some)
        return found


def _mirror(*words: str) -> None:
    command = [sys.executable, "-m", "odradek", "mirror", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.parametrize("mode", ["exactly-once", "same-offsets"])
def test_a_query_goes_on_at_the_right_record(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    text, old = tmp_path / "text", tmp_path / "old"
    with (
        SubprocessBroker(data_dir=tmp_path / "source", settings=SETTINGS) as source,
        SubprocessBroker(data_dir=tmp_path / "target", settings=SETTINGS) as target,
    ):
        _create(source.bootstrap)
        _write(source.bootstrap, range(20))
        for sink in ("files", "topic"):
            _run(spark, source.bootstrap, sink, old / sink, text)
        _write(source.bootstrap, range(20, 30))

        _mirror("--from", source.bootstrap, "--to", target.bootstrap, "--mode", mode)
        new = old
        if mode == "same-offsets":
            _mirror("promote", "--to", target.bootstrap)
        else:
            new = tmp_path / "new"
            new.mkdir()
            for sink in ("files", "topic"):
                folders = (str(old / sink), str(new / sink))
                _mirror("checkpoint", *folders, "--to", target.bootstrap)
        _write(target.bootstrap, range(30, 40))
        for sink in ("files", "topic"):
            _run(spark, target.bootstrap, sink, new / sink, text)

        once = Counter(range(40))
        assert Counter(int(row.value) for row in spark.read.text(str(text)).collect()) == once
        assert _committed(target.bootstrap, "copied") == once


def _create(bootstrap: str) -> None:
    command = [sys.executable, "-m", "odradek", "topic", "create", "flights", "--partitions", "2"]
    subprocess.run([*command, "--bootstrap", bootstrap], check=True, timeout=60)
