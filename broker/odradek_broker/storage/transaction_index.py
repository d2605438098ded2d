"""The transaction index of a segment, its `.txnindex`: aborted transactions (L-04, F-09)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import construct as c

from odradek_broker.platform.seams import File, Files
from odradek_protocol.checksums import crc32c
from odradek_protocol.lazy_tuple import NamedTuple

ABORTED_ENTRY_VERSION = 0

#: The declared format of an entry (L-04); `_ENTRY` is its equivalent in struct.
ABORTED_ENTRY = c.Struct(
    "version" / c.Int16sb,
    "producer_id" / c.Int64sb,
    "first_offset" / c.Int64sb,
    "last_offset" / c.Int64sb,
    "last_stable_offset" / c.Int64sb,
)
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_ENTRIES_PER_READ = 512


class AbortedTxn(NamedTuple):
    """An aborted transaction on one partition.

    `last_offset` is the offset of its marker; `last_stable_offset` is the partition's last stable
    offset when the marker was applied, computed as if the marker had been below the high watermark.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class CorruptTransactionIndex(ValueError):
    """The file is no index; rebuild it from the log (L-05)."""


def cut_behind(files: Files, path: str, entries: int, crc: int) -> None:
    """Cut a file after its first `entries`, or remove it if `entries` is 0. Raises
    CorruptTransactionIndex if the CRC-32C of these entries is not `crc`."""
    if entries == 0:
        files.remove(path)
        return
    if not files.exists(path):
        raise CorruptTransactionIndex(f"{path} is missing")
    size_bytes = entries * ENTRY_BYTES
    file = files.open(path)
    try:
        if crc32c(file.read_at(0, size_bytes)) != crc or file.size() < size_bytes:
            raise CorruptTransactionIndex(f"{path} does not begin with its {entries} entries")
        if file.size() > size_bytes:
            file.truncate(size_bytes)
    finally:
        file.close()


class TransactionIndex:
    """The aborted transactions of a segment, in the order of their markers. The first entry creates
    the file.

    Most segments have no aborted transaction, so the file is opened only when it is needed, and
    none of it is kept in memory. Methods raise OSError.
    """

    __slots__ = ("_file", "_files", "_last_offset", "_size_bytes", "path", "was_there")

    def __init__(self, files: Files, path: str) -> None:
        """Open the file if there is one. Raises CorruptTransactionIndex if it does not have whole
        entries in the order of their markers: the caller then has to `create` a new index and to
        replay the segment (L-33)."""
        self._files = files
        self.path = path
        self._file: File | None = None
        self._size_bytes = 0
        self._last_offset = -1
        #: False if there was no file: only a scan of the segment can then find its aborted
        #: transactions.
        self.was_there = files.exists(path)
        if self.was_there:
            self._file = files.open(path)
            try:
                self._size_bytes = self._file.size()
                self._last_offset = self._checked_end()
            except BaseException:
                self.close()
                raise
            if not self._size_bytes:
                self.close()  # Empty files are common, and need no handle.

    @classmethod
    def create(cls, files: Files, path: str) -> TransactionIndex:
        """An empty index; a file of the name is removed."""
        files.remove(path)
        return cls(files, path)

    def _checked_end(self) -> int:
        if self._size_bytes % ENTRY_BYTES:
            raise CorruptTransactionIndex(
                f"{self.path} has {self._size_bytes} bytes, which is no multiple of {ENTRY_BYTES}"
            )
        previous = -1
        for entry in self._scan(0):
            if not previous < entry.last_offset or not (
                0 <= entry.first_offset <= entry.last_offset
            ):
                raise CorruptTransactionIndex(
                    f"{self.path} has the entry {entry} after one with last offset {previous}"
                )
            previous = entry.last_offset
        return previous

    def __len__(self) -> int:
        return self._size_bytes // ENTRY_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the newest marker; -1 if there is none."""
        return self._last_offset

    def append(self, entry: AbortedTxn) -> None:
        """Add an entry. Raises ValueError unless its marker comes after all others. If this raises
        OSError, nothing was added."""
        if entry.last_offset <= self._last_offset:
            raise ValueError(
                f"aborted transaction with marker {entry.last_offset} comes after one with"
                f" {self._last_offset}"
            )
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        try:
            self._file.append([_ENTRY.pack(ABORTED_ENTRY_VERSION, *entry)])
        except OSError:
            self._file.truncate(self._size_bytes)
            raise
        self._size_bytes += ENTRY_BYTES
        self._last_offset = entry.last_offset

    def search(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions aborted in [fetch_offset, upper_bound_offset) (F-09).

        These are all transactions that began below the bound and have a marker at or above the
        fetch offset. The flag is true if later segments need no search: the transactions aborted
        there began at or above the bound.
        """
        found: list[AbortedTxn] = []
        if self._last_offset < fetch_offset:
            return found, False
        for entry in self._scan(self._first_ending_at(fetch_offset)):
            if entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def _first_ending_at(self, offset: int) -> int:
        """The number, from 0 on, of the first entry whose marker is at or above the offset."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if next(self._scan(middle, 1)).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _scan(self, first: int, entries_per_read: int = _ENTRIES_PER_READ) -> Iterator[AbortedTxn]:
        position = first * ENTRY_BYTES
        while self._file is not None and position < self._size_bytes:
            wanted = min(entries_per_read * ENTRY_BYTES, self._size_bytes - position)
            content = self._file.read_at(position, wanted)
            if len(content) != wanted:
                raise CorruptTransactionIndex(f"{self.path} ends before byte {position + wanted}")
            for version, *fields in _ENTRY.iter_unpack(content):
                if version != ABORTED_ENTRY_VERSION:
                    raise CorruptTransactionIndex(f"{self.path} has an entry of version {version}")
                yield AbortedTxn._make(fields)
            position += wanted

    def entries(self) -> Iterator[AbortedTxn]:
        """All entries, in order."""
        return self._scan(0)

    def checksum(self) -> int:
        """CRC-32C of all entries. Raises CorruptTransactionIndex."""
        if self._file is None:
            return crc32c(b"")
        content = self._file.read_at(0, self._size_bytes)
        if len(content) < self._size_bytes:
            raise CorruptTransactionIndex(f"{self.path} ends before byte {self._size_bytes}")
        return crc32c(content)

    def take_place(self, path: str) -> None:
        """Move the file to `path`, even if there are no entries: an empty file means that no
        transaction was aborted."""
        self.ensure_file()
        self._files.rename(self.path, path)
        self.path = path

    def ensure_file(self) -> None:
        """Make the file, even if there are no entries. Raises OSError."""
        if self._file is None:
            self._files.open(self.path, create=True).close()

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file. May be called again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def remove(self) -> None:
        """Close and delete the file."""
        self.close()
        self._size_bytes = 0
        self._last_offset = -1
        self._files.remove(self.path)
