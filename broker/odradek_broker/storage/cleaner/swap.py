"""A cleaned segment takes the place of those that it was made from, in steps that a crash may
interrupt anywhere (L-27).

    the cleaner     writes `<base>.{log,index,timeindex,txnindex,sources}.cleaned`
        sync of the files and of the directory
    commit          renames them to `.swap`, `sources` last: from then on the swap will be finished
        sync of the directory
    swap_in         renames the first source to `.compacted.deleted`, `.swap` to the final names
    retire          renames the other sources
        sync of the directory
    end             removes `sources.swap`
        sync of the directory, before anything is cleaned there again

Renames reach the disk in any order, so a start asks `sources.swap`: if it is there, the swap was
committed, and is finished by `finish_swaps`; if not, all the sources are there. Kafka has no such
file: it takes the range from the swapped segment, and a segment of it that was not deleted comes
back. Sources end in `.compacted.deleted`, for a `.retention.deleted` says that everything before it
is gone (L-20).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from odradek_broker.platform.seams import Files
from odradek_broker.storage.checkpoints import (
    CorruptCheckpoint,
    decode_sources,
    encode_sources,
    read_small_file,
)
from odradek_broker.storage.segment import segment_name

CLEANED = ".cleaned"
SWAP = ".swap"
_RETIRED = ".compacted.deleted"
_SOURCES = "sources"
#: What a segment has besides its log, all of it caches but the snapshot, which stays with its
#: offset.
_INDEXES = ("index", "timeindex", "txnindex")


def _path(directory: str, base: int, suffix: str) -> str:
    return f"{directory}/{segment_name(base)}.{suffix}"


def write_sources(files: Files, directory: str, sources: Sequence[int]) -> None:
    """Write down what the cleaned segment at the first of these offsets replaces. OSError."""
    path = _path(directory, sources[0], _SOURCES + CLEANED)
    files.remove(path)
    file = files.open(path, create=True)
    try:
        file.append([encode_sources(sources)])
        file.sync()
    finally:
        file.close()


def remove_cleaned(files: Files, directory: str, base: int) -> None:
    """Remove what a cleaner wrote and nobody committed; what cannot be removed is overwritten by
    the next cleaning, or removed by the next start."""
    for ending in (CLEANED, SWAP):
        for suffix in ("log", *_INDEXES, _SOURCES):
            with suppress(OSError):
                files.remove(_path(directory, base, suffix + ending))


class SegmentSwap:
    """The swap of a cleaned segment into a log. Every method raises OSError."""

    __slots__ = ("_directory", "_files", "_waiting", "retired_paths", "sources")

    def __init__(self, files: Files, directory: str, sources: Sequence[int]) -> None:
        self._files = files
        self._directory = directory
        self.sources = sources
        #: Of sources that were renamed.
        self.retired_paths: list[str] = []
        self._waiting = list(sources[1:])

    def commit(self) -> None:
        """From its last step on the swap is finished, by this run or by a start."""
        base = self.sources[0]
        for suffix in (*_INDEXES, "log", _SOURCES):
            self._rename(base, suffix + CLEANED, suffix + SWAP)

    def swap_in(self) -> None:
        """Give the cleaned segment its names."""
        base = self.sources[0]
        self._retire(base, ("log", *_INDEXES))
        for suffix in (*_INDEXES, "log"):
            self._rename(base, suffix + SWAP, suffix)

    def retire(self, at_most: int) -> bool:
        """Rename some of the other sources; whether that was all of them."""
        for _ in range(min(at_most, len(self._waiting))):
            self._retire(self._waiting.pop(0), ("log", *_INDEXES, "snapshot"))
        return not self._waiting

    def end(self) -> None:
        """The new names are durable: nothing is left to be finished."""
        self._files.remove(_path(self._directory, self.sources[0], _SOURCES + SWAP))

    def _retire(self, base: int, suffixes: Sequence[str]) -> None:
        for suffix in suffixes:
            if self._rename(base, suffix, suffix + _RETIRED):
                self.retired_paths.append(_path(self._directory, base, suffix + _RETIRED))

    def _rename(self, base: int, source: str, target: str) -> bool:
        path = _path(self._directory, base, source)
        if not self._files.exists(path):
            return False
        self._files.rename(path, _path(self._directory, base, target))
        return True


def finish_swaps(files: Files, directory: str) -> None:
    """At a start: finish the swaps that were committed. What was not is left for others to remove.
    OSError."""
    names = set(files.list(directory))
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        if suffix == _SOURCES + SWAP and stem.isdigit():
            _finish(files, directory, int(stem), names)


def _finish(files: Files, directory: str, base: int, names: set[str]) -> None:
    sources = _read_sources(files, directory, base)
    found = [
        (f"{suffix}{ending}", suffix)
        for suffix in (*_INDEXES, "log")
        for ending in (SWAP, CLEANED)
        if f"{segment_name(base)}.{suffix}{ending}" in names
    ]
    swapped_in = all(suffix != "log" for _, suffix in found)
    for source in sources:
        if source != base:
            for suffix in ("log", *_INDEXES, "snapshot"):
                files.remove(_path(directory, source, suffix))
    if not swapped_in:
        for suffix in ("log", *_INDEXES):
            files.remove(_path(directory, base, suffix))
    files.sync_dir(directory)
    for source_suffix, suffix in found:
        files.rename(_path(directory, base, source_suffix), _path(directory, base, suffix))
    files.sync_dir(directory)
    files.remove(_path(directory, base, _SOURCES + SWAP))
    files.sync_dir(directory)


def _read_sources(files: Files, directory: str, base: int) -> list[int]:
    """The bases of the sources of a swap. The list was on disk before it got its name, so no crash
    damages it. If it is damaged all the same, old records may come back, but none is lost."""
    try:
        text = read_small_file(files, _path(directory, base, _SOURCES + SWAP))
        return [base] if text is None else decode_sources(text)
    except CorruptCheckpoint:
        return [base]
