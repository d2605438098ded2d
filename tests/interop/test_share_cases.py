"""Java's share consumer and administration in many situations: our broker and Apache Kafka must
behave in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafka_cluster
from foreign_programs import run
from killable import killable

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "java" / "ShareCases.java"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "log.cleaner.backoff.ms": "200",
}


def test_share_consumers_behave_as_with_kafka(tmp_path: Path) -> None:
    """The situations are acquire modes, isolation levels, resets, administration, members that poll
    too late, deleted and compacted records, topics created again, many partitions, locks, limits
    and codecs."""
    printed = {}
    for kind in ("ours", "kafka"):
        folder = tmp_path / kind
        folder.mkdir()
        with killable(kind, folder, SETTINGS) as broker:
            lines = run(
                *(kafka_cluster.java(), "-Xmx256m", "-Dorg.apache.logging.log4j.level=OFF"),
                *("-cp", kafka_cluster.class_path(), str(PROGRAM), broker.address),
                folder=folder,
            )
        printed[kind] = lines.splitlines()
    assert printed["ours"] == printed["kafka"]
    assert {
        "batch_optimized, records of a poll: 100",
        "record_limit, records of a poll: 10",
        "read_committed, one open: 10-19x1",
        "by_duration:PT1H: 6-9x1",
        "delete with a member: GroupNotEmptyException",
        "the other gets: 0-9x2",
        "after the deletion: 60-99x1",
        "second topic: 100-119x1",
        "100 partitions: 0-999x1",
        "renewal switched off: [InvalidRecordStateException]",
        "all in the end: 300 2 1",
    } <= set(printed["ours"])
    ends = [line for line in printed["ours"] if line.startswith("end of ")]
    assert len(ends) == 17
    assert all(line.endswith(": ok") for line in ends)
