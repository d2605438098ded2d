"""Which partition a record goes to (C-18).

Keyed records: murmur2 of the key as the Java client computes it, so that clients of all languages
agree. Records without a key stick to a partition until a batch's worth of bytes went there, then go
to another one, the likelier the shorter its queue (KIP-794).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from odradek_client.backoff import Random
from odradek_protocol.murmur2 import positive_murmur2

_CACHED_KEYS = 8192
_CACHED_KEY_BYTES = 64


@lru_cache(maxsize=_CACHED_KEYS)
def _hash_of_short_key(key: bytes) -> int:
    return positive_murmur2(key)


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`."""
    if len(key) > _CACHED_KEY_BYTES:
        return positive_murmur2(key) % partitions
    return _hash_of_short_key(key) % partitions


def next_sticky(candidates: Sequence[int], queue_lengths: Sequence[int], random: Random) -> int:
    """Choose a partition at random out of `candidates`; a longer queue makes it less likely.

    `queue_lengths`: the batches waiting, in the order of `candidates`. The partition with the
    longest queue still has a chance.
    """
    if len(candidates) == 1:
        return candidates[0]
    longest = max(queue_lengths) + 1
    point = random.random() * sum(longest - length for length in queue_lengths)
    for candidate, length in zip(candidates, queue_lengths, strict=True):
        point -= longest - length
        if point < 0:
            return candidate
    return candidates[-1]
