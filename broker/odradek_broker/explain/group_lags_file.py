"""The lag of groups over time in a file beside the metadata log, which restarts keep (G-166).

    a line with the version; CRC-32C of the rest; then for each group
    length of its id (2 bytes), number of points (2), id, points of time and lag (8 each)

All numbers are big-endian. The points are the coarse ones of `group_lags.py`. The file is a cache:
nothing else depends on it, and one that cannot be read is ignored.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Generator
from contextlib import suppress
from functools import partial

from odradek_broker.explain.group_lags import COARSE_MS, GroupLags
from odradek_broker.platform.seams import Files, write_atomically
from odradek_broker.storage.manager import LogManager
from odradek_protocol.checksums import crc32c

NAME = "odradek.group-lags"
#: The file is written at a clean stop, and at this interval.
INTERVAL_MS = COARSE_MS
#: The limit of the file. Groups beyond it are left out; 1,000 groups with short ids take 9 MB.
BYTES_MAX = 16 * 1024 * 1024
_VERSION = b"odradek.group-lags 1\n"
_GROUP = struct.Struct(">HH")
_HEAD_BYTES = len(_VERSION) + 4
_POINT_BYTES = 16


def _encode_group(group_id: str, points: array[int]) -> bytes:
    name = group_id.encode()
    return _GROUP.pack(len(name), len(points) // 2) + name + _big_endian(points).tobytes()


def _big_endian(numbers: array[int]) -> array[int]:
    turned = array("q", numbers)
    if sys.byteorder == "little":
        turned.byteswap()
    return turned


def read_group_lags(files: Files, path: str) -> dict[str, array[int]]:
    """The points of each group, as alternating times and lags; empty if there is no file. Raises
    ValueError that says what is wrong with the file, OSError."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return {}
    try:
        size_bytes = file.size()
        content = file.read_at(0, size_bytes) if size_bytes <= BYTES_MAX else b""
    finally:
        file.close()
    if not content.startswith(_VERSION):
        raise ValueError("is damaged or has the format of another version")
    at = _HEAD_BYTES
    if crc32c(content[at:]) != int.from_bytes(content[at - 4 : at], "big"):
        raise ValueError("is damaged: its checksum is wrong")
    found: dict[str, array[int]] = {}
    while at < len(content):
        if len(content) - at < _GROUP.size:
            raise ValueError("is damaged: it ends inside of a group")
        name_bytes, points = _GROUP.unpack_from(content, at)
        at += _GROUP.size + name_bytes
        numbers = array("q", content[at : at + points * _POINT_BYTES])
        found[content[at - name_bytes : at].decode()] = _big_endian(numbers)
        at += points * _POINT_BYTES
    return found


class GroupLagsFile:
    """Writes the file of `lags`, and reads it at a start. Problems of the disk change nothing."""

    def __init__(self, lags: GroupLags, logs: LogManager) -> None:
        self._lags = lags
        self._logs = logs
        self._due_ms = 0

    def load(self, monotonic_ms: int, wall_ms: int) -> list[str]:
        """Restore the lag of the file; returns the problem with it, if there is one."""
        self._due_ms = monotonic_ms + INTERVAL_MS
        path = self._logs.metadata_directory.path_of(NAME)
        try:
            self._lags.restore(read_group_lags(self._logs.files, path), wall_ms)
        except (ValueError, OSError) as problem:
            return [f"the lag of groups over time begins anew: {path} {problem}"]
        return []

    def step(self, monotonic_ms: int) -> Generator[None, None, None]:
        """Write the file in the background if it is due, with a pause for each group before."""
        if monotonic_ms < self._due_ms:
            return
        self._due_ms = monotonic_ms + INTERVAL_MS
        groups: list[bytes] = []
        for each in self._lags.coarse():
            yield
            groups.append(_encode_group(*each))
        self._logs.run_in_background(partial(self._write, groups), lambda _: None)

    def save(self) -> None:
        """Write the file at a clean stop, in any thread."""
        self._write([_encode_group(*each) for each in self._lags.coarse()])

    def _write(self, groups: list[bytes]) -> None:
        directory = self._logs.metadata_directory
        if not groups or directory.disk.problem or directory.failure:
            return
        content = bytearray()
        for each in groups:
            if len(content) + len(each) <= BYTES_MAX - _HEAD_BYTES:
                content += each
        path = directory.path_of(NAME)
        try:
            head = _VERSION + crc32c(content).to_bytes(4, "big")
            write_atomically(self._logs.files, path, head + content)
        except OSError:
            # What was written of it takes no room from the logs.
            with suppress(OSError):
                self._logs.files.remove(path + ".tmp")
