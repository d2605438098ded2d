"""The files of a partition after Apache Kafka was killed while it was replacing segments by a
cleaned segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from compaction import job_for
from logs import DIRECTORY, NOW_MS, append, append_marker, make_batch, make_log
from odradek_broker.storage.cleaner.cleaner import clean
from odradek_broker.storage.cleaner.job import GroupCleaned
from odradek_broker.storage.cleaner.policy import log_to_clean
from odradek_broker.storage.log import PartitionLog
from odradek_testkit.simulation.disk import MemoryFiles

SETTINGS: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "index_interval_bytes": 100,
    "segment_bytes": 2_000,
}
INDEXES = ("index", "timeindex", "txnindex")


def path_of(base: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base:020d}.{suffix}"


@dataclass
class Kill:
    """The state after a kill. `files`: the remaining files. `committed`: True if a start must use
    the cleaned segment."""

    what: str
    files: MemoryFiles
    committed: bool


@dataclass
class CleanedByKafka:
    """A log, and the cleaned segment that is to replace its segments `sources`."""

    files: MemoryFiles
    sources: list[int]
    expected_before: dict[str, bytes]
    cleaned: bytes

    @classmethod
    def make(cls, *, first_source: int = 0) -> CleanedByKafka:
        """Make a log whose cleaning replaces at least three segments; before these, the log has
        `first_source` other segments."""
        files = MemoryFiles()
        log = make_log(files, **SETTINGS)
        for at in range(60):
            append(log, make_batch(2, key=b"%d" % (at % 5), value=b"x" * 60))
            if at % 20 == 7:
                append(log, make_batch(1, key=b"t", producer_id=at, transactional=True))
                append_marker(log, commit=False, producer_id=at)
        log.close(clean=True)
        log = make_log(files, **SETTINGS)
        group = _clean(log, files, first_source)
        log.close(clean=False)
        files.remove(path_of(group.sources[0], "sources.cleaned"))
        return cls(
            files,
            list(group.sources),
            logs_of(files),
            files.content(path_of(group.sources[0], "log.cleaned")),
        )

    @property
    def expected_after(self) -> dict[str, bytes]:
        """The `.log` files that are expected once the cleaned segment is in use."""
        kept = {
            name: content
            for name, content in self.expected_before.items()
            if int(name[:20]) not in self.sources
        }
        return {f"{self.sources[0]:020d}.log": self.cleaned, **kept}

    def kills(self) -> Iterator[Kill]:
        """Yield the state after each possible kill: before each renaming, and after the last one.

        The order of renamings is Kafka's (LogSegment.changeFileSuffixes,
        UnifiedLog.replaceSegments).
        """
        base = self.sources[0]
        committed = False
        for what, source, target in self._renamings(base):
            if what == "sources":
                committed = True
            yield Kill(f"before {source}", self.files.copy(), committed)
            if self.files.exists(source):
                self.files.rename(source, target)
        yield Kill("after all of it", self.files.copy(), True)

    def _renamings(self, base: int) -> Iterator[tuple[str, str, str]]:
        suffixes = ("log", *INDEXES)
        for suffix in suffixes:
            cleaned, swap = path_of(base, f"{suffix}.cleaned"), path_of(base, f"{suffix}.swap")
            if self.files.exists(cleaned):
                yield "commit", cleaned, swap
        for source in self.sources:
            for suffix in (*suffixes, "snapshot"):
                path = path_of(source, suffix)
                if self.files.exists(path) and (suffix != "snapshot" or source != base):
                    yield "sources", path, f"{path}.deleted"
        for suffix in suffixes:
            swap = path_of(base, f"{suffix}.swap")
            if self.files.exists(swap):
                yield "swap", swap, path_of(base, suffix)


def _clean(log: PartitionLog, files: MemoryFiles, first_source: int) -> GroupCleaned:
    found = log_to_clean(log, None, NOW_MS)
    job = job_for(found, NOW_MS, segment_bytes=1_000_000)
    if first_source:
        base = job.segments[first_source][0]
        job = job_for(
            found,
            NOW_MS,
            segment_bytes=1_000_000,
            segments=job.segments[first_source:],
            first_dirty_offset=base,
        )
    for step in clean(job, files):
        assert isinstance(step, GroupCleaned)
        assert len(step.sources) >= 3
        return step
    raise AssertionError("nothing was cleaned")


def logs_of(files: MemoryFiles) -> dict[str, bytes]:
    """The contents of the `.log` files by file name."""
    return {
        path.rpartition("/")[2]: files.content(path)
        for path in files.paths()
        if path.startswith(DIRECTORY) and path.endswith(".log")
    }
