"""Bugs of compaction: of what is kept, and of how it takes effect."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.simulation.mutants.base import Mutant
from odradek_broker.storage.cleaner import offset_map, swap
from odradek_broker.storage.cleaner.transactions import CleanedTransactions
from odradek_broker.storage.segments import RETENTION_DELETED
from odradek_protocol.records.batch import BatchHeader


def _never_aborted(self: CleanedTransactions, header: BatchHeader) -> bool:
    return False


def _first_letters(keys: Iterable[bytes]) -> list[bytes]:
    return [key[:1] for key in keys]


COMPACTION = (
    Mutant(
        "aborted records that replace committed ones",
        "compaction",
        1,
        {(CleanedTransactions, "saw_data"): _never_aborted},
    ),
    Mutant(
        "keys that are not told apart",
        "compaction",
        1,
        {(offset_map, "_digests"): _first_letters},
    ),
    Mutant(
        "what was compacted taken for what retention removed",
        "compaction",
        1,
        {(swap, "_RETIRED"): RETENTION_DELETED},
    ),
)
