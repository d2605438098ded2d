"""Disks without room: the rules by which a simulated disk refuses operations, and the partial
writes that are left.

A file system that writes in place, such as ext4, needs room only for new bytes and new names. A
copy-on-write file system, such as btrfs, may refuse every change of the disk, even a removal.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

#: The operations that need room on a file system that writes in place.
NEW_BYTES_AND_NAMES = frozenset({"append", "make_dirs", "open"})
#: The operations that need room on a file system that copies blocks.
CHANGES = NEW_BYTES_AND_NAMES | {"remove", "rename", "truncate", "write_at"}


class Shortage(Protocol):
    """The rule by which a disk refuses operations (ENOSPC)."""

    def written_before_refusal(self, kind: str, size_bytes: int) -> int | None:
        """The number of bytes that an operation of `size_bytes` writes before it is refused; None
        if there is room for the operation. `kind`: see `DiskFailure`."""
        ...


class LastBytes:
    """A disk that writes in place and has room for a few more bytes. If a write does not fit, the
    part that fits is written. Every removal makes room."""

    #: The number of bytes that a new name takes.
    NAME_BYTES = 64

    def __init__(self, used_bytes: Callable[[], int], left_bytes: int) -> None:
        """`used_bytes`: returns the number of bytes in use. `left_bytes`: the number of bytes that
        are free now."""
        self._used_bytes = used_bytes
        self._capacity_bytes = used_bytes() + left_bytes

    def written_before_refusal(self, kind: str, size_bytes: int) -> int | None:
        """See `Shortage`."""
        if kind not in NEW_BYTES_AND_NAMES:
            return None
        left_bytes = max(self._capacity_bytes - self._used_bytes(), 0)
        if kind == "append":
            return None if size_bytes <= left_bytes else left_bytes
        return None if left_bytes >= self.NAME_BYTES else 0


class ScarceRoom:
    """A disk that copies blocks; chance decides whether there is room for a change."""

    def __init__(self, random: Random, refused_share: float) -> None:
        """`refused_share`: the share of changes that are refused, 0 to 1."""
        self._random = random
        self._refused_share = refused_share

    def written_before_refusal(self, kind: str, size_bytes: int) -> int | None:
        """See `Shortage`."""
        random = self._random
        if kind not in CHANGES or random.random() >= self._refused_share:
            return None
        return random.choice((0, random.randrange(size_bytes))) if size_bytes else 0
