"""Bugs on a full disk: failed writes that count as written, torn writes, swaps of segments, and
transaction indexes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.platform.seams import Files
from odradek_broker.storage.aborted_transactions import AbortedTransactions
from odradek_broker.storage.cleaner import cleaner
from odradek_broker.storage.cleaner.swap import SegmentSwap
from odradek_broker.storage.errors import no_room
from odradek_broker.storage.log_durability import LogDurability
from odradek_broker.storage.log_trimming import LogTrimming
from odradek_broker.storage.producers.producer_files import Producers, snapshot_name
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.transaction_index import AbortedTxn

_finish_journaled = LogDurability.finish_journaled
_append = AbortedTransactions.append


def _refused_write_is_a_write(self: LogDurability, ticket: Any, error: OSError | None) -> None:
    _finish_journaled(self, ticket, None if error is not None and no_room(error) else error)


def _left_torn(self: Segment, **_: bool) -> None:
    self.torn = False


_commit = SegmentSwap.commit


def _committed_without_room(self: SegmentSwap) -> None:
    try:
        _commit(self)
    except OSError as problem:
        if not no_room(problem):
            raise


def _offline_without_room(self: LogTrimming, step: Callable[[], Any], doing: str) -> Any:
    try:
        return step()
    except OSError as problem:
        raise self._log.failed(doing, problem) from problem


def _removed_index_is_whole(self: AbortedTransactions, segment: Segment, entry: AbortedTxn) -> None:
    trusted = segment.base_offset not in self._broken
    _append(self, segment, entry)
    if trusted and not self._files.exists(segment.path_of("txnindex")):
        self._broken.pop(segment.base_offset, None)


def _removed_unchecked(files: Files, directory: str, upper_bound: int, known_from: int) -> None:
    newer = f"{directory}/{snapshot_name(known_from)}"
    if files.exists(newer):
        file = files.open(newer)
        file.sync()
        file.close()
        files.sync_dir(directory)
    for name in files.list(directory):
        stem, _, suffix = name.partition(".")
        if suffix == "snapshot" and stem.isdigit() and int(stem) < upper_bound:
            files.remove(f"{directory}/{name}")


def _all_strays(self: Producers, segment_bases: Sequence[int], end_offset: int) -> None:
    self.remove_snapshots(lambda offset: offset not in {*segment_bases, end_offset})


def _known_from_anywhere(self: LogTrimming, offset: int, now_ms: int) -> int:
    return offset


FULL_DISK = (
    Mutant(
        "the cleaner removes old producer snapshots though the disk was full for a newer one",
        "full-disk",
        100_012,
        {
            (LogTrimming, "producers_known_from"): _known_from_anywhere,
            (cleaner, "remove_old_snapshots"): _removed_unchecked,
            (Producers, "remove_strays"): _all_strays,
        },
        ("after a replay of the logs",),
    ),
    Mutant(
        "a write to the commit journal that fails on a full disk counts as successful",
        "full-disk",
        153,
        {(LogDurability, "finish_journaled"): _refused_write_is_a_write},
        ("readers were shown records", "was acknowledged", "after a replay of the logs"),
    ),
    Mutant(
        "a torn write is not cut off",
        "full-disk",
        6,
        {(Segment, "cut_torn"): _left_torn},
    ),
    Mutant(
        "a swap of compacted segments that fails on a full disk counts as committed",
        "full-disk",
        1_621,
        {(SegmentSwap, "commit"): _committed_without_room},
        ("was acknowledged", "readers were shown records", "CorruptMessage", "after a replay"),
    ),
    Mutant(
        "a full disk after a committed swap of segments takes the partition offline",
        "full-disk",
        6,
        {(LogTrimming, "_step"): _offline_without_room},
        ("is offline: swapping", "is offline: retiring"),
    ),
    Mutant(
        "a transaction index that could not store an entry is not rebuilt",
        "full-disk",
        67,
        {(AbortedTransactions, "append"): _removed_index_is_whole},
        ("was aborted", "isolation", "which is not"),
    ),
)
