"""Of each key the highest offset, in bounded memory (L-28)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import repeat

#: What an entry takes at most, digest, offset and its share of a table that has just grown.
ENTRY_BYTES = 180
_DIGEST_BYTES = 16


def _digests(keys: Iterable[bytes]) -> list[bytes]:
    """Short keys stand for themselves: they are never as long as a digest."""
    return [
        key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        for key in keys
    ]


class OffsetMap:
    """Keys by digest, so that the memory does not depend on how long they are.

    `latest_offset`: everything up to it has been looked at; -1 before the first.
    """

    __slots__ = ("_offsets", "capacity", "latest_offset")

    def __init__(self, buffer_bytes: int, load_factor: float) -> None:
        """At most `load_factor` of `buffer_bytes` are used, but always for one key."""
        self._offsets: dict[bytes, int] = {}
        self.capacity = max(1, int(buffer_bytes * load_factor) // ENTRY_BYTES)
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        """Asked before each batch, the whole of which goes in; so a batch is the most by which the
        capacity may be exceeded, and each cleaning gets on."""
        return len(self._offsets) >= self.capacity

    @property
    def used(self) -> float:
        """0 to 1."""
        return min(1.0, len(self._offsets) / self.capacity)

    def put_all(self, keys: Iterable[bytes], offsets: Iterable[int]) -> None:
        """Take records over, in the order of their offsets."""
        self._offsets.update(zip(_digests(keys), offsets, strict=True))

    def get_all(self, keys: Iterable[bytes]) -> Iterator[int]:
        """The highest offset of each key; -1 if there is none."""
        return map(self._offsets.get, _digests(keys), repeat(-1))
