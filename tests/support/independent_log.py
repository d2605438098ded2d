"""A reader of every file of a data directory, written only from the descriptions of the formats.

The reader shares no code with the product, so that it can disagree with it. The descriptions are
docs/rules/log.md, docs/rules/protocol.md, docs/rules/producer.md, and Kafka's documentation of
record batches. The reader reads whole files into memory, and fails (AssertionError, ValueError,
struct.error) on anything that does not match the descriptions.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import lz4.frame
import snappy  # type: ignore[import-untyped]
import zstandard

from kafka_definitions import Bytes, decode

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_XERIAL = b"\x82SNAPPY\x00"
_TRAILER = b"ODRK"
_SEGMENT_STATE = b"ODRS\x00\x01"
ABORT, COMMIT = 0, 1


@cache
def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), computed bit by bit from its polynomial."""
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass
class Batch:
    """One record batch of format 2; the names are those of Kafka's documentation in snake case."""

    position: int
    size_bytes: int
    base_offset: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[Record] = field(default_factory=list)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> str:
        return _CODECS[self.attributes & 7]

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & 8)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & 16)

    @property
    def control(self) -> bool:
        return bool(self.attributes & 32)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % 2**31

    def marker(self) -> tuple[int, int]:
        """(type, coordinator epoch) of the marker in a control batch."""
        (record,) = self.records
        assert record.key is not None and record.value is not None
        version, kind = struct.unpack(">hh", record.key)
        value_version, epoch = struct.unpack(">hi", record.value)
        assert (version, value_version) == (0, 0)
        return kind, epoch


def read_segment(path: Path) -> list[Batch]:
    """All batches of a segment, with their records; fails on a wrong checksum or a decreasing
    offset."""
    data, position, found = path.read_bytes(), 0, []
    expected = int(path.name.partition(".")[0].partition("-")[0])
    while position < len(data):
        batch = _batch(data, position)
        assert batch.base_offset >= expected, (path, position)
        expected = batch.last_offset + 1
        position += batch.size_bytes
        found.append(batch)
    return found


def _batch(data: bytes, position: int) -> Batch:
    base_offset, length, epoch, magic, crc = struct.unpack_from(">qiibI", data, position)
    assert magic == 2, magic
    end = position + 12 + length
    assert end <= len(data), "the last batch is cut"
    assert crc32c(data[position + 21 : end]) == crc, f"checksum of the batch at {position}"
    fields = struct.unpack_from(">hiqqqhii", data, position + 21)
    batch = Batch(position, 12 + length, base_offset, epoch, crc, *fields[:-1])
    body = _decompressed(batch.codec, data[position + 61 : end])
    batch.records = list(_records(batch, body, fields[-1]))
    return batch


def _decompressed(codec: str, body: bytes) -> bytes:
    if codec == "gzip":
        return gzip.decompress(body)
    if codec == "lz4":
        return bytes(lz4.frame.decompress(body))
    if codec == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    if codec == "snappy":
        return b"".join(_snappy_blocks(body))
    return body


def _snappy_blocks(body: bytes) -> Iterator[bytes]:
    """Decompress Java's framing of Snappy: a header of 16 bytes, then blocks with their lengths."""
    assert body.startswith(_XERIAL)
    position = 16
    while position < len(body):
        (length,) = struct.unpack_from(">i", body, position)
        yield snappy.uncompress(body[position + 4 : position + 4 + length])
        position += 4 + length


def _records(batch: Batch, body: bytes, count: int) -> Iterator[Record]:
    data = Bytes(body)
    for _ in range(count):
        length = data.varint()
        end = data.at + length
        assert data.take(1) == b"\0"
        timestamp, offset = batch.base_timestamp + data.varint(), batch.base_offset + data.varint()
        key, value = _nullable(data), _nullable(data)
        headers = []
        for _ in range(data.varint()):
            name = data.take(data.varint()).decode()
            headers.append((name, _nullable(data)))
        assert data.at == end
        if batch.log_append_time:
            timestamp = batch.max_timestamp
        yield Record(offset, timestamp, key, value, headers)
    assert data.at == len(body)


def _nullable(data: Bytes) -> bytes | None:
    length = data.varint()
    return None if length < 0 else data.take(length)


# --- Indexes --------------------------------------------------------------------------------------


def _entries(path: Path, form: str) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(form, path.read_bytes()))


def read_offset_index(path: Path) -> list[tuple[int, int]]:
    """The entries (offset, position) of an offset index."""
    base = int(path.stem)
    return [(base + relative, position) for relative, position in _entries(path, ">ii")]


def read_time_index(path: Path) -> list[tuple[int, int]]:
    """The entries (timestamp, offset) of a time index."""
    base = int(path.stem)
    return [(timestamp, base + relative) for timestamp, relative in _entries(path, ">qi")]


def read_transaction_index(path: Path) -> list[tuple[int, int, int, int]]:
    """The entries (producer id, first offset, last offset, last stable offset) of a transaction
    index."""
    found = _entries(path, ">hqqqq")
    assert all(entry[0] == 0 for entry in found)
    return [(entry[1], entry[2], entry[3], entry[4]) for entry in found]


# --- Producers ------------------------------------------------------------------------------------


class StoredBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


@dataclass
class Snapshot:
    """A producer snapshot. `producers`: the entries in Kafka's format; `batches`: producer id ->
    the batches in the trailer."""

    producers: list[dict[str, Any]]
    batches: dict[int, list[StoredBatch]]


def read_snapshot(path: Path) -> Snapshot:
    data = path.read_bytes()
    version, crc = struct.unpack_from(">hI", data)
    assert version == 1 and crc32c(data[6:]) == crc
    (count,) = struct.unpack_from(">i", data, 6)
    end = 10 + 46 * count
    kafka = decode("ProducerSnapshot", 1, Bytes(data[2:end]))
    trailer = Bytes(data[end:])
    batches = {}
    if trailer.data:
        assert trailer.take(4) == _TRAILER and trailer.number(">H") == 1
        for _ in range(trailer.number(">I")):
            producer_id, number = trailer.number(">q"), trailer.number(">B")
            batches[producer_id] = [
                StoredBatch._make(struct.unpack(">iqiq", trailer.take(24))) for _ in range(number)
            ]
        rest = trailer.data[trailer.at :]
        # The rest is the state that the active segment had at the time of the snapshot.
        assert not rest or (rest[:6] == _SEGMENT_STATE and len(rest) == 54)
    return Snapshot(kafka["ProducerEntries"], batches)


# --- The lag of groups ---------------------------------------------------------------------------


def read_group_lags(path: Path) -> dict[str, list[tuple[int, int]]]:
    """group -> points of (time, lag)."""
    version, _, rest = path.read_bytes().partition(b"\n")
    assert version == b"odradek.group-lags 1"
    assert crc32c(rest[4:]) == int.from_bytes(rest[:4], "big")
    data, found = Bytes(rest[4:]), {}
    while data.at < len(data.data):
        name_bytes, points = data.number(">H"), data.number(">H")
        name = data.take(name_bytes).decode()
        found[name] = [(data.number(">q"), data.number(">q")) for _ in range(points)]
    return found


# --- Small files ----------------------------------------------------------------------------------


def read_offsets(path: Path) -> dict[str, int]:
    """The entries of a checkpoint file: `topic-partition` -> offset."""
    fields = (entry.split(" ") for entry in _read_entries(path))
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in fields}


def read_epochs(path: Path) -> list[tuple[int, int]]:
    """The entries (leader epoch, start offset) of a leader epoch checkpoint."""
    fields = (entry.split(" ") for entry in _read_entries(path))
    return [(int(epoch), int(offset)) for epoch, offset in fields]


def _read_entries(path: Path) -> list[str]:
    """The lines of a checkpoint file in Kafka's format.

    Our broker appends to each line its CRC-32C, encoded in blanks; Kafka appends nothing.
    """
    version, count, *lines = path.read_text().splitlines()
    assert (version, int(count)) == ("0", len(lines))
    entries = [line.rstrip() for line in lines]
    for entry, line in zip(entries, lines, strict=True):
        assert line[len(entry) :] in ("", _crc_in_blanks(entry))
    return entries


def _crc_in_blanks(text: str) -> str:
    crc = crc32c(text.encode())
    return "".join(" \t"[crc >> bit & 1] for bit in range(31, -1, -1))


def read_topic_id(path: Path) -> bytes:
    first, second = path.read_text().splitlines()
    assert first == "version: 0"
    name, _, value = second.partition(":")
    assert name == "topic_id"
    text = value.strip()
    assert value in (f" {text}", _crc_in_blanks(text) + text)
    return base64.urlsafe_b64decode(text + "==")


def read_properties(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def read_clean_shutdown(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# --- Meaning of batches ---------------------------------------------------------------------------


@dataclass
class Producer:
    """A producer's state after its last replayed batch."""

    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    open_since: int = -1


@dataclass
class Replay:
    """The state of producers after some batches, and the aborted transactions so far.

    `aborted`: (producer id, first offset, offset of the marker, last stable offset).
    """

    producers: dict[int, Producer] = field(default_factory=dict)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)

    def follow(self, batch: Batch) -> None:
        if batch.producer_id < 0:
            return
        producer = self.producers.setdefault(batch.producer_id, Producer())
        if batch.producer_epoch != producer.epoch:
            producer.epoch = batch.producer_epoch
            producer.last_sequence = producer.last_offset = -1
            producer.offset_delta = 0
        producer.timestamp = batch.max_timestamp
        if batch.control:
            self._end(batch, producer)
            return
        producer.last_sequence, producer.last_offset = batch.last_sequence, batch.last_offset
        producer.offset_delta = batch.last_offset_delta
        if batch.transactional and producer.open_since < 0:
            producer.open_since = batch.base_offset

    def _end(self, batch: Batch, producer: Producer) -> None:
        kind, producer.coordinator_epoch = batch.marker()
        first, producer.open_since = producer.open_since, -1
        if kind != ABORT or first < 0:
            return
        open_since = [each.open_since for each in self.producers.values() if each.open_since >= 0]
        stable = min(open_since, default=batch.last_offset + 1)
        self.aborted.append((batch.producer_id, first, batch.last_offset, stable))


def committed_records(batches: list[Batch], log_start_offset: int) -> list[Record]:
    """The records that a consumer of committed records reads."""
    replay, found = Replay(), []
    for batch in batches:
        replay.follow(batch)
    stable = min(
        (each.open_since for each in replay.producers.values() if each.open_since >= 0),
        default=2**62,
    )
    for batch in batches:
        hidden = batch.transactional and any(
            producer_id == batch.producer_id and first <= batch.base_offset < last
            for producer_id, first, last, _ in replay.aborted
        )
        if not batch.control and not hidden:
            found += [each for each in batch.records if log_start_offset <= each.offset < stable]
    return found
