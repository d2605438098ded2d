"""Mutations without coverage guidance: every run makes the same mutations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
_NUMBERS = (0, 1, -1, 127, 128, 255, 256, 32767, -32768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_WIDTHS = (2, 4, 8)


def mutations(seeds: Sequence[bytes], count: int, seed: int, bytes_max: int) -> Iterator[bytes]:
    """`count` inputs of at most `bytes_max` bytes, each a seed with one to four changes."""
    dice = random.Random(seed)
    for _ in range(count):
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.choice((1, 1, 2, 4))):
            dice.choice(_MUTATIONS)(data, dice, seeds)
        yield bytes(data[:bytes_max])


def _place(data: bytearray, dice: random.Random) -> int:
    return dice.randrange(len(data) + 1)


def _set_byte(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    at = _place(data, dice)
    data[at : at + 1] = bytes([dice.choice((*_BYTES, dice.randrange(256)))])


def _flip_bit(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set_number(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    at, width = _place(data, dice), dice.choice(_WIDTHS)
    number = dice.choice(_NUMBERS) % (1 << 8 * width)
    data[at : at + width] = number.to_bytes(width, "big")


def _insert(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    at = _place(data, dice)
    data[at:at] = dice.randbytes(dice.randrange(1, 9))


def _cut(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    at = _place(data, dice)
    del data[at : at + dice.choice((1, 4, 16, len(data)))]


def _repeat(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    start = _place(data, dice)
    end = start + dice.randrange(1, 65)
    data[start:start] = data[start:end]


def _splice(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    other = dice.choice(seeds)
    data[_place(data, dice) :] = other[dice.randrange(len(other) + 1) :]


_MUTATIONS = (_set_byte, _flip_bit, _set_number, _insert, _cut, _repeat, _splice)
