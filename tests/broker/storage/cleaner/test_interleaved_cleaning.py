"""Logs that are written and cleaned at the same time, with repeated crashes of the machine (L-23 to
L-28)."""

from __future__ import annotations

import pytest

import budget
from interleaved_cleaning import InterleavedHistory
from odradek_broker.storage.cleaner import offset_map


@pytest.mark.parametrize("seed", budget.of_which(range(25), range(1, 3)))
def test_l24_l27_records_written_during_cleaning_survive_repeated_crashes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        # The offset map is packed, as for a log with many keys.
        monkeypatch.setattr(offset_map, "DICT_ENTRY_BYTES", 2**40)
    history = InterleavedHistory(seed)
    for _ in range(10):
        history.run(steps=250, crash_within=500)
    history.settle()
    assert history.crashes == 10 and history.cleanings
