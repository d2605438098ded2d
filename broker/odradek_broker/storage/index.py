"""The sparse offset index and time index of one segment (L-02, L-03).

Both are caches of the `.log` file (L-05): kept as arrays in memory, written after the log without
fsync, and rebuilt whenever they do not match the log (L-33). A failed write therefore only drops
the file; the entries stay in memory and are written again later.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from operator import lt

from odradek_broker.platform.seams import File, Files

_TIME_ENTRY = struct.Struct(">qi")
_OFFSET_ENTRY = struct.Struct(">ii")
OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
#: The largest distance from the base offset of a segment that an entry can name (int32).
RELATIVE_OFFSET_MAX = 2**31 - 1

# Entries are written in groups: one small file operation per entry would cost more than the append
# it belongs to. Recovery's scan restores the entries that a crash loses.
_WRITE_EVERY_ENTRIES = 512
#: A number of written entries that is larger than any index: nothing is written until `write_out`.
_NOT_YET = 2**40


# A segment of this size has index entries; if its index is empty, the file was lost (L-33).
_SURELY_INDEXED_BYTES = 64 * 1024


class InvalidIndex(Exception):
    """The file does not describe its segment; rebuild it."""


def _swap_to_or_from_big_endian(numbers: array[int]) -> None:
    if sys.byteorder == "little":
        numbers.byteswap()


class _IndexFile:
    """The base of both indexes, with the number of entries that the file on disk has."""

    __slots__ = ("_files", "_path", "_written", "base_offset")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self._path = path
        self._written = -1  # -1: there is no file
        self.base_offset = base_offset

    @property
    def path(self) -> str:
        return self._path

    def _encode(self, first_entry: int) -> bytes:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def hold_back(self) -> None:
        """Keep entries in memory until `write_out`, however many they are."""
        self._written = _NOT_YET

    def write_out(self) -> None:
        """Write the entries that the file does not hold yet. Never raises OSError."""
        if self._written == len(self):
            return
        if self._written == _NOT_YET:
            self._written = -1
        try:
            if self._written < 0:
                self._files.remove(self._path)
            file = self._files.open(self._path, create=True)
            try:
                file.append([self._encode(max(self._written, 0))])
            finally:
                file.close()
            self._written = len(self)
        except OSError:
            self._forget_file()

    def _forget_file(self) -> None:
        self._written = -1
        try:
            self._files.remove(self._path)
        except OSError:
            # The next start detects and rebuilds a file that does not match the log (L-33).
            return

    @contextmanager
    def _opened(self, entry_bytes: int) -> Iterator[tuple[File, int]]:
        """The file, and its number of entries. Raises InvalidIndex if the file is missing, or ends
        inside an entry."""
        try:
            file = self._files.open(self._path)
        except FileNotFoundError:
            raise InvalidIndex(f"{self._path} is missing") from None
        try:
            entries, rest = divmod(file.size(), entry_bytes)
            if rest:
                raise InvalidIndex(f"{self._path} ends inside an entry")
            yield file, entries
        finally:
            file.close()

    def _read(self, entry_bytes: int) -> bytes:
        """The file's entries. Raises InvalidIndex if it is missing."""
        with self._opened(entry_bytes) as (file, entries):
            return file.read_at(0, entries * entry_bytes)

    def _cut(self, keep_entries: int) -> None:
        """Remove the file if it has more than `keep_entries` entries; the kept entries are written
        again later."""
        if keep_entries < self._written:
            self._forget_file()

    def _read_first(self, entries: int, entry_bytes: int) -> bytes:
        """The bytes of the first `entries` entries of the file. Raises InvalidIndex if the file has
        fewer; raises OSError."""
        content = b""
        if entries:
            try:
                file = self._files.open(self._path)
            except FileNotFoundError:
                raise InvalidIndex(f"{self._path} is missing") from None
            try:
                content = file.read_at(0, entries * entry_bytes)
            finally:
                file.close()
        if len(content) != entries * entry_bytes:
            raise InvalidIndex(f"{self._path} has less than {entries} entries")
        return content

    def _cut_file(self, entries: int, entry_bytes: int) -> None:
        """Cut the file after its first `entries`, which stay on disk even if the cut fails. Raises
        OSError."""
        if entries == 0:
            self._files.remove(self._path)
            self._written = -1
            return
        file = self._files.open(self._path)
        try:
            if file.size() > entries * entry_bytes:
                file.truncate(entries * entry_bytes)
        finally:
            file.close()
        self._written = entries


class OffsetIndex(_IndexFile):
    """(last offset of an appended batch, position where the batch starts), both ascending."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, last_offset: int, position: int) -> None:
        self._offsets.append(last_offset - self.base_offset)
        self._positions.append(position)
        if len(self._offsets) - self._written >= _WRITE_EVERY_ENTRIES:
            self.write_out()

    def floor(self, offset: int) -> int:
        """The position of a batch at or before the one that holds `offset`, as near as the index
        knows."""
        return self.floor_entry(offset)[1]

    def floor_entry(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry whose offset is at most `offset`; (base offset - 1,
        0) if there is none."""
        relative = min(offset - self.base_offset, RELATIVE_OFFSET_MAX)
        entry = bisect_right(self._offsets, relative)
        if not entry:
            return self.base_offset - 1, 0
        return self.base_offset + self._offsets[entry - 1], self._positions[entry - 1]

    def floor_position(self, position: int) -> int:
        """The last known batch start at or before `position`."""
        entry = bisect_right(self._positions, position)
        return self._positions[entry - 1] if entry else 0

    def floor_on_disk(self, offset: int) -> int:
        """The `floor` of the file; only a few of its entries are read. Raises InvalidIndex,
        OSError."""
        with self._opened(OFFSET_ENTRY_BYTES) as (file, entries):
            position, low, high = 0, 0, entries
            while low < high:
                middle = (low + high) // 2
                entry = file.read_at(middle * OFFSET_ENTRY_BYTES, OFFSET_ENTRY_BYTES)
                found, at = _OFFSET_ENTRY.unpack(entry)
                if self.base_offset + found <= offset:
                    position, low = at, middle + 1
                else:
                    high = middle
            return position

    def last_position_on_disk(self) -> int:
        """The position in the file's last entry; nothing else is read. Raises InvalidIndex,
        OSError."""
        with self._opened(OFFSET_ENTRY_BYTES) as (file, entries):
            if not entries:
                return 0
            entry = file.read_at((entries - 1) * OFFSET_ENTRY_BYTES, OFFSET_ENTRY_BYTES)
        return int(_OFFSET_ENTRY.unpack(entry)[1])

    def last(self) -> tuple[int, int]:
        """(offset, position) of the last entry; (base offset - 1, 0) if there is no entry."""
        if not self._offsets:
            return self.base_offset - 1, 0
        return self.base_offset + self._offsets[-1], self._positions[-1]

    def load_first(self, entries: int, log_bytes: int) -> None:
        """Load the first entries of the file, which describe the first `log_bytes` of the log.
        Raises InvalidIndex if these entries cannot describe that part (L-30); raises OSError.
        `cut_file` drops the other entries."""
        self._take(self._read_first(entries, OFFSET_ENTRY_BYTES))
        if not (_ascends(self._offsets) and _ascends(self._positions)) or (
            entries and self._positions[-1] >= log_bytes
        ):
            raise InvalidIndex(f"{self._path} does not ascend")

    def cut_file(self) -> None:
        """Cut the file after the loaded entries. Raises OSError."""
        self._cut_file(len(self), OFFSET_ENTRY_BYTES)

    def _take(self, content: bytes) -> None:
        flat = array("i")
        flat.frombytes(content)
        _swap_to_or_from_big_endian(flat)
        self._offsets = flat[0::2]
        self._positions = flat[1::2]

    def load(self, log_bytes: int) -> None:
        """Read the file. Raises InvalidIndex if it cannot belong to a log of `log_bytes` (L-33)."""
        self._take(self._read(OFFSET_ENTRY_BYTES))
        self._written = len(self._offsets)
        if not self._positions and log_bytes > _SURELY_INDEXED_BYTES:
            raise InvalidIndex(f"{self._path} is empty")
        if self._positions and not (
            0 <= self._offsets[0] <= self._offsets[-1]
            and 0 <= self._positions[0] <= self._positions[-1] < log_bytes
        ):
            raise InvalidIndex(f"{self._path} points outside its segment")

    def truncate_to(self, offset: int) -> None:
        """Drop entries whose batch reaches `offset` or above."""
        keep = bisect_left(self._offsets, min(offset - self.base_offset, RELATIVE_OFFSET_MAX))
        self._cut(keep)
        del self._offsets[keep:]
        del self._positions[keep:]

    def clear(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")
        self._forget_file()

    def _encode(self, first_entry: int) -> bytes:
        flat = array("i", bytes(OFFSET_ENTRY_BYTES * (len(self._offsets) - first_entry)))
        flat[0::2] = self._offsets[first_entry:]
        flat[1::2] = self._positions[first_entry:]
        _swap_to_or_from_big_endian(flat)
        return flat.tobytes()


def _deinterleave(content: bytes) -> tuple[array[int], array[int]]:
    """The timestamps and the offsets of a time index's entries.

    A full index has a quarter of a million entries, and a search by time reads many indexes while
    all clients wait. So the bytes are gathered column by column, not entry by entry.
    """
    count = len(content) // TIME_ENTRY_BYTES
    columns = []
    for typecode, start, size_bytes in (("q", 0, 8), ("i", 8, 4)):
        gathered = bytearray(count * size_bytes)
        for byte in range(size_bytes):
            gathered[byte::size_bytes] = content[start + byte :: TIME_ENTRY_BYTES]
        column = array(typecode)
        column.frombytes(gathered)
        _swap_to_or_from_big_endian(column)
        columns.append(column)
    return columns[0], columns[1]


def _ascends(numbers: array[int]) -> bool:
    """True if the numbers ascend strictly, from 0 on."""
    return not numbers or (numbers[0] >= 0 and all(map(lt, numbers, islice(numbers, 1, None))))


class TimeIndex(_IndexFile):
    """(largest timestamp so far, last offset of the batch that has it), both ascending."""

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def add(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than that of the last entry."""
        if timestamp < 0 or (self._timestamps and timestamp <= self._timestamps[-1]):
            return
        self._timestamps.append(timestamp)
        self._offsets.append(offset - self.base_offset)
        if len(self._timestamps) - self._written >= _WRITE_EVERY_ENTRIES:
            self.write_out()

    def floor_entry(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry (timestamp, offset) whose timestamp is at most `timestamp`; None if there
        is no such entry. All records that are newer than `timestamp` have offsets above the
        entry's."""
        entry = bisect_right(self._timestamps, timestamp)
        if not entry:
            return None
        return self._timestamps[entry - 1], self.base_offset + self._offsets[entry - 1]

    def last_below(self, offset: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry below `offset`; (-1, base offset) if there is no
        such entry."""
        entry = bisect_left(self._offsets, min(offset - self.base_offset, RELATIVE_OFFSET_MAX))
        if not entry:
            return -1, self.base_offset
        return self._timestamps[entry - 1], self.base_offset + self._offsets[entry - 1]

    def last_on_disk(self) -> tuple[int, int]:
        """The `last` entry of the file; nothing else of it is read. Raises InvalidIndex if there is
        no entry; raises OSError."""
        with self._opened(TIME_ENTRY_BYTES) as (file, entries):
            if not entries:
                raise InvalidIndex(f"{self._path} is empty")
            entry = file.read_at((entries - 1) * TIME_ENTRY_BYTES, TIME_ENTRY_BYTES)
        timestamp, offset = _TIME_ENTRY.unpack(entry)
        return timestamp, self.base_offset + offset

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is no entry."""
        if not self._timestamps:
            return -1, self.base_offset
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    def load(self, log_bytes: int) -> None:
        """Read the file. Raises InvalidIndex if it cannot belong to a log of `log_bytes` (L-33)."""
        content = self._read(TIME_ENTRY_BYTES)
        if log_bytes and not content:
            raise InvalidIndex(f"{self._path} is empty")
        self._timestamps = array("q")
        self._offsets = array("i")
        # A batch is larger than its entry, so this limits the index by the size of its log.
        if len(content) > log_bytes:
            raise InvalidIndex(f"{self._path} is larger than its segment allows")
        timestamps, offsets = _deinterleave(content)
        if not (_ascends(timestamps) and _ascends(offsets)):
            raise InvalidIndex(f"{self._path} does not ascend")
        self._timestamps, self._offsets = timestamps, offsets
        self._written = len(self._timestamps)

    def load_first(self, entries: int, largest: tuple[int, int]) -> None:
        """Load the first entries of the file. Raises InvalidIndex if one of them is above the
        `largest` (timestamp, offset), or if they do not ascend (L-30); raises OSError. `cut_file`
        drops the other entries."""
        timestamps, offsets = _deinterleave(self._read_first(entries, TIME_ENTRY_BYTES))
        if not (_ascends(timestamps) and _ascends(offsets)) or (
            entries
            and not (timestamps[-1] <= largest[0] and self.base_offset + offsets[-1] <= largest[1])
        ):
            raise InvalidIndex(f"{self._path} does not ascend")
        self._timestamps, self._offsets = timestamps, offsets

    def cut_file(self) -> None:
        """Cut the file after the loaded entries. Raises OSError."""
        self._cut_file(len(self), TIME_ENTRY_BYTES)

    def truncate_to(self, offset: int) -> None:
        """Drop entries at `offset` or above."""
        keep = bisect_left(self._offsets, min(offset - self.base_offset, RELATIVE_OFFSET_MAX))
        self._cut(keep)
        del self._timestamps[keep:]
        del self._offsets[keep:]

    def clear(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("i")
        self._forget_file()

    def _encode(self, first_entry: int) -> bytes:
        pack = _TIME_ENTRY.pack
        return b"".join(
            pack(timestamp, offset)
            for timestamp, offset in zip(
                self._timestamps[first_entry:], self._offsets[first_entry:], strict=True
            )
        )
