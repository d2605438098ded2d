"""The swap of a cleaned segment for its sources, in steps that a crash may interrupt anywhere
(L-27).

    step            files of three sources, 100, 200 and 300            what a crash leaves
    ------------    ------------------------------------------------    ----------------------
    the cleaner     100.log  200.log  300.log  + 100.*.cleaned          the sources
        sync of the files and of the directory
    commit          100.log  200.log  300.log  + 100.*.swap             with 100.sources.swap,
        sync of the directory                                           which is renamed last:
    swap_in         100.log (cleaned)  200.log  300.log                 a start finishes the swap
                      and 100.*.compacted.deleted
    retire          100.log (cleaned)                                   the same
                      and {200,300}.*.compacted.deleted
        sync of the directory
    end             100.log (cleaned), no 100.sources.swap              the cleaned segment
        sync of the directory, before anything is cleaned there again

Renames reach the disk in any order, so a start looks for `sources.swap`: if the file exists, the
swap was committed, and `finish_swaps` finishes it; if not, all the sources exist. Kafka has no such
file: it takes the range of the sources from the swapped segment, and a source that was not deleted
becomes part of the log again. Names of sources end in `.compacted.deleted`, because a name with
`.retention.deleted` means that everything before it was deleted (L-20).

A step after the commit that finds no room on the disk, for a longer name for example, is tried
again later.
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
from odradek_broker.storage.errors import no_room
from odradek_broker.storage.segment import segment_name

CLEANED = ".cleaned"
SWAP = ".swap"
_RETIRED = ".compacted.deleted"
_SOURCES = "sources"
#: The files of a segment besides its log, all of them caches. Snapshots are not among them: they
#: belong to an offset, not to a segment.
_INDEXES = ("index", "timeindex", "txnindex")


def _path(directory: str, base: int, suffix: str) -> str:
    return f"{directory}/{segment_name(base)}.{suffix}"


def write_sources(files: Files, directory: str, sources: Sequence[int]) -> None:
    """Write the list of sources: the base offsets of the segments that the cleaned segment
    replaces. The cleaned segment has the first of these base offsets. Raises OSError."""
    path = _path(directory, sources[0], _SOURCES + CLEANED)
    files.remove(path)
    file = files.open(path, create=True)
    try:
        file.append([encode_sources(sources)])
        file.sync()
    finally:
        file.close()


def remove_cleaned(files: Files, directory: str, base: int) -> None:
    """Remove files that a cleaner wrote and nobody committed. Files that cannot be removed are
    overwritten by the next cleaning, or removed by the next start.

    The `.cleaned` files are removed last, and only if no `.swap` is left, because a start takes a
    `.swap` without a `.cleaned` for committed (L-46).
    """
    with suppress(OSError):
        for ending in (SWAP, CLEANED):
            for suffix in ("log", *_INDEXES, _SOURCES):
                files.remove(_path(directory, base, suffix + ending))


class SegmentSwap:
    """The swap of a cleaned segment into a log. Every method raises OSError."""

    __slots__ = ("_directory", "_files", "_waiting", "half_in", "retired_paths", "sources")

    def __init__(self, files: Files, directory: str, sources: Sequence[int]) -> None:
        self._files = files
        self._directory = directory
        self.sources = sources
        #: The paths of renamed sources.
        self.retired_paths: list[str] = []
        #: True if `swap_in` has failed, and its renames were not undone.
        self.half_in = False
        self._waiting = list(sources[1:])

    def commit(self) -> None:
        """Rename the cleaned files to `.swap`. The last rename commits the swap: from then on this
        process or a start finishes it."""
        base = self.sources[0]
        for suffix in (*_INDEXES, "log", _SOURCES):
            self._rename(base, suffix + CLEANED, suffix + SWAP)

    def swap_in(self) -> None:
        """Give the files of the cleaned segment their final names. If one rename finds no room, the
        other renames are undone; `half_in` stays True if a rename cannot be undone."""
        base = self.sources[0]
        renamed: list[tuple[str, str]] = []
        try:
            for suffix in ("log", *_INDEXES):
                if self._rename(base, suffix, suffix + _RETIRED):
                    renamed.append((suffix, suffix + _RETIRED))
            for suffix in (*_INDEXES, "log"):
                if self._rename(base, suffix + SWAP, suffix):
                    renamed.append((suffix + SWAP, suffix))
        except OSError as problem:
            self.half_in = True
            if no_room(problem):
                for source, target in reversed(renamed):
                    self._rename(base, target, source)
                self.half_in = False
            raise
        self._note_retired(base, [target for _, target in renamed if target.endswith(_RETIRED)])

    def retire(self, at_most: int) -> bool:
        """Rename the files of at most `at_most` sources that have not been renamed yet; True if no
        such source is left."""
        for base in self._waiting[:at_most]:
            for suffix in ("log", *_INDEXES, "snapshot"):
                if self._rename(base, suffix, suffix + _RETIRED):
                    self._note_retired(base, [suffix + _RETIRED])
            self._waiting.remove(base)
        return not self._waiting

    def end(self) -> None:
        """Remove the list of sources, after the new names have become durable."""
        self._files.remove(_path(self._directory, self.sources[0], _SOURCES + SWAP))

    def _note_retired(self, base: int, suffixes: Sequence[str]) -> None:
        self.retired_paths += [_path(self._directory, base, suffix) for suffix in suffixes]

    def _rename(self, base: int, source: str, target: str) -> bool:
        path = _path(self._directory, base, source)
        if not self._files.exists(path):
            return False
        self._files.rename(path, _path(self._directory, base, target))
        return True


def finish_swaps(files: Files, directory: str) -> None:
    """Finish the swaps of this broker that were committed, when the broker starts. The files of
    other swaps stay unchanged. Raises OSError."""
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
    damages it. If the list is damaged nevertheless, old records may become visible again, but no
    record is lost."""
    try:
        text = read_small_file(files, _path(directory, base, _SOURCES + SWAP))
        return [base] if text is None else decode_sources(text)
    except CorruptCheckpoint:
        return [base]
