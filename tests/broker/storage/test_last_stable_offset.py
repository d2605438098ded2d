"""The arithmetic of the last stable offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.storage.producers.state import last_stable_offset


def test_t45_the_last_stable_offset_stops_at_an_undecided_transaction() -> None:
    assert last_stable_offset(10, 0, None) == 10
    assert last_stable_offset(10, 0, 4) == 4
    assert last_stable_offset(10, 0, 10) == 10, "what nobody can read yet holds nobody back"
    assert last_stable_offset(10, 0, 12) == 10


def test_l10_the_last_stable_offset_is_never_below_the_log_start() -> None:
    assert last_stable_offset(10, 6, 4) == 6


@given(st.lists(st.integers(0, 100), min_size=2, max_size=2), st.none() | st.integers(0, 120))
def test_l10_the_last_stable_offset_is_between_log_start_and_high_watermark(
    offsets: list[int], first_unstable_offset: int | None
) -> None:
    log_start_offset, high_watermark = sorted(offsets)
    found = last_stable_offset(high_watermark, log_start_offset, first_unstable_offset)
    assert log_start_offset <= found <= high_watermark
