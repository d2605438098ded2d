"""The extent of one fsync of a partition (D5).

`begin_flush` takes the ticket on the loop's thread, `FlushTicket.sync` runs in a worker thread,
`finish_flush` brings the outcome back to the loop's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odradek_broker.platform.seams import File, Files
from odradek_broker.storage.segment import Segment


@dataclass(slots=True)
class FlushTicket:
    """Makes every byte below `end_offset` durable: segment files, new directory entries, and the
    files derived from sealed segments, which recovery will not look at again once the recovery
    point has passed them."""

    end_offset: int
    truncations: int
    """How often the log had been truncated when this was taken: one more, and the outcome says
    nothing about the bytes that are there now."""
    segments: list[tuple[Segment, int]]
    """(segment, its size at the time)."""
    segment_files: list[File]
    files: Files
    paths: Sequence[str] = ()
    directories: Sequence[str] = ()
    """Whose entries must be made durable too, outermost first: something was made in them."""

    def sync(self) -> None:
        """Blocks until everything is on disk; OSError. Touches nothing that the loop changes."""
        for file in self.segment_files:
            file.sync()
        for path in self.paths:
            self._sync_path(path)
        for directory in self.directories:
            self.files.sync_dir(directory)

    def _sync_path(self, path: str) -> None:
        try:
            file = self.files.open(path)
        except FileNotFoundError:
            return  # Retention or a newer version of it came in between.
        try:
            file.sync()
        finally:
            file.close()
