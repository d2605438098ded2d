"""Files of each broker read by the other's software: Kafka's kafka-dump-log on our files, and
partitions that are moved between the brokers in both directions.

Whole data directories cannot be moved: the metadata log of a KRaft quorum has records that our
broker does not use.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import independent_log as own
from cli_runner import Commands
from kafka_cluster import KafkaCluster, class_path, java
from odradek import sync
from odradek.broker import BrokerFailed, SubprocessBroker
from odradek_client.admin import NewTopic
from written_directory import (
    CODECS,
    FRUIT,
    MONEY,
    STAMPED,
    START_MS,
    TRIMMED,
    WrittenData,
    data_directory_broker,
)

pytestmark = pytest.mark.kafka

ODRADEK = Commands("")
PATIENCE_S = 300.0
HANDED_OVER = (f"{FRUIT}-0", f"{FRUIT}-1", f"{MONEY}-0", f"{TRIMMED}-0", f"{STAMPED}-0")
_FIELD = re.compile(r"(\w+): (\S+)")
_CRC_BITS = 0xFFFFFFFF


def _dump(files: Iterable[Path], *options: str) -> dict[Path, list[str]]:
    """The lines that kafka-dump-log prints for each file."""
    command = [java(), "-Xmx256m", "-cp", class_path(), "org.apache.kafka.tools.DumpLogSegments"]
    done = subprocess.run(
        [*command, "--files", ",".join(map(str, files)), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    found: dict[Path, list[str]] = {}
    lines: list[str] = []
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            lines = found[Path(line.removeprefix("Dumping "))] = []
        else:
            lines.append(line)
    return found


def _fields(line: str) -> dict[str, str]:
    return dict(_FIELD.findall(line))


def _files(data: Path, pattern: str) -> list[Path]:
    return sorted(path for path in data.rglob(pattern) if path.stat().st_size)


@pytest.fixture(params=["stopped", "killed"])
def data(request: pytest.FixtureRequest, written_data: WrittenData) -> Path:
    path: Path = getattr(written_data, request.param)
    return path


# --- Kafka's tool ---------------------------------------------------------------------------------


def test_kafkas_tool_reads_our_segments(data: Path) -> None:
    dumped = _dump(_files(data, "*.log"), "--deep-iteration")
    for path in _files(data, "*.log"):
        lines = iter(dumped[path][1:])
        for batch in own.read_segment(path):
            _compare_batch(_fields(next(lines)), batch)
            for record in batch.records:
                line = next(lines)
                kind = "LogAppendTime" if batch.log_append_time else "CreateTime"
                assert line.startswith(f"| offset: {record.offset} {kind}: {record.timestamp} ")
        assert next(lines, None) is None


def _compare_batch(shown: dict[str, str], batch: own.Batch) -> None:
    kind = "LogAppendTime" if batch.log_append_time else "CreateTime"
    expected: dict[str, Any] = {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": len(batch.records),
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": str(batch.transactional).lower(),
        "isControl": str(batch.control).lower(),
        "deleteHorizonMs": "OptionalLong.empty",
        "position": batch.position,
        kind: batch.max_timestamp,
        "size": batch.size_bytes,
        "magic": 2,
        "compresscodec": batch.codec,
        "crc": batch.crc & _CRC_BITS,
        "isvalid": "true",
    }
    assert shown == {name: str(value) for name, value in expected.items()}


def test_kafkas_tool_finds_our_indexes_valid(written_data: WrittenData) -> None:
    data = written_data.stopped
    indexes = _files(data, "*.index")
    for path, lines in _dump(indexes, "--index-sanity-check").items():
        assert lines == [f"{path} passed sanity check."]
    both = [*indexes, *_files(data, "*.timeindex")]
    assert [*_dump(both, "--verify-index-only").values()] == [[]] * len(both)
    for path, lines in _dump(both).items():
        if path.suffix == ".index":
            found = [
                f"offset: {offset} position: {at}" for offset, at in own.read_offset_index(path)
            ]
        else:
            found = [f"timestamp: {time} offset: {at}" for time, at in own.read_time_index(path)]
        assert lines == found


def test_kafkas_tool_reads_our_transaction_indexes_and_snapshots(data: Path) -> None:
    paths = [*_files(data, "*.txnindex"), *_files(data, "*.snapshot")]
    dumped = _dump(paths)
    for path in paths:
        if path.suffix == ".txnindex":
            assert dumped[path] == [
                f"version: 0 producerId: {producer_id} firstOffset: {first} lastOffset: {last}"
                f" lastStableOffset: {stable}"
                for producer_id, first, last, stable in own.read_transaction_index(path)
            ]
            continue
        shown = [_fields(line) for line in dumped[path]]
        producers = own.read_snapshot(path).producers
        assert [int(each["producerId"]) for each in shown] == [
            each["ProducerId"] for each in producers
        ]
        for each, stored in zip(shown, producers, strict=True):
            first = stored["CurrentTxnFirstOffset"]
            assert each["currentTxnFirstOffset"] == (
                "OptionalLong.empty" if first < 0 else f"OptionalLong[{first}]"
            )
            assert int(each["producerEpoch"]) == stored["Epoch"]
            assert int(each["coordinatorEpoch"]) == stored["CoordinatorEpoch"]
            assert int(each["lastTimestamp"]) == stored["Timestamp"]
            if stored["LastOffset"] >= 0:
                assert int(each["lastSequence"]) == stored["LastSequence"]
                assert int(each["lastOffset"]) == stored["LastOffset"]


@pytest.mark.parametrize(
    ("pattern", "option"),
    [
        ("__consumer_offsets-*/*.log", "--offsets-decoder"),
        ("__transaction_state-*/*.log", "--transaction-log-decoder"),
        ("__share_group_state-*/*.log", "--share-group-state-decoder"),
        ("__cluster_metadata-0/*.log", "--cluster-metadata-decoder"),
    ],
)
def test_kafkas_tool_decodes_our_internal_topics(data: Path, pattern: str, option: str) -> None:
    for path, lines in _dump(_files(data, pattern), option).items():
        records = [line for line in lines if line.startswith("| ")]
        assert len(records) == sum(len(batch.records) for batch in own.read_segment(path))
        decoded = [line for line in records if "endTxnMarker" not in line]
        assert decoded
        for line in decoded:
            assert '"data":' in line and "Could not" not in line and "Error" not in line, line


# --- Partitions that are moved --------------------------------------------------------------------


def _hand_over(source: Path, target: Path) -> None:
    """Replace all files in `target` by copies of those in `source`, except the file with the topic
    id: the two clusters have different ids."""
    kept = (target / "partition.metadata").read_bytes()
    shutil.rmtree(target)
    shutil.copytree(source, target)
    (target / "partition.metadata").write_bytes(kept)


def _committed(data: Path, name: str, log_start_offset: int = 0) -> list[own.Record]:
    batches = [
        batch for path in sorted((data / name).glob("*.log")) for batch in own.read_segment(path)
    ]
    return own.committed_records(batches, log_start_offset)


def _consumed(bootstrap: str, name: str, last: int) -> list[own.Record]:
    topic, _, index = name.rpartition("-")
    with sync.Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([(topic, int(index))])
        found: list[own.Record] = []
        while not found or found[-1].offset < last:
            each = consumer.getone()
            headers = list(each.headers)
            found.append(own.Record(each.offset, each.timestamp, each.key, each.value, headers))
        return found


def _offsets_by_time(bootstrap: str, names: Iterable[str]) -> dict[str, Any]:
    found = {}
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        for name in names:
            topic, _, index = name.rpartition("-")
            for at in range(0, 9_000, 1_500):
                place = (topic, int(index))
                (answer,) = admin.list_offsets({place: START_MS + at}).values()
                found[f"{name} at {at}"] = answer and (answer.offset, answer.timestamp)
    return found


def _producers(bootstrap: str, names: Iterable[str]) -> dict[str, Any]:
    places = [(name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in names]
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        described = admin.describe_producers(places)
        return {
            f"{place.topic}-{place.partition}": sorted(
                (each.producer_id, each.epoch, each.last_sequence) for each in states
            )
            for place, states in described.items()
        }


def _replayed(partition: Path) -> list[tuple[int, int, int]]:
    """The state of producers as in `_producers`, computed from the batches."""
    replay = own.Replay()
    for path in sorted(partition.glob("*.log")):
        for batch in own.read_segment(path):
            replay.follow(batch)
    return sorted((at, each.epoch, each.last_sequence) for at, each in replay.producers.items())


@pytest.mark.parametrize("clean", [True, False])
def test_kafka_serves_partitions_that_our_broker_wrote(
    clean: bool, written_data: WrittenData, tmp_path: Path
) -> None:
    """After a clean stop Kafka uses indexes and snapshots as they are; otherwise Kafka rebuilds
    them."""
    data = written_data.stopped
    with KafkaCluster(tmp_path / "kafka", 1, {"log.retention.ms": "-1"}) as kafka:
        (node,) = kafka.nodes
        _create(kafka.bootstrap, HANDED_OVER)
        node.stop()
        for name in HANDED_OVER:
            _hand_over(data / name, node.data_dir / name)
        if not clean:
            (node.data_dir / ".kafka_cleanshutdown").unlink()
        node.start()
        node.wait_until_up()
        for name in HANDED_OVER:
            expected = _committed(data, name)
            assert _consumed(kafka.bootstrap, name, expected[-1].offset) == expected, name
        by_time = _offsets_by_time(kafka.bootstrap, HANDED_OVER)
        producers = _producers(kafka.bootstrap, (f"{MONEY}-0",))
        with sync.Producer(bootstrap_servers=kafka.bootstrap) as producer:
            written = producer.send_and_wait(MONEY, b"goes on", partition=0)
        node.stop()
        assert "ERROR" not in _log_errors(node.log)
    copy = tmp_path / "ours"
    shutil.copytree(data, copy)
    with data_directory_broker(copy) as broker:
        ours = _offsets_by_time(broker.bootstrap, HANDED_OVER)
        # Kafka no longer knows that the first records of this partition were deleted.
        assert {name: at for name, at in ours.items() if TRIMMED not in name} == {
            name: at for name, at in by_time.items() if TRIMMED not in name
        }
        assert _producers(broker.bootstrap, (f"{MONEY}-0",)) == producers
    assert written.offset == own.read_offsets(data / "replication-offset-checkpoint")[f"{MONEY}-0"]


def _log_errors(log: str) -> str:
    """The lines in Kafka's log about logs that could not be loaded."""
    return "\n".join(
        line
        for line in log.splitlines()
        if "ERROR" in line and ("LogLoader" in line or "LogManager" in line or "UnifiedLog" in line)
    )


def _create(bootstrap: str, names: Iterable[str]) -> None:
    counts: dict[str, int] = {}
    for name in names:
        topic, _, index = name.rpartition("-")
        counts[topic] = max(counts.get(topic, 0), int(index) + 1)
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, count) for topic, count in counts.items()])


@pytest.mark.parametrize("clean", [True, False])
def test_our_broker_serves_partitions_that_kafka_wrote(clean: bool, tmp_path: Path) -> None:
    names = (f"{FRUIT}-0", f"{MONEY}-0")
    with KafkaCluster(
        tmp_path / "kafka", 1, {"log.retention.ms": "-1", "log.index.interval.bytes": "300"}
    ) as kafka:
        (node,) = kafka.nodes
        _create(kafka.bootstrap, names)
        _write(kafka.bootstrap)
        by_time = _offsets_by_time(kafka.bootstrap, names)
        node.stop()
    data = tmp_path / "ours"
    with data_directory_broker(data) as broker:
        _create(broker.bootstrap, names)
    for name in names:
        _hand_over(node.data_dir / name, data / name)
        ODRADEK.run("log", "verify", str(data / name))
    _take_over_checkpoints(node.data_dir, data, names)
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    ODRADEK.run("log", "verify", str(data), code=0 if clean else 1)
    with SubprocessBroker(data_dir=data, settings={"log.retention.ms": -1}) as broker:
        for name in names:
            expected = _committed(node.data_dir, name)
            assert _consumed(broker.bootstrap, name, expected[-1].offset) == expected
        assert _offsets_by_time(broker.bootstrap, names) == by_time
        assert _producers(broker.bootstrap, (f"{MONEY}-0",)) == {
            f"{MONEY}-0": _replayed(node.data_dir / f"{MONEY}-0")
        }
    ODRADEK.run("log", "verify", str(data))


def _write(bootstrap: str) -> None:
    """Write records with every codec, and committed and aborted transactions."""
    for codec in CODECS:
        with sync.Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            for number in range(12):
                value = None if number % 5 == 4 else f"{codec} {number} ".encode() * 20
                time = START_MS + number * 1000
                producer.send(
                    FRUIT, value, b"k", partition=0, timestamp_ms=time, headers=[("h", b"\xff")]
                )
                if number % 4 == 3:
                    producer.flush()
    with sync.Producer(bootstrap_servers=bootstrap, transactional_id="t") as producer:
        producer.init_transactions()
        for number in range(8):
            producer.begin_transaction()
            for topic in (FRUIT, MONEY):
                producer.send_and_wait(topic, b"%d" % number, partition=0)
            if number % 3 == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def _take_over_checkpoints(source: Path, target: Path, names: Iterable[str]) -> None:
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        offsets = own.read_offsets(target / checkpoint)
        theirs = own.read_offsets(source / checkpoint)
        offsets |= {name: theirs[name] for name in names}
        lines = [
            f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {at}"
            for name, at in offsets.items()
        ]
        (target / checkpoint).write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def test_a_data_directory_of_kafka_is_dumped_but_not_served(tmp_path: Path) -> None:
    with KafkaCluster(tmp_path / "kafka", 1) as kafka:
        (node,) = kafka.nodes
        _create(kafka.bootstrap, (f"{FRUIT}-0",))
        _write(kafka.bootstrap)
        rows = ODRADEK.rows("log", "dump", str(node.data_dir), "-r", "--only", "log")
        node.stop()
    assert {row["kind"] for row in rows} == {"batch", "record"}
    kinds = {row["kind"] for row in ODRADEK.rows("log", "dump", str(node.data_dir), "-r")}
    assert {"producer", "aborted-transaction", "leader-epoch", "property"} <= kinds
    ODRADEK.run("log", "verify", str(node.data_dir), code=2)
    with pytest.raises(BrokerFailed, match=r"cannot be used|metadata"):
        SubprocessBroker(data_dir=node.data_dir).start()
