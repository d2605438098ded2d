"""A partition's directory: its small files, and the names in it that are not durable yet (L-30).

Only `sync` waits for the disk: the next flush syncs files and names together with the segments.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.platform.seams import Files
from odradek_broker.storage.checkpoints import write_unsynced


class PartitionDirectory:
    """The directory at `path`. `dirty`: something in it was made, renamed or removed since the last
    flush took that over."""

    __slots__ = ("_files", "_is_new", "_unsynced_paths", "dirty", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.dirty = False
        self._is_new = False  # The parent directory does not durably name this one yet.
        self._unsynced_paths: set[str] = set()

    def make(self) -> None:
        """Make the directory, unsynced. OSError."""
        self._files.make_dirs(self.path)
        self.dirty = self._is_new = True

    def write(self, name: str, content: bytes) -> None:
        """Replace the small file `name`, unsynced. OSError."""
        path = f"{self.path}/{name}"
        write_unsynced(self._files, path, content)
        self.written([path])

    def written(self, paths: Iterable[str]) -> None:
        """Files at `paths` were written: the next flush syncs them and their names."""
        self._unsynced_paths.update(paths)
        self.dirty = True

    def sync(self) -> None:
        """Make its names durable at once. Waits for the disk; OSError."""
        self._files.sync_dir(self.path)

    def take_unsynced_paths(self) -> set[str]:
        """The files that a flush has to sync. They are not returned again."""
        taken, self._unsynced_paths = self._unsynced_paths, set()
        return taken

    def take_dirty(self) -> list[str]:
        """The directories whose names a flush has to make durable, outermost first."""
        if not self.dirty:
            return []
        parent = self.path.rpartition("/")[0] or "."
        taken = [parent, self.path] if self._is_new else [self.path]
        self.dirty = self._is_new = False
        return taken
