"""Records that `odradek produce` reads from its input, which arrives in pieces of any size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_cli.records import produce
from odradek_protocol.records.lines import LineRecords

ANY_FILE: Any = type("File", (), {"fileno": lambda _: 0})()


def read(pieces: list[bytes], delimiter: bytes, *, whole: bool) -> list[bytes]:
    left = [*pieces, b""]

    async def take(descriptor: int) -> bytes:
        return left.pop(0)

    async def run() -> list[bytes]:
        found: list[bytes] = []
        async for lines in produce.read_lines(ANY_FILE, delimiter, whole=whole):
            if isinstance(lines, LineRecords):
                found += [lines.line(row) for row in range(lines.count)]
            else:
                found += lines
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "_read", take)
        patch.setattr(produce, "_WHOLE_BYTES", 8)
        patch.setattr(produce, "_RECORD_BYTES_MAX", 100)
        return asyncio.run(run())


@given(
    st.lists(st.text("ab\n", min_size=1, max_size=20).map(str.encode), max_size=8),
    st.sampled_from([b"\n", b"ab", b"aa", b"a\na"]),
    st.booleans(),
)
def test_records_do_not_depend_on_the_pieces_of_the_input(
    pieces: list[bytes], delimiter: bytes, whole: bool
) -> None:
    *records, rest = b"".join(pieces).split(delimiter)
    wanted = [*records, rest] if rest else records
    if all(len(record) <= 60 for record in wanted):
        assert read(pieces, delimiter, whole=whole) == wanted


@pytest.mark.parametrize("whole", [False, True])
def test_a_record_in_many_pieces_is_joined_once(whole: bool) -> None:
    """Searching and copying the record again for each piece would take minutes for 128 MB."""
    searched: list[int] = []

    class Piece(bytes):
        def __radd__(self, other: bytes) -> bytes:
            searched.append(len(other) + len(self))
            return bytes(other) + bytes(self)

    pieces: list[bytes] = [b"x", *(Piece(b"y" * 3) for _ in range(30)), b"\nz"]
    assert read(pieces, b"\n", whole=whole) == [b"x" + b"yyy" * 30, b"z"]
    assert sum(searched) <= 2 * len(b"".join(pieces))


@pytest.mark.parametrize("pieces", [[b"x" * 101], [b"x" * 60, b"x" * 60], [b"x"] * 101])
def test_a_record_that_never_ends_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(produce.InputError, match="a record of more than 100 bytes"):
        read(pieces, b"\n", whole=False)
