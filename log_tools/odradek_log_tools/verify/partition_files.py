"""The files of a partition's directory by their kind, and leftovers."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from odradek_broker.platform.seams import Files
from odradek_broker.storage.checkpoints import CorruptCheckpoint, decode_sources, read_small_file
from odradek_broker.storage.segment import segment_name
from odradek_log_tools.file_names import FileKind, parse_file
from odradek_log_tools.verify.findings import Findings
from odradek_protocol.lazy_dataclass import dataclass

_INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
_LEFTOVERS = {
    "deleted": ("was deleted", "it goes at the next start"),
    "retention": ("was removed by retention", "it goes at the next start"),
    "compacted": ("was replaced by compaction", "it goes at the next start"),
    "cleaned": ("is of a compaction that was not finished", "it goes at the next start"),
    "swap": ("is of a compaction that was about to take effect", "the next start decides"),
    "tmp": ("was written to replace another one", "it goes at the next start"),
    "part": ("is of a snapshot that was not finished", "it goes at the next start"),
    "damaged": ("could not be read by a start", "no start touches it; remove it by hand"),
    "next": ("was prepared and not used", "the broker replaces it"),
}


@dataclass(slots=True)
class PartitionFiles:
    """The files of a partition's directory. `bases`: the base offsets of the segments in use,
    ascending; `snapshots`: the offsets of the producer snapshots, ascending."""

    directory: str
    names: set[str]
    bases: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)

    def path(self, base_offset: int, kind: FileKind) -> str:
        return f"{self.directory}/{segment_name(base_offset)}.{kind}"

    def has(self, base_offset: int, kind: FileKind) -> bool:
        return f"{segment_name(base_offset)}.{kind}" in self.names


def sort_files(directory: str, names: list[str], findings: Findings) -> PartitionFiles:
    """The files that a start would use. The other files are reported as notes."""
    found = PartitionFiles(directory, set(names))
    deleted_up_to, indexes = -1, []
    leftovers: Counter[str] = Counter()
    for name in names:
        path, parsed = f"{directory}/{name}", parse_file(name)
        if parsed is None:
            findings.note(path, "is no file of a log", "no start touches it")
        elif parsed.leftover:
            leftovers[parsed.leftover] += 1
            if parsed.kind is FileKind.SEGMENT and parsed.leftover == "retention":
                deleted_up_to = max(deleted_up_to, parsed.offset or 0)
        elif parsed.kind is FileKind.SEGMENT:
            found.bases.append(parsed.offset or 0)
        elif parsed.kind is FileKind.PRODUCER_SNAPSHOT:
            found.snapshots.append(parsed.offset or 0)
        elif parsed.kind in _INDEX_KINDS:
            indexes.append((name, parsed.offset or 0))
    for leftover, count in leftovers.items():
        _note_leftovers(found, leftover, count, findings)
    found.bases.sort()
    found.snapshots.sort()
    _finish_retention(found, deleted_up_to, findings)
    for name, base_offset in indexes:
        if not found.has(base_offset, FileKind.SEGMENT):
            findings.note(f"{directory}/{name}", "is an index of no segment", _LEFTOVERS["tmp"][1])
    return found


def _note_leftovers(found: PartitionFiles, leftover: str, count: int, findings: Findings) -> None:
    """Make one note for all leftovers of a kind, because retention and compaction may leave a
    thousand files."""
    problem, remedy = _LEFTOVERS[leftover]
    files = "a file" if count == 1 else f"each of {count} files"
    findings.note(f"{found.directory}/*.{leftover}", f"{files} {problem}", remedy)


def skip_unfinished_swaps(
    files: Files, found: PartitionFiles, findings: Findings, *, live: bool
) -> None:
    """Leave out the segments that compaction was replacing when the broker was killed, or that it
    is replacing now if the broker is `live`. The files of these segments may already have been
    deleted (L-27). Raises OSError."""
    for name in sorted(found.names):
        parsed = parse_file(name)
        if parsed is None or parsed.kind is not FileKind.SOURCES or parsed.leftover != "swap":
            continue
        path = f"{found.directory}/{name}"
        sources = {parsed.offset or 0}
        try:
            sources.update(decode_sources(read_small_file(files, path) or ""))
        except CorruptCheckpoint as problem:
            if not live:
                findings.recoverable(path, str(problem), "the next start takes none out")
        found.bases = [base for base in found.bases if base not in sources]
        if live:
            findings.note(path, f"compaction replaces {len(sources)} segments", "verify them later")
        else:
            findings.recoverable(
                path,
                f"compaction was replacing {len(sources)} segments",
                "the next start finishes that; verify them then",
            )


def _finish_retention(found: PartitionFiles, deleted_up_to: int, findings: Findings) -> None:
    """Leave out segments below a segment that retention has removed, because a start removes them
    too (L-20)."""
    if not found.bases or found.bases[-1] <= deleted_up_to:
        return
    for base_offset in [base for base in found.bases if base <= deleted_up_to]:
        found.bases.remove(base_offset)
        findings.note(
            found.path(base_offset, FileKind.SEGMENT),
            "is below a segment that retention has removed",
            _LEFTOVERS["retention"][1],
        )


def note_leftover(path: str, leftover: str, findings: Findings) -> None:
    """Report a note about a file of the data directory that is not in use."""
    findings.note(path, *_LEFTOVERS[leftover])
