"""The grammar of offsets on the command line."""

from __future__ import annotations

import pytest

from odradek_records.offset_grammar import Bound, OffsetBase, OffsetError, parse_offset, parse_span


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("beginning", Bound(OffsetBase.BEGINNING)),
        ("earliest", Bound(OffsetBase.BEGINNING)),
        ("end", Bound(OffsetBase.END)),
        ("latest", Bound(OffsetBase.END)),
        ("stored", Bound(OffsetBase.STORED)),
        ("0", Bound(OffsetBase.OFFSET, 0)),
        ("17", Bound(OffsetBase.OFFSET, 17)),
        ("-5", Bound(OffsetBase.BEFORE_END, 5)),
        ("s@1700000000000", Bound(OffsetBase.TIME, 1_700_000_000_000)),
        ("@2023-11-14T22:13:20Z", Bound(OffsetBase.TIME, 1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Bound(OffsetBase.TIME, 1_700_000_000_000)),
        ("s@2023-11-14T22:13:20.250+00:00", Bound(OffsetBase.TIME, 1_700_000_000_250)),
    ],
)
def test_start_offsets_are_parsed(text: str, bound: Bound) -> None:
    assert parse_offset(text) == bound


@pytest.mark.parametrize(
    "text", ["", "begin", "1.5", "--1", "s@", "s@yesterday", "x@1", "2024-13-01"]
)
def test_bad_start_offsets_are_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(OffsetError, match="write"):
        parse_offset(text)


def test_a_span_has_one_start_and_one_end() -> None:
    span = parse_span(["s@1", "e@5"])
    assert (span.start, span.stop_ms) == (Bound(OffsetBase.TIME, 1), 5)
    assert parse_span([]).start is None
    for bad in (["1", "2"], ["e@1", "e@2"]):
        with pytest.raises(OffsetError):
            parse_span(bad)
