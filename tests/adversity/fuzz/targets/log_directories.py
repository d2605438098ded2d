"""A partition's directory with one changed file: the start repairs or refuses it, and a started log
accepts reads and appends (L-30 to L-35).

The first byte chooses the file, the second byte how the log starts and what the rest is:

- bit 0: the previous stop was clean
- bit 1: checksums in the changed file are corrected
- bit 2: the rest is a list of changes (a position in two bytes, and the new byte), not a whole file
- bits 3 and 4: the recovery point
- bit 5: the log start offset
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tests.adversity.fuzz.target import Broken, Target

from logs import NOW_MS, append, append_marker, headers, make_batch, make_log, read_all
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_options import LogStart
from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import (
    BatchError,
    BatchHeader,
    iter_batches,
    update_crc,
    verify_crc,
)
from odradek_testkit.simulation.disk import MemoryFiles

_CONFIG: dict[str, Any] = {"segment_bytes": 1200, "index_interval_bytes": 60}
_READS_MAX = 500
_CRC_OF_SNAPSHOT = slice(2, 6)


def _written() -> MemoryFiles:
    """A log of several segments, with transactions, after a clean stop."""
    files = MemoryFiles(now_ms=NOW_MS)
    log = make_log(files, **_CONFIG)
    codecs = list(Codec)
    for at in range(24):
        append(log, make_batch(2, codec=codecs[at % 5], timestamp=NOW_MS + at % 7))
        if at % 4 == 0:
            append(log, make_batch(1, producer_id=at, transactional=True))
            if at % 8 == 0:
                append_marker(log, commit=at % 16 == 0, producer_id=at)
    log.close(clean=True)
    return files


_FILES = _written()
_PATHS = _FILES.paths()
_WHOLE = make_log(_FILES.copy(), start=LogStart(), **_CONFIG)
_END = _WHOLE.log_end_offset


def _changed(how: int, path: str, rest: bytes) -> bytes:
    if how & 4:
        content = bytearray(_FILES.content(path))
        for start in range(0, len(rest) - 2, 3):
            at = int.from_bytes(rest[start : start + 2], "big")
            content[at : at + 1] = rest[start + 2 : start + 3]
    else:
        content = bytearray(rest)
    if how & 2 and path.endswith(".log"):
        _seal(content)
    elif how & 2 and path.endswith(".snapshot"):
        content[_CRC_OF_SNAPSHOT] = crc32c(content[6:]).to_bytes(4, "big")
    return bytes(content)


def _seal(content: bytearray) -> None:
    """Correct the checksums of whole batches."""
    positions = []
    with suppress(BatchError):
        positions += [position for position, _ in iter_batches(bytes(content))]
    for position in positions:
        with suppress(BatchError):
            update_crc(content, position)


def _start(files: MemoryFiles, how: int) -> PartitionLog | None:
    """The started log; None if the start raises a declared error."""
    clean = bool(how & 1)
    recovery_point = _END if clean else _END * (how >> 3 & 3) // 3
    log_start = 5 if how & 32 else 0
    start = LogStart(log_start, _END if clean else 0, recovery_point, clean)
    with suppress(StorageError):
        return make_log(files, start=start, **_CONFIG)
    return None


def _read(log: PartitionLog, *, sound: bool) -> None:
    """Read the log from start to end. `sound`: damage fails the test."""
    offset = log.log_start_offset
    for _ in range(_READS_MAX):
        if offset >= log.log_end_offset:
            return
        try:
            data = log.read_at_once(offset, 700)
            found = list(iter_batches(data))
        except (StorageError, BatchError):
            if sound:
                raise
            return
        if sound:
            _check_batches(data, found, offset)
        if not found or found[-1][1].next_offset <= offset:
            return
        offset = found[-1][1].next_offset
    raise Broken("reading does not end")


def _check_whole(log: PartitionLog) -> None:
    """Check that every batch is found by its offset, even with damaged indexes."""
    wanted = [header.base_offset for header in headers(read_all(_WHOLE))]
    for offset in (each for each in wanted if each >= log.log_start_offset):
        found = headers(log.read_at_once(offset, 1))
        if found[0].base_offset != offset:
            raise Broken(f"offset {offset} is looked for, and {found[0].base_offset} found")


def _check_batches(data: bytes, found: list[tuple[int, BatchHeader]], offset: int) -> None:
    """Check that the batches are whole, and contiguous from `offset` on."""
    if not found:
        raise Broken(f"nothing is at offset {offset}, before the end")
    for position, header in found:
        verify_crc(data, position, header)
        if header.next_offset <= offset:
            raise Broken(f"a batch to {header.last_offset}, looked for {offset}")
        offset = header.next_offset


def _ask(log: PartitionLog, *, sound: bool) -> None:
    """Call all methods of the log that search in it."""
    for timestamp in (0, NOW_MS + 3, NOW_MS + 1000):
        with suppress(*(() if sound else (StorageError,))):
            log.offset_for_timestamp(timestamp, log.log_end_offset)
    with suppress(*(() if sound else (StorageError,))):
        log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        log.max_timestamp_offset()
    log.leader_epochs.end_offset(0, log.log_end_offset)


def _check_scanned(files: MemoryFiles, log: PartitionLog, *, sealed: bool) -> None:
    """Check that a log that was scanned completely is sound, and that another start finds it again.

    `sealed`: checksums were corrected, so a batch may have invalid records and a valid checksum.
    """
    _read(log, sound=True)
    _ask(log, sound=not sealed)
    end = log.log_end_offset
    log.close(clean=False)
    again = make_log(files, start=LogStart(log.log_start_offset), **_CONFIG)
    if again.log_end_offset != end or again.report.truncated_bytes:
        raise Broken(f"the end was {end}, is {again.log_end_offset} now: {again.report.problem}")
    appended = append(again)
    if appended.base_offset != end:
        raise Broken(f"an append to the end {end} is at {appended.base_offset}")
    _read(again, sound=True)
    again.close(clean=True)


def _check(data: bytes) -> None:
    if len(data) < 2:
        return
    path, how = _PATHS[data[0] % len(_PATHS)], data[1]
    files = _FILES.copy()
    files.put(path, _changed(how, path, data[2:]))
    log = _start(files, how)
    if log is None:
        return
    scanned = not how & 1 and not how & 24
    if scanned:
        _check_scanned(files, log, sealed=bool(how & 2))
        return
    _read(log, sound=False)
    if how & 1 and path.endswith(".index"):
        _check_whole(log)
    _ask(log, sound=False)
    with suppress(StorageError):
        append(log)
    with suppress(StorageError):
        log.close(clean=True)
    make_log(files, start=LogStart(), **_CONFIG)


def _seeds() -> Iterator[bytes]:
    for number, path in enumerate(_PATHS):
        for how in (0, 1, 2, 3, 8, 32):
            yield bytes([number, how]) + _FILES.content(path)
        for how in (4, 5, 6, 7, 4 + 8):
            yield bytes([number, how]) + b"\0\4\1" + b"\0\x10\7"


TARGET = Target(_check, _seeds)
