"""`odradek log dump`: every kind of file that a broker writes, damaged files, and the limits of the
dump."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_runner import Commands
from odradek import sync
from odradek_broker.platform.machine import ReadOnlyFiles
from odradek_cli import layout
from odradek_log_tools.file_names import parse_file
from odradek_log_tools.record_decoders import decode_record
from odradek_protocol.records.builder import simple_batch
from written_directory import FRUIT, GROUPS, MONEY, SHARE_GROUP, WrittenData, data_directory_broker

ODRADEK = Commands("127.0.0.1:1")
FIRST = "00000000000000000000"


@pytest.fixture(scope="module")
def data(written_data: WrittenData) -> Path:
    return written_data.stopped


def _rows(*arguments: Path | str, code: int = 0) -> list[dict[str, Any]]:
    printed = ODRADEK.run("log", "dump", "--json", *map(str, arguments), code=code)
    return [json.loads(line) for line in printed.splitlines()]


def test_log_dump_has_rows_of_every_kind_of_file(data: Path) -> None:
    rows = _rows(data, "--records")
    assert {row["kind"] for row in rows} == {
        *("batch", "record", "offset-index-entry", "time-index-entry", "aborted-transaction"),
        *("producer", "leader-epoch", "offset", "partition-metadata", "property", "group-lag"),
    }
    dumped = {Path(row["file"]).relative_to(data) for row in rows}
    empty = {
        path.relative_to(data)
        for path in data.rglob("*")
        if parse_file(path.name) is not None and not path.stat().st_size
    }
    files = {path.relative_to(data) for path in data.rglob("*") if path.is_file()}
    without_rows = {path for path in files - dumped - empty if path.suffix != ".snapshot"}
    allowed = {".lock", ".cleaner.lock", "leader-epoch-checkpoint"}
    assert {path.name for path in without_rows} <= allowed


def test_record_counts_of_batches_match_the_records(data: Path) -> None:
    rows = _rows(data / f"{FRUIT}-0", "--records", "--only", "log")
    batches = [row for row in rows if row["kind"] == "batch"]
    records = [row for row in rows if row["kind"] == "record"]
    assert {row["codec"] for row in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert sum(row["records"] for row in batches) == len(records)
    assert [row["offset"] for row in records] == list(range(len(records)))
    assert all(row["valid"] for row in batches)
    assert records[0]["headers"] == [["h", {"base64": "/wA="}], ["n", None]]
    control = [row for row in records if isinstance(row["key"], dict)]
    assert {row["key"]["type"] for row in control} == {"COMMIT", "ABORT"}


def test_records_of_internal_topics_are_decoded(data: Path) -> None:
    rows = [row for row in _rows(data, "--records", "--only", "log") if row["kind"] == "record"]

    def of(topic: str) -> list[dict[str, Any]]:
        return [row for row in rows if Path(row["file"]).parent.name.startswith(topic)]

    metadata = of("__cluster_metadata")
    names = [row["value"]["data"].get("name") for row in metadata]
    assert {FRUIT, MONEY, "flush.ms"} <= {*names}
    assert {row["value"]["type"] for row in metadata} >= {"RemoveTopicRecord", "ProducerIdsRecord"}
    states = {row["value"]["data"]["transaction_state"] for row in of("__transaction_state")}
    assert states >= {"Empty", "Ongoing", "PrepareAbort", "CompleteCommit"}
    shared = of("__share_group_state")
    assert {row["key"]["type"] for row in shared} == {"ShareSnapshotKey", "ShareUpdateKey"}
    assert {row["key"]["data"]["group_id"] for row in shared} == {SHARE_GROUP}
    (second,) = [
        row["value"]["data"]
        for row in shared
        if row["value"] is not None and row["value"]["data"]["snapshot_epoch"] == 1
        if row["value"]["type"] == "ShareSnapshotValue"
    ]
    assert second["state_batches"] == [
        {"first_offset": 2, "last_offset": 3, "delivery_state": 2, "delivery_count": 1}
    ]
    groups = [row for row in of("__consumer_offsets") if "data" in row["key"]]
    ids = {row["key"]["data"].get("group", row["key"]["data"].get("group_id")) for row in groups}
    assert ids == {*GROUPS, "spending"}
    (first, *_) = [row for row in groups if row["key"]["type"] == "GroupMetadataKey"]
    (member,) = first["value"]["data"]["members"]
    assert member["subscription"]["topics"] == [FRUIT]


def test_offset_and_count_limit_the_dump(data: Path) -> None:
    directory = data / f"{MONEY}-0"
    assert [
        row["base_offset"] for row in _rows(directory / f"{FIRST}.log", "-o", "3", "-c", "2")
    ] == [
        3,
        4,
    ]
    rows = _rows(directory / f"{FIRST}.log", "-r", "-o", "3", "-c", "2")
    assert [row["offset"] for row in rows if row["kind"] == "record"] == [3, 4]
    index = _rows(directory / f"{FIRST}.index")
    assert _rows(directory / f"{FIRST}.index", "-o", str(index[3]["offset"]), "-c", "1") == [
        index[3]
    ]
    ODRADEK.run("log", "dump", str(data), "--only", "nonsense", code=2)


def test_tables_have_a_heading_for_each_file(data: Path) -> None:
    printed = ODRADEK.run("log", "dump", str(data / f"{MONEY}-0"))
    lines = printed.splitlines()
    heading = next(line for line in lines if line.startswith("BASE-OFFSET"))
    row = lines[lines.index(heading) + 1]
    assert heading.split()[:3] == ["BASE-OFFSET", "LAST-OFFSET", "RECORDS"]
    assert row.split()[:3] == ["0", "0", "1"]
    assert heading.index("POSITION") == row.index(" 0  ", heading.index("POSITION") - 1) + 1


def test_no_line_is_wider_than_the_terminal(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    piped = ODRADEK.run("log", "dump", str(data), "--records")
    assert "BASE-OFFSET  LAST-OFFSET" in piped and max(map(len, piped.splitlines())) > 200
    monkeypatch.setattr(layout, "columns", lambda: 100)
    monkeypatch.setattr(layout, "is_terminal", lambda: True)
    shown = ODRADEK.run("log", "dump", str(data), "--records")
    paths = {str(path) for path in data.rglob("*")}
    lines = [line for line in shown.splitlines() if line not in paths]
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("base_offset: 0  last_offset: ") for line in lines)
    assert "LEADER-EPOCH  START-OFFSET\n" in shown

    def records(output: str) -> list[str]:
        whole = re.sub(r"\n(\| )? {4}(?=\S)", "", output)
        return [line.replace(" ", "") for line in whole.splitlines() if line.startswith("| ")]

    assert records(shown) == records(piped)


def test_control_characters_in_values_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / f"{FIRST}.log"
    path.parent.mkdir()
    path.write_bytes(simple_batch([(b"k\x1b[2J", b"a\nb\tc")], 1_700_000_000_000))
    printed = ODRADEK.run("log", "dump", str(path), "--records")
    assert printed.splitlines()[2].endswith(r"key: k\x1b[2J  value: a\nb\tc")
    (_, record) = _rows(path, "--records")
    assert record["value"] == "a\nb\tc"


def test_a_damaged_batch_is_named_and_later_ones_are_shown(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / f"{FIRST}.log"
    content = bytearray((data / f"{MONEY}-0" / copy.name).read_bytes())
    batches = _rows(data / f"{MONEY}-0" / copy.name)
    content[batches[2]["position"] + 62] ^= 1
    copy.write_bytes(content)
    rows = _rows(copy, "-r", code=1)
    assert [row["valid"] for row in rows if row["kind"] == "batch"] == [
        at != 2 for at in range(len(batches))
    ]
    assert f"the batch at byte {batches[2]['position']}: checksum is" in ODRADEK.stderr
    copy.write_bytes(bytes(content[:-3]))
    assert len(_rows(copy, code=1)) == len(batches) - 1
    assert f"byte {batches[-1]['position']}: a batch of" in ODRADEK.stderr
    copy.write_bytes(bytes(content[: batches[1]["position"]]) + b"\xff" * 100)
    assert len(_rows(copy, code=1)) == 1


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (f"{FIRST}.index", b"123", "3 bytes after the last whole entry"),
        (f"{FIRST}.snapshot", b"123", "too few for a producer snapshot"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "2 entries announced"),
        ("partition.metadata", b"version: 0\n", "no topic_id line"),
        ("quorum-state", b"[" * 100_000, "no JSON"),
    ],
)
def test_damaged_files_are_one_line_on_stderr(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert _rows(path, code=1) == []
    assert says in ODRADEK.stderr
    assert len(ODRADEK.stderr.splitlines()) == 1


def test_files_that_are_not_of_a_log_are_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.txt").touch()
    ODRADEK.run("log", "dump", str(tmp_path / "odd.txt"), code=2)
    ODRADEK.run("log", "dump", str(tmp_path), code=1)


@pytest.mark.full
def test_log_dump_does_not_disturb_a_running_broker(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)

    with data_directory_broker(copy) as broker:
        assert _rows(copy, "-r")
        with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send_and_wait(FRUIT, b"more", partition=0)
        rows = _rows(copy / f"{FRUIT}-0", "-r", "--only", "log")
        assert rows[-1]["value"] == "more"


def test_read_only_files_refuse_every_change(tmp_path: Path) -> None:
    files, path = ReadOnlyFiles(), str(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        files.open(path, create=True)
    Path(path).write_text("text")
    file = files.open(path)
    attempts: list[Callable[[], object]] = [
        lambda: file.append([b"more"]),
        lambda: file.truncate(0),
        lambda: files.remove(path),
        lambda: files.rename(path, path + "y"),
        lambda: files.remove_tree(str(tmp_path)),
        lambda: files.make_dirs(str(tmp_path / "new")),
        lambda: files.sync_dir(str(tmp_path)),
    ]
    for attempt in attempts:
        with pytest.raises(OSError):
            attempt()
    file.close()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("x", "text")]


def test_records_of_unknown_types_and_versions_stay_bytes() -> None:
    key = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
    assert decode_record("__consumer_offsets", b"\x00\x63?", b"v") == (b"\x00\x63?", b"v")
    decoded, value = decode_record("__consumer_offsets", key, b"\x00\x63?")
    assert (decoded["data"]["group"], value) == ("g", b"\x00\x63?")
    assert decode_record("__share_group_state", b"\x00\x07x", b"") == (b"\x00\x07x", b"")
    assert decode_record("__transaction_state", b"\x00\x07x", b"") == (b"\x00\x07x", b"")
    _, value = decode_record("__cluster_metadata", None, b"\x01\x1b\x02rest")
    assert value == {"type": 27, "version": 2, "data": b"rest"}
    assert decode_record("__cluster_metadata", None, b"") == (None, b"")
