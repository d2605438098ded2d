"""Bugs in compaction: in the choice of the records that it keeps, in the transaction indexes, and
in the swap of segments."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tests.sim.mutants.base import Mutant

from odradek_broker.storage.aborted_transactions import AbortedTransactions
from odradek_broker.storage.cleaner import offset_map, swap
from odradek_broker.storage.cleaner.transactions import CleanedTransactions
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.recovery import LogLoader
from odradek_broker.storage.segment import RETENTION_DELETED, Segment, segment_name
from odradek_protocol.records.batch import BatchHeader


def _never_aborted(self: CleanedTransactions, header: BatchHeader) -> bool:
    return False


def _first_bytes_of_keys(keys: Iterable[bytes]) -> list[bytes]:
    return [key[:1] for key in keys]


_restore_end = LogLoader._restore_end


def _restored_in_the_last_segment_only(self: LogLoader, segment: Segment) -> int:
    last = max(name for name in self.files.list(self.directory) if name.endswith(".log"))
    if self.compacted and last != f"{segment_name(segment.base_offset)}.log":
        return 0
    return _restore_end(self, segment)


def _loaded_without_transaction_indexes(self: PartitionLog) -> None:
    self.ensure_loaded()


_begin = AbortedTransactions.begin


def _not_begun_by_recovery(self: AbortedTransactions, segment: Segment) -> None:
    if sys._getframe(1).f_code.co_name != "_recover":
        _begin(self, segment)


COMPACTION = (
    Mutant(
        "recovery takes the lost end of a rolled segment for records that compaction removed",
        "compaction",
        16,
        {(LogLoader, "_restore_end"): _restored_in_the_last_segment_only},
        ("readers were shown records", "though nothing was compacted"),
    ),
    Mutant(
        "compaction lets an aborted record replace a committed one",
        "compaction",
        1,
        {(CleanedTransactions, "saw_data"): _never_aborted},
    ),
    Mutant(
        "compaction distinguishes keys by their first byte only",
        "compaction",
        1,
        {(offset_map, "_digests"): _first_bytes_of_keys},
    ),
    Mutant(
        "segments that compaction replaced count as deleted by retention",
        "compaction",
        1,
        {(swap, "_RETIRED"): RETENTION_DELETED},
    ),
    Mutant(
        "the cleaner takes missing transaction indexes for empty ones",
        "compaction",
        15,
        {
            (PartitionLog, "require_transaction_indexes"): _loaded_without_transaction_indexes,
            (AbortedTransactions, "begin"): _not_begun_by_recovery,
        },
    ),
)
