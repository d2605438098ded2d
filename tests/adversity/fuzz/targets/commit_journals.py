"""A commit journal with other bytes in it: what was synced stays, and the logs go on (L-50).

The files have lost what only the journal had. The first byte: bit 0 makes the checksums of header and blocks fit, bit 1 those
of the batches in them. The rest is a list of changes: position in three bytes, one byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from tests.adversity.fuzz.target import Broken, Target

from journaled_logs import PATH, World
from logs import append, make_batch, read_all
from odradek.simulation.disk import MemoryFiles
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
from odradek_protocol.checksums import crc32c
from odradek_protocol.records.batch import BatchError, iter_batches, update_crc, verify_crc

_PARTITIONS = 3
_CHANGE_BYTES = 4


@cache
def _written() -> tuple[MemoryFiles, list[bytes]]:
    """After a power cut; and what was synced of each partition."""
    world = World(MemoryFiles())
    world.start()
    logs = [world.create("t", bytes([7]) * 16, partition) for partition in range(_PARTITIONS)]
    synced = [read_all(log) for log in logs]
    for step in range(40):
        log = logs[step % _PARTITIONS]
        append(log, make_batch(1, value=bytes([step]) * 50, producer_id=1, sequence=step // 3))
        if step % 2:
            world.flush(*logs)
    world.files.crash()
    return world.files, synced


def _changed(data: bytes) -> bytes:
    content = bytearray(_written()[0].content(PATH))
    for start in range(1, len(data) - _CHANGE_BYTES + 1, _CHANGE_BYTES):
        at = int.from_bytes(data[start : start + 3], "big") % len(content)
        content[at] = data[start + 3]
    if data[:1] and data[0] & 3:
        _seal(content, batches=bool(data[0] & 2))
    return bytes(content)


def _seal(content: bytearray, *, batches: bool) -> None:
    """Make checksums fit."""
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
    files, synced = _written()
    disk = files.copy()
    content = _changed(data)
    disk.put(PATH, content)
    world = World(disk)
    try:
        world.start()
    except DataDirectoryError:
        if content[:4] != b"ODRJ" or content[4:6] <= b"\0\1":
            raise Broken("a journal of no later version is refused") from None
        return
    for partition, before in enumerate(synced):
        log = world.logs.get("t", partition)
        if log is None or log.offline:
            raise Broken(f"partition {partition} is not served")
        _check_log(read_all(log), before)
        append(log)
        world.flush(log)
        if log.high_watermark != log.log_end_offset:
            raise Broken(f"partition {partition} does not go on")
    if world.stop():
        raise Broken("the stop is not clean")


def _check_log(data: bytes, synced: bytes) -> None:
    if not data.startswith(synced):
        raise Broken("what was synced has changed")
    offset = 0
    for position, header in iter_batches(data):
        verify_crc(data, position, header)
        if header.base_offset != offset:
            raise Broken(f"a batch with offset {header.base_offset} where {offset} is expected")
        offset = header.next_offset


def _seeds() -> Iterator[bytes]:
    content = _written()[0].content(PATH)
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
