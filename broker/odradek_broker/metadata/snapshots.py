"""The snapshots in the directory of the metadata log: found, read, written, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from odradek_broker.metadata.snapshot_format import (
    HEADER_BATCH_BYTES_MAX,
    PART_SUFFIX,
    SUFFIX,
    CorruptSnapshot,
    Snapshot,
    SnapshotId,
    decode_header,
    decode_snapshot,
    parse_file_name,
)
from odradek_broker.platform.seams import Buffer, Files
from odradek_broker.storage.deleted_files import DeletedFiles

#: No snapshot of ours comes near it; what is larger is not read into memory.
_SNAPSHOT_BYTES_MAX = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot that can be used. `timestamp_ms`: of the last record of the log that it covers."""

    id: SnapshotId
    size_bytes: int
    timestamp_ms: int


class SnapshotDirectory:
    """`path`: that of the metadata log. Only `write` waits for the disk."""

    def __init__(self, path: str, files: Files, deleted: DeletedFiles) -> None:
        self._path = path
        self._files = files
        self._deleted = deleted

    def path_of(self, snapshot: SnapshotId) -> str:
        return f"{self._path}/{snapshot.file_name}"

    def find(self) -> list[SnapshotId]:
        """All that are there, newest first. What was not finished is removed. OSError."""
        found = []
        for name in self._files.list(self._path):
            snapshot = parse_file_name(name)
            if snapshot is not None:
                found.append(snapshot)
            elif name.endswith((PART_SUFFIX, f"{SUFFIX}.deleted")):
                with suppress(OSError):
                    self._files.remove(f"{self._path}/{name}")
        return sorted(found, reverse=True)

    def read(self, snapshot: SnapshotId) -> tuple[StoredSnapshot, Snapshot]:
        """CorruptSnapshot, OSError."""
        file = self._files.open(self.path_of(snapshot))
        try:
            size_bytes = file.size()
            if size_bytes > _SNAPSHOT_BYTES_MAX:
                raise CorruptSnapshot(f"it has {size_bytes} bytes")
            content = decode_snapshot(file.read_at(0, size_bytes))
        finally:
            file.close()
        return StoredSnapshot(snapshot, size_bytes, content.timestamp_ms), content

    def describe(self, snapshot: SnapshotId) -> StoredSnapshot:
        """The description of a snapshot by its header; the rest is not read. Raises CorruptSnapshot
        or OSError."""
        file = self._files.open(self.path_of(snapshot))
        try:
            timestamp_ms = decode_header(file.read_at(0, HEADER_BATCH_BYTES_MAX))
            return StoredSnapshot(snapshot, file.size(), timestamp_ms)
        finally:
            file.close()

    def write(self, snapshot: SnapshotId, parts: Sequence[Buffer]) -> None:
        """Under a name that does not count until all of it is durable. Waits for the disk, so call
        it beside the loop; OSError."""
        part = self.path_of(snapshot).removesuffix(SUFFIX) + PART_SUFFIX
        self._files.remove(part)
        file = self._files.open(part, create=True)
        try:
            file.append(parts)
            file.sync()
        finally:
            file.close()
        self._files.rename(part, self.path_of(snapshot))
        self._files.sync_dir(self._path)

    def delete(self, snapshot: SnapshotId, due_ms: int) -> None:
        """Rename it now, and have it removed from `due_ms` on. OSError."""
        path = self.path_of(snapshot)
        self._files.rename(path, f"{path}.deleted")
        self._deleted.add_files(due_ms, self._path, [f"{path}.deleted"], lambda: True)
