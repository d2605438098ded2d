"""A number that depends on how many rows of a write are for each topic, and so distinguishes a
replay from a different write (S-07).

The number is the sum over all rows of a hash of the row's topic. The number does not depend on the
distribution of rows over tasks, and its size does not depend on the number of topics. The number
ignores the content of the rows, because the values of `now()` and `rand()` are different in a
replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

_BYTES = 16
_MODULUS = 1 << (8 * _BYTES)


def number_of(rows: Mapping[str, int]) -> int:
    """The number for a write with these rows per topic."""
    return total(count * _hashed(topic) for topic, count in rows.items())


def total(numbers: Iterable[int]) -> int:
    """The number of a whole write, from the numbers of its parts."""
    return sum(numbers) % _MODULUS


def text_of(number: int) -> str:
    """The number in the form of the decision log: 32 hex digits."""
    return f"{number:0{2 * _BYTES}x}"


def _hashed(topic: str) -> int:
    return int.from_bytes(sha256(topic.encode()).digest()[:_BYTES])
