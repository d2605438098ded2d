"""The files have Kafka's formats: another implementation reads them, and some are compared byte for
byte (L-01..L-04, P-26)."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from logs import NOW_MS, append, append_marker, make_batch, make_log, small_file
from odradek_broker.platform.machine import RealFiles
from odradek_protocol.compression import Codec


def walk_batches(content: bytes) -> list[tuple[int, int, int, int]]:
    """(position, base offset, last offset, max timestamp) of each batch, parsed without the
    product's code."""
    found, position = [], 0
    while position < len(content):
        base, length = struct.unpack_from(">qi", content, position)
        (delta,) = struct.unpack_from(">i", content, position + 23)
        (timestamp,) = struct.unpack_from(">q", content, position + 35)
        found.append((position, base, base + delta, timestamp))
        position += 12 + length
    assert position == len(content)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a closed log with transactions, all codecs and several segments."""
    path = tmp_path / "t-0"
    log = make_log(RealFiles(), directory=str(path), segment_bytes=1500, index_interval_bytes=200)
    for at in range(40):
        codec = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD][at % 5]
        value = b"value-%d" % at
        append(log, make_batch(3, value=value, codec=codec, timestamp=NOW_MS - 500 + at * 7 % 90))
        producer = 100 + at
        if at % 10 == 0:
            append(log, make_batch(2, producer_id=producer, epoch=3, transactional=True))
            append_marker(log, commit=at % 20 == 0, producer_id=producer, epoch=3)
    log.close(clean=True)
    return path


def logs_of(directory: Path) -> list[Path]:
    found = sorted(directory.glob("*.log"))
    assert len(found) > 2
    return found


def test_l01_files_have_kafkas_names(directory: Path) -> None:
    names = {path.name for path in directory.iterdir()}
    assert {"leader-epoch-checkpoint", "partition.metadata", f"{0:020d}.log"} <= names
    for path in logs_of(directory):
        assert walk_batches(path.read_bytes())[0][1] == int(path.stem)
        assert {f"{path.stem}.index", f"{path.stem}.timeindex"} <= names
    epochs = (directory / "leader-epoch-checkpoint").read_bytes()
    assert small_file(epochs) == "0\n1\n0 0\n"
    metadata = (directory / "partition.metadata").read_bytes()
    assert small_file(metadata) == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"


@pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords])
def test_readers_of_other_libraries_read_our_segments(
    directory: Path, reader: type[KafkaPythonRecords | AiokafkaRecords]
) -> None:
    offset, values = 0, []
    for path in logs_of(directory):
        batches = reader(path.read_bytes())
        while batches.has_next():
            batch = batches.next_batch()
            assert batch is not None
            assert batch.validate_crc()
            for record in batch:
                assert record.offset == offset
                offset += 1
                if not batch.is_control_batch:
                    values.append(record.value)
    assert values.count(b"value-7") == 3
    assert len(values) == 40 * 3 + 4 * 2
    assert offset == len(values) + 4


def test_l02_an_offset_index_has_kafkas_entries(directory: Path) -> None:
    for path in logs_of(directory):
        base = int(path.stem)
        batches = {position: last for position, _, last, _ in walk_batches(path.read_bytes())}
        entries = list(struct.iter_unpack(">ii", path.with_suffix(".index").read_bytes()))
        assert entries == sorted(entries)
        for relative, position in entries:
            assert batches[position] == base + relative
        # The index has an entry whenever more than index.interval.bytes were written since the last
        # entry.
        positions = [0, *(position for _, position in entries), path.stat().st_size]
        gaps = [b - a for a, b in pairwise(positions)]
        assert all(gap > 200 for gap in gaps[:-1])
        assert all(gap <= 200 + 2 * 300 for gap in gaps)


def test_l03_a_time_index_has_kafkas_entries(directory: Path) -> None:
    for path in logs_of(directory):
        base = int(path.stem)
        batches = walk_batches(path.read_bytes())
        entries = list(struct.iter_unpack(">qi", path.with_suffix(".timeindex").read_bytes()))
        timestamps = [timestamp for timestamp, _ in entries]
        assert timestamps == sorted(set(timestamps))
        for timestamp, relative in entries:
            # Every record with a larger timestamp is after the entry's offset.
            assert all(last > base + relative for _, _, last, t in batches if t > timestamp)
        assert timestamps[-1] == max(timestamp for _, _, _, timestamp in batches)


def test_l04_a_transaction_index_has_kafkas_entries(directory: Path) -> None:
    entries = []
    for path in sorted(directory.glob("*.txnindex")):
        for version, *entry in struct.iter_unpack(">hqqqq", path.read_bytes()):
            assert version == 0
            segment = path.with_suffix(".log")
            offsets = [base for _, base, _, _ in walk_batches(segment.read_bytes())]
            assert entry[2] in offsets
            entries.append(entry)
    assert [entry[0] for entry in entries] == [110, 130]
    for _, first, last, stable in entries:
        assert last == first + 2
        assert stable == last + 1


def test_p26_p27_snapshots_are_at_segment_starts_and_the_log_end(directory: Path) -> None:
    ends = {int(path.stem) for path in logs_of(directory)[1:]}
    last = walk_batches(logs_of(directory)[-1].read_bytes())[-1][2] + 1
    found = {int(path.stem): path.read_bytes() for path in directory.glob("*.snapshot")}
    assert set(found) == ends | {last}
    version, _, count = struct.unpack_from(">hIi", found[last])
    assert (version, count) == (1, 4)
    producers = [struct.unpack_from(">qhiqiqiq", found[last], 10 + at * 46)[0] for at in range(4)]
    assert sorted(producers) == [100, 110, 120, 130]
