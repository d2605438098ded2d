"""The highest offset of each key, in bounded memory (L-28).

A dict is fastest, and takes six times as much memory as a `PackedOffsets`. So the map is a dict as
long as it fits into the memory, as for most logs. For a log of many keys it becomes a
`PackedOffsets`, so that the cleaning takes few rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import repeat

#: The upper limit of the bytes of an entry of the dict: digest, offset, and the entry's share of a
#: table that has just grown.
DICT_ENTRY_BYTES = 180
#: The bytes of a packed entry: digest, offset, and the entry's share of a bucket and its reserve.
ENTRY_BYTES = 34
_DIGEST_BYTES = 16
_PACKED_BYTES = _DIGEST_BYTES + 8
#: The expected entries of a bucket: searching this many takes no longer than the call of the search
#: function.
_BUCKET_ENTRIES = 96
_PACKED_AT_ONCE = 1_000


def _digests(keys: Iterable[bytes]) -> list[bytes]:
    """The digests of keys. A key that is shorter than a digest is used as it is: it cannot equal a
    digest."""
    return [
        key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        for key in keys
    ]


def _whole_digests(keys: Iterable[bytes]) -> list[bytes]:
    """The digests of keys, all of the same length, because short keys are also hashed."""
    return [blake2b(key, digest_size=_DIGEST_BYTES).digest() for key in keys]


class PackedOffsets:
    """Digests with their offsets, packed without gaps in buckets that are searched from the
    start."""

    __slots__ = ("_buckets", "_entries")

    def __init__(self, capacity: int) -> None:
        """`capacity`: the expected number of digests; with more of them the map is slower."""
        self._buckets = [bytearray() for _ in range(1 + capacity // _BUCKET_ENTRIES)]
        self._entries = 0

    def __len__(self) -> int:
        return self._entries

    def put_all(self, digests: Iterable[bytes], offsets: Iterable[int]) -> None:
        """Add offsets; each replaces the earlier offset of its digest."""
        buckets = self._buckets
        count = len(buckets)
        added = 0
        for digest, offset in zip(digests, offsets, strict=True):
            bucket = buckets[hash(digest) % count]
            at = bucket.find(digest)
            while at % _PACKED_BYTES and at > 0:
                # The match consists of the end of one entry and the beginning of the next one.
                at = bucket.find(digest, at + 1)
            if at < 0:
                bucket += digest + offset.to_bytes(8, "big")
                added += 1
            else:
                bucket[at + _DIGEST_BYTES : at + _PACKED_BYTES] = offset.to_bytes(8, "big")
        self._entries += added

    def get_all(self, digests: Iterable[bytes]) -> Iterator[int]:
        """The offset of each digest; -1 if there is none."""
        buckets = self._buckets
        count = len(buckets)
        for digest in digests:
            bucket = buckets[hash(digest) % count]
            at = bucket.find(digest)
            while at % _PACKED_BYTES and at > 0:
                at = bucket.find(digest, at + 1)
            if at < 0:
                yield -1
            else:
                yield int.from_bytes(bucket[at + _DIGEST_BYTES : at + _PACKED_BYTES], "big")


class OffsetMap:
    """The highest offset of each key. The map has digests of the keys, so that its memory does not
    depend on their lengths.

    `latest_offset`: all records up to this offset are in the map; -1 for an empty map.
    """

    __slots__ = ("_dict_capacity", "_offsets", "_packed", "capacity", "latest_offset")

    def __init__(self, buffer_bytes: int, load_factor: float) -> None:
        """The map uses at most the fraction `load_factor` of `buffer_bytes`, but has room for at
        least one key."""
        usable_bytes = int(buffer_bytes * load_factor)
        self._offsets: dict[bytes, int] = {}
        self._packed: PackedOffsets | None = None
        self._dict_capacity = usable_bytes // DICT_ENTRY_BYTES
        self.capacity = max(1, usable_bytes // ENTRY_BYTES)
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets) if self._packed is None else len(self._packed)

    @property
    def full(self) -> bool:
        """True if no further records may be added. Up to 10,000 records of a batch are added
        together, so the capacity is exceeded by at most these, and each cleaning makes progress."""
        return len(self) >= self.capacity

    @property
    def used(self) -> float:
        """The part of the capacity that is used, 0 to 1."""
        return min(1.0, len(self) / self.capacity)

    def put_all(self, keys: Iterable[bytes], offsets: Iterable[int]) -> None:
        """Add records, in the order of their offsets."""
        if self._packed is not None:
            self._packed.put_all(_whole_digests(keys), offsets)
            return
        self._offsets.update(zip(_digests(keys), offsets, strict=True))
        if len(self._offsets) > self._dict_capacity:
            self._packed = self._pack()

    def _pack(self) -> PackedOffsets:
        """The entries of the dict, packed. The entries are removed from the dict while they are
        packed, so that their memory is used again."""
        packed = PackedOffsets(self.capacity)
        entries = self._offsets
        while entries:
            some = [entries.popitem() for _ in range(min(_PACKED_AT_ONCE, len(entries)))]
            names = [name for name, _ in some]
            packed.put_all(
                (
                    name if len(name) == _DIGEST_BYTES else _whole_digests((name,))[0]
                    for name in names
                ),
                (offset for _, offset in some),
            )
        # An emptied dict still has the memory of its former entries.
        self._offsets = {}
        return packed

    def get_all(self, keys: Iterable[bytes]) -> Iterator[int]:
        """The highest offset of each key; -1 if there is none."""
        if self._packed is not None:
            return self._packed.get_all(_whole_digests(keys))
        return map(self._offsets.get, _digests(keys), repeat(-1))
