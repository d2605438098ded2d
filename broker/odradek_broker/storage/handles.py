"""Limits on open file handles, and on the memory of the indexes of sealed segments.

Handles that were not used for the longest time are closed first, and indexes are unloaded in the
same order. A handle is opened again, and an index is loaded again, when it is needed.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from odradek_broker.platform.seams import File, Files

#: Runs the first function in a worker thread. Then the second function is called on the loop's
#: thread, with the exception of the first function or None.
BackgroundRunner = Callable[[Callable[[], None], Callable[[Exception | None], None]], None]


class HandleOwner(Protocol):
    """The owner of a file that can be opened again at any time."""

    path: str
    used: bool
    """The owner sets it at each use, and the cache clears it: for the owner this is faster than
    moving an entry of a list."""

    @property
    def pinned(self) -> bool:
        """True while the handle must stay open: it has unsynced bytes, whose fsync must be able to
        report an error, or another thread is in an fsync."""
        ...

    def drop_handle(self) -> None: ...

    @property
    def index_bytes(self) -> int:
        """The memory of the owner's indexes."""
        ...

    def unload_indexes(self) -> None: ...


#: The limit of handles that are examined to find a handle to close. With thousands of pinned
#: handles, as after a request for thousands of partitions, examining all would take too long.
LOOKS_MAX = 100

#: The limit of the memory of the indexes of sealed segments. There is a limit because a full
#: segment of small batches has indexes of 5 MB, and a terabyte of these segments has 5 GB of them.
INDEX_BYTES_MAX = 128 * 1024 * 1024


class HandleCache:
    """A cache of open handles and of the indexes of sealed segments. At most `limit` handles are
    open, not counting pinned handles and a few that a limited search has missed. The indexes occupy
    at most `index_bytes_max`, not counting the last one that was read."""

    def __init__(
        self,
        files: Files,
        limit: int = 256,
        index_bytes_max: int = INDEX_BYTES_MAX,
        background: BackgroundRunner | None = None,
        scarce: Callable[[], bool] = lambda: False,
    ) -> None:
        """`background` runs long work outside of the event loop. If it is None, `run` does the work
        before it returns. `scarce`: True if no file may be opened beyond the limit, because a flush
        needs the rest; with pinned handles only, no flush could open a directory."""
        self.files = files
        self._scarce = scarce
        self.background = background
        #: Set when the broker stops: scans in the background end at their next block.
        self.halted = False
        self.limit = limit
        self.index_bytes_max = index_bytes_max
        self.index_bytes = 0
        self._indexed: OrderedDict[int, tuple[HandleOwner, int]] = OrderedDict()
        self._owners: OrderedDict[int, HandleOwner] = OrderedDict()

    @contextmanager
    def without_background(self) -> Iterator[None]:
        """Within this context `run` does the work before it returns, for callers that cannot try
        again later."""
        background, self.background = self.background, None
        try:
            yield
        finally:
            self.background = background

    def run(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Run `work`: by `background` if it is not None, otherwise before this call returns."""
        if self.background is not None:
            self.background(work, done)
            return
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - passed to `done`
            done(problem)
        else:
            done(None)

    def __len__(self) -> int:
        return len(self._owners)

    def open(self, owner: HandleOwner, *, create: bool = False) -> File:
        """Open the owner's file, closing others first. Raises OSError as the system gives it, or
        for too many open files."""
        if len(self._owners) >= self.limit:
            self._make_room()
            if len(self._owners) >= self.limit and self._scarce():
                raise OSError(errno.EMFILE, "Too many open files", owner.path)
        file = self.files.open(owner.path, create=create)
        owner.used = True
        self._owners[id(owner)] = owner
        return file

    def forget(self, owner: HandleOwner) -> None:
        """Stop counting a handle that its owner has closed."""
        self._owners.pop(id(owner), None)

    def _make_room(self) -> None:
        # At most two rounds: the first one may only clear `used`.
        for _ in range(min(2 * len(self._owners), LOOKS_MAX)):
            if len(self._owners) < self.limit:
                return
            key, owner = next(iter(self._owners.items()))
            if owner.used or owner.pinned:
                owner.used = False
                self._owners.move_to_end(key)
            else:
                del self._owners[key]
                owner.drop_handle()

    # ---- indexes

    def keep_indexes(self, owner: HandleOwner) -> None:
        """Count the loaded indexes of a sealed segment, and unload others beyond the limit."""
        self.forget_indexes(owner)
        size_bytes = owner.index_bytes
        self._indexed[id(owner)] = owner, size_bytes
        self.index_bytes += size_bytes
        for _ in range(2 * len(self._indexed)):
            if self.index_bytes <= self.index_bytes_max or len(self._indexed) == 1:
                return
            key, (other, other_bytes) = next(iter(self._indexed.items()))
            if other is owner or other.used:
                other.used = other is owner
                self._indexed.move_to_end(key)
            else:
                del self._indexed[key]
                self.index_bytes -= other_bytes
                other.unload_indexes()

    def forget_indexes(self, owner: HandleOwner) -> None:
        """Stop counting the indexes of a segment, because they were unloaded or because the segment
        is active again."""
        _, size_bytes = self._indexed.pop(id(owner), (None, 0))
        self.index_bytes -= size_bytes
