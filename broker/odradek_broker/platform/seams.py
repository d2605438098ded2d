"""The seams: protocols of clock, randomness, files and timers, so that a simulator can replace the
machine.

Cores use these protocols. `odradek_broker.platform.machine` implements the protocols on the
machine, and the simulator in memory. The event loop itself is also a seam (D3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from odradek_protocol.lazy_tuple import NamedTuple

Buffer = bytes | bytearray | memoryview
#: The unit in which a `BlockFile` is written.
BLOCK_BYTES = 4096


class Clock(Protocol):
    """A source of wall time, and of monotonic time for deadlines."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed time; never goes back."""
        ...


class Randomness(Protocol):
    """A source of numbers that cannot be guessed and do not repeat."""

    def uuid(self) -> bytes:
        """16 random bytes that form a version 4 UUID."""
        ...

    def below(self, bound: int) -> int:
        """A random integer in [0, bound)."""
        ...


class Timer(Protocol):
    """A callback that was scheduled."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """A source of timers of the event loop."""

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Timer: ...


class File(Protocol):
    """An open file. Errors are OSError, as the operating system gives them."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end of the file in one gathered write; returns the number of
        bytes.

        A short write is continued until all data is written or an OSError is raised; after an error
        the file may contain a part of the data, and the caller truncates the file (rule L-08).
        """
        ...

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes` from `position`; fewer only at the end of the file."""
        ...

    def size(self) -> int:
        """Current length in bytes."""
        ...

    def truncate(self, size_bytes: int) -> None: ...

    def sync(self) -> None:
        """Make content and length durable (fdatasync; F_FULLFSYNC on macOS). Blocks."""
        ...

    def close(self) -> None: ...


class BlockFile(Protocol):
    """A file of a fixed size that is written in place. Errors are OSError."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers, one after the other, from `position` on, and fill the rest of the last
        block with zeros. `position` is a multiple of `BLOCK_BYTES`. The data is durable when the
        method returns. Blocks the thread.

        After an error, or a crash during the write, each block may have its old content, its new
        content, or a mixture.
        """
        ...

    def close(self) -> None: ...


class Volume(NamedTuple):
    """The volume of a directory: the directory's path, and the volume's space in bytes."""

    directory: str
    total_bytes: int
    usable_bytes: int


class Files(Protocol):
    """A tree of files. Paths are strings with '/' between parts."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. Raises FileNotFoundError if the file is missing and
        `create` is false."""
        ...

    def open_blocks(self, path: str) -> BlockFile:
        """Open an existing file of its final size, to be written in place."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted. Raises FileNotFoundError if it does not exist."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Rename. An existing file is replaced atomically; a directory can be renamed only if the
        target does not exist."""
        ...

    def remove(self, path: str) -> None:
        """Remove one file. The file need not exist."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Make the directory's entries durable."""
        ...

    def modified_ms(self, path: str) -> int:
        """The time of the last modification, epoch milliseconds (rule L-21)."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file, so that a copy can keep the time of the original."""
        ...

    def absolute(self, path: str) -> str:
        """The absolute path of a file that need not exist."""
        ...

    def volume(self, path: str) -> Volume:
        """The absolute path of a directory, and the space of its volume."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock on a file, and create the file if it is missing. Returns the
        function that releases the lock.

        Raises BlockingIOError when another process holds the lock.
        """
        ...


def write_atomically(files: Files, path: str, content: bytes) -> None:
    """Replace a small file so that a crash leaves the old or the new content (rule L-35)."""
    temporary = path + ".tmp"
    files.remove(temporary)
    file = files.open(temporary, create=True)
    try:
        file.append([content])
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(path.rpartition("/")[0] or ".")
