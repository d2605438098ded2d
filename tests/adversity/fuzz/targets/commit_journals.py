"""A commit journal with changed bytes: synced records survive, and the logs accept appends (L-50).

After a power cut the newest batches are only in the journal. One log is compacted, and its active
segment was created just before the power cut: the end of the previous segment is only in the
journal. Bit 0 of the first byte: the checksums of the header and the blocks are corrected. Bit 1:
these and the checksums of the batches are corrected. The rest is a list of changes: a position in
three bytes, and the new byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from tests.adversity.fuzz.target import Broken, Target

from journaled_logs import PATH, World
from logs import append, make_batch, read_all
from odradek_broker.storage.errors import DataDirectoryError
from odradek_broker.storage.journal_format import (
    ALIGN_BYTES,
    BLOCK,
    BLOCK_HEADER_BYTES,
    ENTRY,
    ENTRY_HEADER_BYTES,
    HEADER,
    HEADER_BYTES,
)
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.checksums import crc32c
from odradek_protocol.records.batch import BatchError, iter_batches, update_crc, verify_crc
from odradek_testkit.simulation.disk import MemoryFiles

_PARTITIONS = 3
_COMPACTED = "compacted"
_SEGMENT_BYTES = 3_000
_CHANGE_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Written:
    """The disk after a power cut. For each partition: the synced bytes, the end of the acknowledged
    records, and the base offset of the last segment."""

    files: MemoryFiles
    synced: dict[TopicPartition, bytes]
    acknowledged: dict[TopicPartition, int]
    last_bases: dict[TopicPartition, int]


@cache
def _written() -> _Written:
    world = _world(MemoryFiles())
    world.start()
    logs = [world.create("t", bytes([7]) * 16, partition) for partition in range(_PARTITIONS)]
    logs.append(world.create(_COMPACTED, bytes([8]) * 16))
    synced = {(log.topic, log.partition): read_all(log) for log in logs}
    for step in range(40):
        log = logs[step % _PARTITIONS]
        append(log, make_batch(1, value=bytes([step]) * 50, producer_id=1, sequence=step // 3))
        append(logs[-1], make_batch(1, value=bytes([step]), producer_id=1, sequence=step))
        if step % 2:
            world.flush(*logs)
    while len(logs[-1].segments) == 1:
        append(logs[-1], make_batch(1, value=bytes(500)))
    world.files.sync_dir(logs[-1].directory)
    world.files.crash()
    return _Written(
        world.files,
        synced,
        {(log.topic, log.partition): log.high_watermark for log in logs},
        {(log.topic, log.partition): log.segments[-1].base_offset for log in logs},
    )


def _world(files: MemoryFiles) -> World:
    world = World(files, segment_bytes=_SEGMENT_BYTES)
    compacted = replace(world.config, cleanup_policy=frozenset({"compact"}))
    world.configs[_COMPACTED] = compacted
    return world


def _changed(data: bytes) -> bytes:
    content = bytearray(_written().files.content(PATH))
    for start in range(1, len(data) - _CHANGE_BYTES + 1, _CHANGE_BYTES):
        at = int.from_bytes(data[start : start + 3], "big") % len(content)
        content[at] = data[start + 3]
    if data[:1] and data[0] & 3:
        _seal(content, batches=bool(data[0] & 2))
    return bytes(content)


def _seal(content: bytearray, *, batches: bool) -> None:
    """Correct the checksums."""
    content[HEADER_BYTES - 4 : HEADER_BYTES] = crc32c(content[: HEADER_BYTES - 4]).to_bytes(
        4, "big"
    )
    for start in range(ALIGN_BYTES, len(content), ALIGN_BYTES):
        size_bytes = int.from_bytes(content[start + 32 : start + 36], "big")
        end = start + size_bytes
        if content[start : start + 4] != b"ODRB" or end > len(content):
            continue
        if batches:
            at = start + BLOCK_HEADER_BYTES + ENTRY_HEADER_BYTES
            with suppress(BatchError):
                update_crc(content, at)
        content[start + 4 : start + 8] = crc32c(content[start + 8 : end]).to_bytes(4, "big")


def _check(data: bytes) -> None:
    written = _written()
    disk = written.files.copy()
    content = _changed(data)
    intact = content == disk.content(PATH)
    disk.put(PATH, content)
    world = _world(disk)
    try:
        world.start()
    except DataDirectoryError:
        if content[:4] != b"ODRJ" or content[4:6] <= b"\0\1":
            raise Broken("a journal of no later version is refused") from None
        return
    for key, before in written.synced.items():
        log = world.logs.get(*key)
        if log is None or log.offline:
            raise Broken(f"{key} is not served")
        # If the journal has lost the end of the previous segment, a compacted log may have a gap
        # before its last segment.
        may_skip_to = written.last_bases[key] if key[0] == _COMPACTED else -1
        end = _check_log(read_all(log), before, may_skip_to, written.acknowledged[key], intact)
        if end < written.acknowledged[key] and intact:
            raise Broken(f"{key} has lost what was acknowledged")
        append(log)
        world.flush(log)
        if log.high_watermark != log.log_end_offset:
            raise Broken(f"{key} does not go on")
    if world.stop():
        raise Broken("the stop is not clean")


def _check_log(
    data: bytes, synced: bytes, may_skip_to: int, acknowledged: int, intact: bool
) -> int:
    """Check the batches of a log; returns the offset after the last record."""
    if not data.startswith(synced):
        raise Broken("what was synced has changed")
    offset = 0
    for position, header in iter_batches(data):
        verify_crc(data, position, header)
        skipped = offset < header.base_offset == may_skip_to
        if header.base_offset != offset and not skipped:
            raise Broken(f"a batch with offset {header.base_offset} where {offset} is expected")
        if skipped and intact and offset < acknowledged:
            raise Broken("acknowledged records before the last segment are lost")
        offset = header.next_offset
    return offset


def _seeds() -> Iterator[bytes]:
    content = _written().files.content(PATH)
    header = HEADER.parse(content)
    if header.incarnation == bytes(16):
        raise Broken("the journal has no incarnation")
    places = [0, 4, 5, 6, 22, 25, 26, ALIGN_BYTES]
    for block in range(ALIGN_BYTES, ALIGN_BYTES * 6, ALIGN_BYTES):
        places += range(block, block + BLOCK.sizeof() + ENTRY.sizeof() + 12, 3)
    for flags in range(4):
        yield bytes([flags])
        for at in places:
            yield bytes([flags]) + at.to_bytes(3, "big") + bytes([(content[at] + 1) % 256])
            yield bytes([flags]) + at.to_bytes(3, "big") + b"\xff"


TARGET = Target(_check, _seeds)
