"""Finishes a swap in which Apache Kafka was killed: the replacement of sources by a cleaned segment
(L-46).

    the cleaner writes `<base>.{log,index,timeindex,txnindex}.cleaned`, and syncs them
    .cleaned becomes .swap, the log first
    the sources become `.deleted`
    .swap becomes the final names, the log first

Kafka writes no list of the sources, so the file names decide, as at a start of Kafka: a `.swap`
with a `.cleaned` at or below it was not committed, and is removed. Any other `.swap` is complete,
and the segments between its first offset and its end are removed. Our own swaps have a list, and
are finished earlier (`swap`).
"""

from __future__ import annotations

from odradek_broker.platform.seams import Files
from odradek_broker.storage.cleaner.swap import CLEANED, SWAP
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.segment import Segment, segment_name
from odradek_broker.storage.segment_scanner import SegmentCorrupt, walk_batches

#: The suffixes of a segment's files. The log is renamed last, because a start recognizes by the
#: log's name that a swap has to be finished.
_SUFFIXES = ("index", "timeindex", "txnindex", "log")
_DERIVED = (*_SUFFIXES, "snapshot")


def finish_foreign_swaps(files: Files, directory: str) -> None:
    """Finish the swaps that were committed, and remove the others, at a start. Raises OSError."""
    found = [_parse(name) for name in files.list(directory)]
    cleaned = [base for base, suffix in found if base >= 0 and suffix.endswith(CLEANED)]
    swaps = [(base, suffix) for base, suffix in found if base >= 0 and suffix.endswith(SWAP)]
    if not swaps:
        return
    logs = {base for base, suffix in found if suffix == "log"}
    uncommitted = min(cleaned, default=None)
    ranges: list[tuple[int, int]] = []
    refused: set[int] = set()
    for base, suffix in swaps:
        if uncommitted is not None and base >= uncommitted:
            refused.add(base)
        elif suffix == f"log{SWAP}":
            end, whole = _end_offset(files, directory, base)
            if whole or base not in logs:
                ranges.append((base, end))
            else:
                # The `.swap` is damaged, so it is not the file that Kafka synced. The first source
                # still exists, so the other sources exist too.
                refused.add(base)
    for base, suffix in swaps:
        if base in refused:
            files.remove(f"{directory}/{segment_name(base)}.{suffix}")
    if ranges:
        _remove_sources(files, directory, min(ranges)[0], max(end for _, end in ranges), ranges)
    files.sync_dir(directory)
    for wanted in _SUFFIXES:
        for base, suffix in swaps:
            if base not in refused and suffix == wanted + SWAP:
                path = f"{directory}/{segment_name(base)}.{wanted}"
                files.rename(path + SWAP, path)
    files.sync_dir(directory)


def _remove_sources(
    files: Files, directory: str, first: int, end: int, ranges: list[tuple[int, int]]
) -> None:
    """Remove the segments from `first` up to `end`. Producer snapshots at the start of a segment
    that stays are kept."""
    starts = {base for base, _ in ranges}
    for name in files.list(directory):
        base, suffix = _parse(name)
        if first <= base < end and suffix == "log":
            for each in _DERIVED:
                if each != "snapshot" or base not in starts:
                    files.remove(f"{directory}/{segment_name(base)}.{each}")


def _end_offset(files: Files, directory: str, base: int) -> tuple[int, bool]:
    """The end offset of a swapped segment, and True if it is whole. Raises OSError."""
    segment = Segment(HandleCache(files, limit=1), directory, base, created_ms=0)
    segment.path += SWAP
    end = base
    try:
        segment.attach()
        for batch in walk_batches(segment, 0):
            end = batch.last_offset + 1
    except SegmentCorrupt:
        return end, False
    finally:
        segment.drop_handle()
    return end, True


def _parse(name: str) -> tuple[int, str]:
    """The base offset and the suffix of a segment's file; -1 and the suffix for any other file."""
    stem, _, suffix = name.partition(".")
    if len(stem) != len(segment_name(0)) or not (stem.isascii() and stem.isdigit()):
        return -1, suffix
    return int(stem), suffix
