"""An independent reader, which shares no code with the product, compared with the product on the
same data directory.

The first tests compare files with their rules (L-01..L-04, P-26, P-27), and compute the expected
content from the batches. The other tests compare the reader with `odradek log dump`, and with the
answers of a broker that is started on the files.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import independent_log as own
from cli_runner import Commands
from kafka_definitions import decode_record
from odradek import sync
from odradek_client.admin import ConfigResource
from written_directory import (
    FRUIT,
    GROUPS,
    MONEY,
    SETTINGS,
    STAMPED,
    START_MS,
    TRIMMED,
    WrittenData,
    data_directory_broker,
)

INTERNAL = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
)
INDEX_INTERVAL_BYTES = int(str(SETTINGS["log.index.interval.bytes"]))
KEPT_BATCHES = 5
#: Producers without a batch after this time have expired (producer.id.expiration.ms).
OLD_MS = START_MS + 86_400_000


def _partitions(data: Path) -> list[Path]:
    return sorted(path for path in data.iterdir() if path.is_dir())


def _segments(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def _batches(partition: Path) -> list[own.Batch]:
    return [batch for path in _segments(partition) for batch in own.read_segment(path)]


@pytest.fixture(params=["stopped", "killed"])
def data(request: pytest.FixtureRequest, written_data: WrittenData) -> Path:
    path: Path = getattr(written_data, request.param)
    return path


def test_l02_l03_indexes_have_the_entries_computed_from_the_batches(
    written_data: WrittenData,
) -> None:
    compared = 0
    for partition in _partitions(written_data.stopped):
        for path in _segments(partition):
            offsets, times, largest = _expected_indexes(own.read_segment(path))
            assert own.read_offset_index(path.with_suffix(".index")) == offsets, path
            found = own.read_time_index(path.with_suffix(".timeindex"))
            # A clean stop adds an entry for the largest timestamp so far, and this may be the
            # timestamp of any batch.
            assert found == sorted(set(found)), path
            assert set(times) <= set(found) <= set(largest), path
            compared += len(offsets) + len(times)
    assert compared > 100


def _expected_indexes(
    batches: list[own.Batch],
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
    """The expected entries of both indexes, and all candidates for the time index.

    Both indexes get an entry whenever more than index.interval.bytes were written since the last
    entry. At the end of the segment the time index gets the largest timestamp with its offset.
    """
    offsets, times, all_largest = [], [], []
    since = 0
    largest, largest_offset = -1, -1
    for batch in batches:
        if batch.max_timestamp > largest:
            largest, largest_offset = batch.max_timestamp, batch.last_offset
            all_largest.append((largest, largest_offset))
        if since > INDEX_INTERVAL_BYTES:
            offsets.append((batch.last_offset, batch.position))
            times.append((largest, largest_offset))
            since = 0
        since += batch.size_bytes
    times.append((largest, largest_offset))
    rising = [entry for at, entry in enumerate(times) if not at or entry[0] > times[at - 1][0]]
    return offsets, rising if batches else [], all_largest


def test_l04_transaction_indexes_hold_the_aborted_transactions(data: Path) -> None:
    found = 0
    for partition in _partitions(data):
        replay = own.Replay()
        for path in _segments(partition):
            known = len(replay.aborted)
            for batch in own.read_segment(path):
                replay.follow(batch)
            index = path.with_suffix(".txnindex")
            entries = own.read_transaction_index(index) if index.exists() else []
            assert entries == replay.aborted[known:], path
            found += len(entries)
    assert found >= 20


def test_p26_producer_snapshots_equal_the_state_computed_from_the_batches(data: Path) -> None:
    compared = 0
    for partition in _partitions(data):
        batches = _batches(partition)
        for path in sorted(partition.glob("*.snapshot")):
            before = [batch for batch in batches if batch.last_offset < int(path.stem)]
            compared += _compare_snapshot(own.read_snapshot(path), before)
    assert compared > 20


def _compare_snapshot(snapshot: own.Snapshot, batches: list[own.Batch]) -> int:
    replay = own.Replay()
    for batch in batches:
        replay.follow(batch)
    stored = {each.pop("ProducerId"): each for each in snapshot.producers}
    forgotten = [each for name, each in replay.producers.items() if name not in stored]
    assert all(each.timestamp < OLD_MS and each.open_since < 0 for each in forgotten)
    assert stored == {
        producer_id: {
            "Epoch": each.epoch,
            "LastSequence": each.last_sequence,
            "LastOffset": each.last_offset,
            "OffsetDelta": each.offset_delta,
            "Timestamp": each.timestamp,
            "CoordinatorEpoch": each.coordinator_epoch,
            "CurrentTxnFirstOffset": each.open_since,
        }
        for producer_id, each in replay.producers.items()
        if producer_id in stored
    }
    for producer_id, kept in snapshot.batches.items():
        epoch = replay.producers[producer_id].epoch
        mine = [
            own.StoredBatch(
                batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp
            )
            for batch in batches
            if batch.producer_id == producer_id
            and batch.producer_epoch == epoch
            and not batch.control
        ]
        # The broker may have forgotten an old producer between two of its batches.
        is_old = replay.producers[producer_id].timestamp < OLD_MS
        assert kept and kept == mine[-len(kept) if is_old else -KEPT_BATCHES :]
    return len(stored)


def test_l01_checkpoints_and_properties_agree_with_the_batches(written_data: WrittenData) -> None:
    data = written_data.stopped
    ends = {path.name: _end(path) for path in _partitions(data)}
    assert own.read_offsets(data / "recovery-point-offset-checkpoint") == ends
    assert own.read_offsets(data / "replication-offset-checkpoint") == ends
    starts = own.read_offsets(data / "log-start-offset-checkpoint")
    assert starts == dict.fromkeys(ends, 0) | {f"{TRIMMED}-0": 13}
    assert own.read_properties(data / "meta.properties").keys() == {
        *("version", "cluster.id", "node.id", "directory.id", "odradek.coordinator.hash"),
    }
    assert own.read_clean_shutdown(data / ".kafka_cleanshutdown")["version"] == 0
    lags = own.read_group_lags(data / "odradek.group-lags")
    assert lags.keys() >= set(GROUPS)
    assert all(points[-1][1] > 0 for points in map(lags.__getitem__, GROUPS))
    topic_ids = _topics(data)
    for partition in _partitions(data):
        topic = partition.name.rpartition("-")[0]
        topic_id = own.read_topic_id(partition / "partition.metadata")
        assert topic_id == topic_ids.get(topic, bytes(15) + b"\1")
        epochs: dict[int, int] = {}
        for batch in _batches(partition):
            epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
        known = partition / "leader-epoch-checkpoint"
        first = starts[partition.name]
        if epochs:
            assert own.read_epochs(known) == [
                (epoch, max(offset, first)) for epoch, offset in epochs.items()
            ]


def _end(partition: Path) -> int:
    last = _segments(partition)[-1]
    batches = own.read_segment(last)
    return batches[-1].last_offset + 1 if batches else int(last.stem)


def _metadata(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for batch in _batches(data / "__cluster_metadata-0"):
        for record in batch.records:
            _, (name, _, fields) = decode_record("__cluster_metadata", record.key, record.value)
            yield name, fields


def _topics(data: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, fields in _metadata(data):
        if name == "TopicRecord":
            found[fields["Name"]] = fields["TopicId"]
        elif name == "RemoveTopicRecord":
            found = {key: value for key, value in found.items() if value != fields["TopicId"]}
    return found


# --- The product's view ---------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A key or value in the form in which the dump prints it."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value


def _dumped(data: Path) -> dict[Path, list[dict[str, Any]]]:
    printed = Commands("").run("log", "dump", "--json", "--records", str(data))
    files: dict[Path, list[dict[str, Any]]] = {}
    for line in printed.splitlines():
        row = json.loads(line)
        files.setdefault(Path(row.pop("file")), []).append(row)
    return files


def test_the_dump_of_batches_and_records_equals_the_readers_result(data: Path) -> None:
    files = _dumped(data)
    for partition in _partitions(data):
        topic = partition.name.rpartition("-")[0]
        for path in _segments(partition):
            rows = iter(files.get(path, []))
            for batch in own.read_segment(path):
                _compare_batch(next(rows), batch)
                for record in batch.records:
                    _compare_record(next(rows), record, batch, topic)
            assert next(rows, None) is None


def _compare_batch(row: dict[str, Any], batch: own.Batch) -> None:
    assert row == {
        "kind": "batch",
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": len(batch.records),
        "position": batch.position,
        "size_bytes": batch.size_bytes,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": "LogAppendTime" if batch.log_append_time else "CreateTime",
        "codec": batch.codec,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "leader_epoch": batch.partition_leader_epoch,
        "transactional": batch.transactional,
        "control": batch.control,
        "delete_horizon_ms": None,
        "magic": 2,
        "crc": f"{batch.crc:08x}",
        "valid": True,
    }


def _compare_record(row: dict[str, Any], record: own.Record, batch: own.Batch, topic: str) -> None:
    assert (row["offset"], row["timestamp"]) == (record.offset, record.timestamp)
    assert row["headers"] == [[name, _plain(value)] for name, value in record.headers]
    if batch.control:
        kind, epoch = batch.marker()
        assert row["key"] == {"type": ["ABORT", "COMMIT"][kind]}
        assert row["value"] == {"coordinator_epoch": epoch}
    elif topic in INTERNAL:
        key, value = decode_record(topic, record.key, record.value)
        _compare_decoded(row["key"], key)
        _compare_decoded(row["value"], value)
    else:
        assert (row["key"], row["value"]) == (_plain(record.key), _plain(record.value))


_SNAKE = re.compile(r"(?<=[a-z0-9])([A-Z])")
#: The tagged fields that only this broker writes.
_TAGS = {3: "next_producer_epoch", 10_000: "last_producer_epoch"}


def _compare_decoded(shown: Any, decoded: tuple[str, int | None, dict[str, Any]] | None) -> None:
    if decoded is None:
        assert shown is None
        return
    name, version, fields = decoded
    assert (shown["type"], shown.get("version")) == (name, version)
    _compare_fields(shown["data"], fields)


def _compare_fields(shown: dict[str, Any], fields: dict[str, Any]) -> None:
    """Compare all fields in the bytes. The dump may have more fields, with default values."""
    for name, value in fields.items():
        if name == "unknown tags":
            for tag, held in value.items():
                assert shown[_TAGS[tag]] == int.from_bytes(held, "big", signed=True)
            continue
        snake = _SNAKE.sub(r"_\1", name).lower()
        if snake not in shown:
            assert not value, f"{name} = {value!r} is not shown"
            continue
        _compare_value(shown[snake], value)


def _compare_value(shown: Any, value: Any) -> None:
    if isinstance(value, dict):
        _compare_fields(shown, value)
    elif isinstance(value, list):
        assert len(shown) == len(value)
        for left, right in zip(shown, value, strict=True):
            _compare_value(left, right)
    elif isinstance(value, bytes) and isinstance(shown, str) and len(value) == 16:
        assert base64.urlsafe_b64decode(shown + "==") == value
    elif not (isinstance(value, bytes) and isinstance(shown, dict)):
        assert shown == _plain(value)


def test_the_dump_of_other_files_equals_the_readers_result(data: Path) -> None:
    files = _dumped(data)

    def rows(path: Path, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in files.get(path, [])]

    for partition in _partitions(data):
        for path in partition.glob("*.index"):
            assert rows(path, "offset", "position") == own.read_offset_index(path)
        for path in partition.glob("*.timeindex"):
            assert rows(path, "timestamp", "offset") == own.read_time_index(path)
        for path in partition.glob("*.txnindex"):
            names = ("producer_id", "first_offset", "offset", "last_stable_offset")
            assert rows(path, *names) == own.read_transaction_index(path)
        for path in partition.glob("*.snapshot"):
            _compare_producers(files.get(path, []), own.read_snapshot(path))
        path = partition / "leader-epoch-checkpoint"
        if path.exists():
            assert rows(path, "leader_epoch", "start_offset") == own.read_epochs(path)
        path = partition / "partition.metadata"
        ((shown,),) = rows(path, "topic_id")
        assert base64.urlsafe_b64decode(shown + "==") == own.read_topic_id(path)
    for path in data.glob("*-checkpoint"):
        shown_offsets = rows(path, "topic", "partition", "offset")
        assert {f"{topic}-{at}": offset for topic, at, offset in shown_offsets} == (
            own.read_offsets(path)
        )
    path = data / "meta.properties"
    assert dict(rows(path, "name", "value")) == own.read_properties(path)
    path = data / "odradek.group-lags"
    if path.exists():
        points = [
            (group, *point) for group, each in own.read_group_lags(path).items() for point in each
        ]
        assert rows(path, "group", "timestamp", "lag") == points


def _compare_producers(rows: list[dict[str, Any]], snapshot: own.Snapshot) -> None:
    assert [
        {
            "ProducerId": row["producer_id"],
            "Epoch": row["producer_epoch"],
            "LastSequence": row["last_sequence"],
            "LastOffset": row["last_offset"],
            "Timestamp": row["last_timestamp"],
            "CoordinatorEpoch": row["coordinator_epoch"],
            "CurrentTxnFirstOffset": row["open_transaction_first_offset"],
        }
        for row in rows
    ] == [
        {name: value for name, value in each.items() if name != "OffsetDelta"}
        for each in snapshot.producers
    ]
    for row in rows:
        kept = snapshot.batches.get(row["producer_id"])
        if kept is not None:
            assert [each["last_offset"] for each in row["batches"]] == [
                each.last_offset for each in kept
            ]


# --- The broker's answers -------------------------------------------------------------------------


def test_a_broker_on_the_files_answers_the_records_of_the_reader(
    written_data: WrittenData, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(written_data.killed, data)
    starts = own.read_offsets(data / "log-start-offset-checkpoint")
    expected = {
        (topic, index): own.committed_records(
            _batches(data / f"{topic}-{index}"), starts.get(f"{topic}-{index}", 0)
        )
        for topic, index in ((FRUIT, 0), (FRUIT, 1), (MONEY, 0), (TRIMMED, 0), (STAMPED, 0))
    }
    committed = _committed_offsets(data)
    assert {group for group, _, _ in committed} == {*GROUPS, "spending"}
    configs = _configs(data)
    with data_directory_broker(data) as broker:
        for place, records in expected.items():
            assert _consumed(broker.bootstrap, place, records[-1].offset) == records
        with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
            for group in (*GROUPS, "spending"):
                offsets = admin.list_group_offsets(group)
                found = {tuple(place): at.offset for place, at in offsets.items() if at is not None}
                assert found == {
                    place[1:]: at for place, at in committed.items() if place[0] == group
                }
            described = admin.describe_configs([ConfigResource.topic(name) for name in configs])
            for name, values in configs.items():
                shown = described[ConfigResource.topic(name)]
                assert {key: shown[key].value for key in values} == values


def _consumed(bootstrap: str, place: tuple[str, int], last: int) -> list[own.Record]:
    with sync.Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([place])
        found: list[own.Record] = []
        while not found or found[-1].offset < last:
            each = consumer.getone()
            headers = [(name, held) for name, held in each.headers]
            found.append(own.Record(each.offset, each.timestamp, each.key, each.value, headers))
        return found


def _committed_offsets(data: Path) -> dict[tuple[str, str, int], int]:
    """(group, topic, partition) -> committed offset, whether it was committed in a transaction or
    not."""
    found: dict[tuple[str, str, int], int] = {}
    for partition in data.glob("__consumer_offsets-*"):
        for record in own.committed_records(_batches(partition), 0):
            (name, _, key), value = decode_record("__consumer_offsets", record.key, record.value)
            if name != "OffsetCommitKey":
                continue
            place = (key["group"], key["topic"], key["partition"])
            if value is None:
                found.pop(place, None)
            else:
                found[place] = value[2]["offset"]
    return found


def _configs(data: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, fields in _metadata(data):
        if name == "ConfigRecord" and fields["ResourceType"] == 2:
            values = found.setdefault(fields["ResourceName"], {})
            if fields["Value"] is None:
                del values[fields["Name"]]
            else:
                values[fields["Name"]] = fields["Value"]
    return found
