"""Open files are few: a bounded set of segment handles, the least recently used closed first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from odradek_broker.seams import File, Files


class HandleOwner(Protocol):
    """Something with one file that can be opened again at any time."""

    path: str
    used: bool
    """Set by the owner at each use, cleared here: a second chance instead of list surgery on the
    hot path."""

    @property
    def pinned(self) -> bool:
        """True while the handle must stay: unsynced bytes whose fsync must report an error, or an
        fsync under way in another thread."""
        ...

    def drop_handle(self) -> None: ...


class HandleCache:
    """At most `limit` open handles, plus the pinned ones."""

    def __init__(self, files: Files, limit: int = 256) -> None:
        self.files = files
        self.limit = limit
        self._owners: OrderedDict[int, HandleOwner] = OrderedDict()

    def __len__(self) -> int:
        return len(self._owners)

    def open(self, owner: HandleOwner, *, create: bool = False) -> File:
        """Open the owner's file, closing others first. OSError as the system gives it."""
        if len(self._owners) >= self.limit:
            self._make_room()
        file = self.files.open(owner.path, create=create)
        owner.used = True
        self._owners[id(owner)] = owner
        return file

    def forget(self, owner: HandleOwner) -> None:
        """The owner closed its handle by itself."""
        self._owners.pop(id(owner), None)

    def _make_room(self) -> None:
        # Twice around at most: the first round may only take away second chances.
        for _ in range(2 * len(self._owners)):
            if len(self._owners) < self.limit:
                return
            key, owner = next(iter(self._owners.items()))
            if owner.used or owner.pinned:
                owner.used = False
                self._owners.move_to_end(key)
            else:
                del self._owners[key]
                owner.drop_handle()
