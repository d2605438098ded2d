"""A number for how many rows of a write are for each topic, which tells a replay from another write
(S-07).

A sum over the rows, of a hash of each one's topic: the same however Spark deals the rows out to
tasks, and of the same size for any number of topics. It says nothing about what is in the rows:
`now()` and `rand()` give a replay other ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

_BYTES = 16
_MODULUS = 1 << (8 * _BYTES)


def number_of(rows: Mapping[str, int]) -> int:
    """The number for so many rows of each topic."""
    return total(count * _hashed(topic) for topic, count in rows.items())


def total(numbers: Iterable[int]) -> int:
    """The number of all rows, of the numbers of their parts."""
    return sum(numbers) % _MODULUS


def text_of(number: int) -> str:
    """The number as the decision log keeps it: 32 hex digits."""
    return f"{number:0{2 * _BYTES}x}"


def _hashed(topic: str) -> int:
    return int.from_bytes(sha256(topic.encode()).digest()[:_BYTES])
