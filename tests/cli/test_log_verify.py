"""`odradek log verify`: its findings, and whether the next start acts as the
findings say."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import budget
from cli_runner import Commands
from odradek_broker.platform.machine import (
    ReadOnlyFiles,
    RealClock,
    RealFiles,
    RealRandomness,
)
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.manager import LogManager
from odradek_broker.storage.producers.snapshot import decode_snapshot, encode_snapshot
from odradek_log_tools.segment_file import SegmentFile
from odradek_log_tools.verify.data_directories import DataDirectoriesCheck
from odradek_log_tools.verify.findings import Finding, Findings, Severity
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.stored.cluster_metadata import TopicRecord, encode_record
from waiting import wait_until
from written_directory import FRUIT, MONEY, STAMPED, TRIMMED, WrittenData, data_directory_broker

ODRADEK = Commands("127.0.0.1:1")
FIRST = "00000000000000000000"


def _verify(directory: Path, code: int, *options: str) -> list[dict[str, Any]]:
    printed = ODRADEK.run("log", "verify", str(directory), "--json", *options, code=code)
    return [json.loads(line) for line in printed.splitlines()]


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def _batches(path: Path) -> list[tuple[int, int]]:
    """(position, size in bytes) of each batch."""
    file = ReadOnlyFiles().open(str(path))
    try:
        return [(batch.position, batch.header.size_bytes) for batch in SegmentFile(file).batches()]
    finally:
        file.close()


@pytest.fixture
def stopped(written_data: WrittenData, tmp_path: Path) -> Path:
    shutil.copytree(written_data.stopped, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def killed(written_data: WrittenData, tmp_path: Path) -> Path:
    shutil.copytree(written_data.killed, tmp_path / "data")
    return tmp_path / "data"


# --- Damage ---------------------------------------------------------------------------------------


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)


def _cut(path: Path, size_bytes: int) -> None:
    """Keep the first `size_bytes` bytes; a negative size removes bytes from the end."""
    path.write_bytes(path.read_bytes()[:size_bytes])


def _flip_in_a_closed_segment(data: Path) -> None:
    path = _segments(data / f"{MONEY}-0")[1]
    position, size_bytes = _batches(path)[2]
    _flip(path, position + size_bytes - 1)


def _tear_the_end(data: Path) -> None:
    _cut(_segments(data / f"{MONEY}-0")[-1], -5)


def _lose_the_last_batch(data: Path) -> None:
    path = _segments(data / f"{MONEY}-0")[-1]
    _cut(path, _batches(path)[-1][0])


def _damage_in_the_middle_of_the_active_segment(data: Path) -> None:
    path = data / f"{STAMPED}-0" / f"{FIRST}.log"
    position, size_bytes = _batches(path)[1]
    _flip(path, position + size_bytes - 1)


def _remove_a_segment(data: Path) -> None:
    _segments(data / f"{FRUIT}-0")[1].unlink()


def _remove_the_first_segment(data: Path) -> None:
    _segments(data / f"{FRUIT}-0")[0].unlink()


def _misplace_an_index_entry(data: Path) -> None:
    path = data / f"{FRUIT}-0" / f"{FIRST}.index"
    _flip(path, 7)


def _misdate_an_index_entry(data: Path) -> None:
    path = data / f"{FRUIT}-0" / f"{FIRST}.timeindex"
    content = bytearray(path.read_bytes())
    content[:8] = (1).to_bytes(8, "big")
    path.write_bytes(content)


def _forget_an_aborted_transaction(data: Path) -> None:
    _cut(data / f"{MONEY}-0" / f"{FIRST}.txnindex", -34)


def _forge_a_snapshot(data: Path) -> None:
    """Write a snapshot with a later epoch and a valid checksum."""
    path = min((data / f"{MONEY}-0").glob("*.snapshot"))
    entries = decode_snapshot(path.read_bytes(), map_end_offset=int(path.stem))
    entries[0].epoch += 1
    path.write_bytes(encode_snapshot(entries))


def _change_the_topic_id(data: Path) -> None:
    shutil.copy(data / f"{FRUIT}-0" / "partition.metadata", data / f"{MONEY}-0")


def _misnumber_epochs(data: Path) -> None:
    (data / f"{MONEY}-0" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")


def _remove_a_partition(data: Path) -> None:
    shutil.rmtree(data / f"{FRUIT}-1")


def _remove(name: str) -> Callable[[Path], None]:
    return lambda data: (data / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(data: Path) -> None:
        (data / name).write_text(text)

    return write


def _remove_the_metadata(data: Path) -> None:
    shutil.rmtree(data / "__cluster_metadata-0")


def _strange_metadata(data: Path) -> None:
    """Append a metadata record of Apache Kafka that this broker does not use."""
    path = data / "__cluster_metadata-0" / f"{FIRST}.log"
    batch = bytearray(simple_batch([(None, b"\x01\x1b\x00strange")], 0))
    offset = int(max(path.parent.glob("*.snapshot")).stem)
    batch[:8] = offset.to_bytes(8, "big")
    batch[12:16] = bytes(4)
    path.write_bytes(path.read_bytes() + batch)


def _add_a_topic_twice(data: Path) -> None:
    record = encode_record(TopicRecord(name=FRUIT, topic_id=bytes(16)))
    path = data / "__cluster_metadata-0" / f"{FIRST}.log"
    batch = bytearray(simple_batch([(None, record)], 0))
    offset = int(max(path.parent.glob("*.snapshot")).stem)
    batch[:8] = offset.to_bytes(8, "big")
    batch[12:16] = bytes(4)
    path.write_bytes(path.read_bytes() + batch)


def _no_damage(data: Path) -> None:
    pass


_ACTIVE_MONEY = f"{MONEY}-0/{FIRST}"

DAMAGED: list[tuple[str, Callable[[Path], None], str]] = [
    ("stopped", _flip_in_a_closed_segment, "consumers get CORRUPT_MESSAGE"),
    ("stopped", _tear_the_end, "the next start cuts the log here"),
    ("stopped", _lose_the_last_batch, "when the broker was stopped"),
    ("stopped", _damage_in_the_middle_of_the_active_segment, "consumers get CORRUPT_MESSAGE"),
    ("killed", _damage_in_the_middle_of_the_active_segment, "sound batches after it"),
    ("stopped", _remove_a_segment, "records are lost"),
    ("stopped", _remove_the_first_segment, "segments are missing"),
    ("stopped", _misplace_an_index_entry, "remove it while the broker is stopped"),
    ("stopped", _misdate_an_index_entry, "but there is"),
    ("stopped", _forget_an_aborted_transaction, "aborted transactions, the batches give"),
    ("stopped", _forge_a_snapshot, "batches are read instead"),
    ("stopped", _change_the_topic_id, "the broker does not start"),
    ("stopped", _misnumber_epochs, "of leader epoch 7 by it"),
    ("stopped", _remove_a_partition, "the next start makes an empty one"),
    ("killed", _remove_a_partition, "the next start makes an empty one"),
    ("stopped", _remove("meta.properties"), "belongs to no cluster"),
    ("stopped", _remove_the_metadata, "sets all partitions aside"),
    ("stopped", _strange_metadata, "unknown type 27"),
    ("stopped", _add_a_topic_twice, "created twice"),
]

RECOVERABLE: list[tuple[str, Callable[[Path], None], str]] = [
    ("killed", _no_damage, "the last stop was not clean"),
    ("killed", _tear_the_end, "nothing that was flushed is after it"),
    ("stopped", _remove(f"{FRUIT}-0/{FIRST}.index"), "the broker creates it again"),
    ("stopped", _remove(f"{STAMPED}-0/{FIRST}.timeindex"), "the broker creates it again"),
    ("stopped", _write(f"{STAMPED}-0/{FIRST}.index", "odd"), "no multiple of 8"),
    ("stopped", _write(f"{STAMPED}-0/leader-epoch-checkpoint", "x\n"), "computed again"),
    ("stopped", _remove(f"{FRUIT}-0/partition.metadata"), "the next start writes it"),
    ("stopped", _remove(f"{MONEY}-0/leader-epoch-checkpoint"), "computed again"),
    ("stopped", _remove("replication-offset-checkpoint"), "the next start reads all logs"),
    ("stopped", _write("recovery-point-offset-checkpoint", "0\n5\n"), "computes it from the logs"),
    ("killed", _remove("recovery-point-offset-checkpoint"), "the last stop was not clean"),
    ("stopped", lambda data: max((data / f"{MONEY}-0").glob("*.snapshot")).unlink(), "is missing"),
]

NOTES: list[tuple[Callable[[Path], None], str]] = [
    (_write(f"{FRUIT}-0/{FIRST}.index.deleted", "x"), "it goes at the next start"),
    (_write(f"{FRUIT}-0/{FIRST}.log.cleaned", "x"), "compaction that was not finished"),
    (_write(f"{FRUIT}-0/leader-epoch-checkpoint.tmp", "x"), "to replace another one"),
    (_write(f"{FRUIT}-0/notes.txt", "x"), "is no file of a log"),
    (_write("notes.txt", "x"), "is no part of the data"),
    (_write("odradek.group-lags", "odradek.group-lags 2\n"), "of another version"),
    (lambda data: (data / f"x-0.{'0' * 32}-delete").mkdir(), "is of a deleted topic"),
    (lambda data: (data / f"x-0.{'0' * 32}-stray").mkdir(), "belongs to no topic"),
]


def test_a_directory_after_a_clean_stop_is_sound(stopped: Path) -> None:
    assert _verify(stopped, 0) == []
    assert "13 partitions" in ODRADEK.stderr and "sound" in ODRADEK.stderr


@pytest.mark.parametrize(("left", "damage", "says"), budget.of_which(DAMAGED, DAMAGED[::2]))
def test_damage_is_found_with_its_remedy(
    left: str, damage: Callable[[Path], None], says: str, request: pytest.FixtureRequest
) -> None:
    data: Path = request.getfixturevalue(left)
    damage(data)
    found = [row for row in _verify(data, 2) if row["severity"] == "damaged"]
    assert says in str(found)
    assert all(row["remedy"] for row in found)
    assert "not sound" in ODRADEK.stderr


@pytest.mark.full
@pytest.mark.parametrize(("left", "damage", "says"), budget.of_which(RECOVERABLE, RECOVERABLE[::2]))
def test_a_start_repairs_recoverable_damage(
    left: str, damage: Callable[[Path], None], says: str, request: pytest.FixtureRequest
) -> None:
    data: Path = request.getfixturevalue(left)
    damage(data)
    assert says in str(_verify(data, 1))
    with data_directory_broker(data):
        pass
    _start_and_stop(data)
    found = _verify(data, 0)
    assert not found, found


@pytest.mark.full
@pytest.mark.parametrize(("leave", "says"), NOTES)
def test_leftover_files_are_explained(
    stopped: Path, leave: Callable[[Path], None], says: str
) -> None:
    leave(stopped)
    (row,) = _verify(stopped, 0)
    assert (row["severity"], says in str(row)) == ("note", True)


def test_a_single_partition_can_be_verified(stopped: Path) -> None:
    assert _verify(stopped / f"{MONEY}-0", 0) == []
    _flip_in_a_closed_segment(stopped)
    assert _verify(stopped / f"{MONEY}-0", 2)


def test_a_folder_that_is_no_data_directory_cannot_be_verified(tmp_path: Path) -> None:
    _verify(tmp_path, 3)
    assert "there are no partitions" in ODRADEK.stderr
    _verify(tmp_path / "nowhere", 3)
    assert "nowhere: No such file or directory" in ODRADEK.stderr


def test_the_directory_of_a_running_broker_needs_the_option_running(stopped: Path) -> None:
    with data_directory_broker(stopped):
        assert _verify(stopped, 3) == []
        assert "a broker is running on" in ODRADEK.stderr
        _verify(stopped / f"{MONEY}-0", 3)
        # A checkpoint that the broker is writing.
        (stopped / "log-start-offset-checkpoint.tmp").touch()
        assert _verify(stopped, 0, "--running") == []


def test_no_broker_starts_while_a_directory_is_verified(stopped: Path) -> None:
    release = ReadOnlyFiles().lock(str(stopped / ".lock"))
    with pytest.raises(BlockingIOError):
        RealFiles().lock(str(stopped / ".lock"))
    assert _verify(stopped, 0) == []
    release()
    RealFiles().lock(str(stopped / ".lock"))()


def test_findings_of_one_file_are_limited() -> None:
    found: list[Finding] = []
    findings = Findings(found.append)
    for number in range(1000):
        findings.damaged("a", str(number), "")
    findings.note("a", "something else")
    assert len(found) == 21 and found[19].problem == "19 (more of this file are counted only)"
    assert findings.counts[Severity.DAMAGED] == 1000


# --- Metadata snapshots, compaction ---------------------------------------------------------------


@pytest.mark.full
def test_metadata_snapshots_are_checked_and_replayed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    often = {"metadata.log.max.record.bytes.between.snapshots": 300}
    with data_directory_broker(data, **often) as broker:
        odradek = Commands(broker.bootstrap)
        for count in (1, 2):
            for number in range(8):
                odradek.run("topic", "create", f"t{count}-{number}")
            wait_until(
                lambda count=count: (  # type: ignore[misc]
                    len(list(data.glob("__cluster_metadata-0/*.checkpoint"))) >= count
                ),
                "there is a snapshot more",
            )
    assert _verify(data, 0) == []
    *_, last = sorted(data.glob("__cluster_metadata-0/*.checkpoint"))
    _flip(last, last.stat().st_size // 2)
    assert "takes the one before" in str(_verify(data, 1))
    for path in data.glob("__cluster_metadata-0/*.checkpoint"):
        path.unlink()
    assert _verify(data, 0) == []
    log = data / "__cluster_metadata-0" / f"{FIRST}.log"
    log.rename(log.with_name(f"{4:020d}.log"))
    assert "no snapshot stands for what was before" in str(_verify(data, 2))


def test_an_unfinished_compaction_swap_is_left_to_the_next_start(
    killed: Path,
) -> None:
    directory = killed / f"{FRUIT}-0"
    log, *_ = _segments(directory)
    shutil.copy(log, log.with_suffix(".log.swap"))
    log.with_suffix(".sources.swap").write_text("0\n1\n0\n")
    found = str(_verify(killed, 1))
    assert "compaction was replacing 1 segments" in found
    assert "compaction replaces 1 segments" in str(_verify(killed, 0, "--running"))
    _start_and_stop(killed)
    assert _verify(killed, 0) == []


# --- Any damage -----------------------------------------------------------------------------------


def _worst(data: Path) -> tuple[Severity, list[Finding]]:
    found: list[Finding] = []
    findings = Findings(found.append)
    DataDirectoriesCheck(ReadOnlyFiles(), [str(data)], findings, RealRandomness()).run()
    return findings.worst, found


def _use_indexes(data: Path, log: PartitionLog) -> None:
    """Read by offset, so that damaged indexes of closed segments are rebuilt."""
    for segment in _segments(data / log.name):
        offset = max(int(segment.stem) + 1, log.log_start_offset)
        if offset < log.log_end_offset:
            log.read(offset, 1, upper_bound=log.log_end_offset, minimum_one=True)


def _start_and_stop(data: Path) -> None:
    """Start and stop like the node, and load every log."""
    logs = LogManager([str(data)], RealFiles(), RealClock(), RealRandomness(), LogConfig())
    logs.open_all(lambda topic: LogConfig(index_interval_bytes=100))
    for log in logs:
        log.load(RealClock().wall_ms())
        _use_indexes(data, log)
    assert logs.close() == []


def _contents(data: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*.log"))
        if not path.parent.name.startswith("__")
    }


def _damage_at_random(data: Path, chance: random.Random) -> str:
    names = ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot", "*checkpoint")
    pattern = chance.choice(names)
    path = chance.choice(sorted(data.rglob(pattern)))
    content = path.read_bytes()
    place = chance.randrange(len(content) + 1)
    kind = chance.choice(("flip", "cut", "append", "remove", "zero"))
    if kind == "flip" and place < len(content):
        _flip(path, place)
    elif kind == "cut":
        path.write_bytes(content[:place])
    elif kind == "append":
        path.write_bytes(content + chance.randbytes(chance.randrange(1, 90)))
    elif kind == "zero":
        path.write_bytes(content[:place] + bytes(len(content) - place))
    else:
        path.unlink()
    return f"{kind} at {place} of {path.relative_to(data)}"


@pytest.mark.full
@pytest.mark.parametrize("seed", budget.of_which(range(60), range(12)))
def test_verdicts_on_random_damage_hold_at_the_next_start(
    seed: int, written_data: WrittenData, tmp_path: Path
) -> None:
    """A start changes no record of a directory without findings. A directory with recoverable
    findings has none after a start, except for unused snapshots."""
    chance = random.Random(seed)
    left = chance.choice(written_data)
    data = tmp_path / "data"
    shutil.copytree(left, data)
    what = _damage_at_random(data, chance)
    worst, found = _worst(data)
    if worst is Severity.DAMAGED:
        return
    before = _contents(data)
    if worst is Severity.NOTE:
        assert before == _contents(written_data.stopped), what
    _start_and_stop(data)
    _, remaining = _worst(data)
    remaining = [each for each in remaining if not each.path.endswith(".snapshot")]
    assert not remaining, (what, found, remaining)
    lost = [
        name for name, content in _contents(left).items() if _contents(data).get(name) != content
    ]
    assert not lost or "cuts the log here" in str(found), (what, lost)


def test_damage_in_any_topic_is_found(stopped: Path) -> None:
    for topic in (FRUIT, MONEY, TRIMMED, STAMPED):
        copy = stopped.parent / f"{topic}-data"
        shutil.copytree(stopped, copy)
        path = _segments(copy / f"{topic}-0")[0]
        _flip(path, path.stat().st_size - 1)
        (row, *_) = _verify(copy, 2)
        assert row["file"] == str(path)
