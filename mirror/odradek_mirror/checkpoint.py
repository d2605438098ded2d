"""The translation of a Spark query's checkpoint: a copy with the offsets of another cluster.

Spark keeps the progress of a query in files. `offsets/N` has the end of batch N in each source, and
is written before the batch runs; `commits/N` exists when the batch is completed. For a source of
Kafka, whether it is read by `format("odradek")` or by `format("kafka")`, an end is a line of JSON
like {"flights": {"0": 120}}: the next offset to read. All other files in the folder are copied
unchanged.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The first line of the files that this module can read.
_FORMAT = "v1"
#: The first byte of the file of initial offsets in Spark's own format.
_OLD_READERS = b"\0"

#: (topic, partition, offset) -> the offset of the same position at the other cluster. Raises
#: `NotTranslatable` if the position is not known.
Translate = Callable[[str, int, int], int]


class CheckpointError(ValueError):
    """The error of a checkpoint that cannot be translated, with the reason and the remedy."""


class NotTranslatable(ValueError):
    """An offset has no counterpart at the other cluster."""


@dataclass(slots=True)
class Translated:
    """The result of a translation. `batch`: the number of the last batch. `ends`: for each (topic,
    partition), the offset at the end of that batch before and after the translation. `kept`: topics
    whose offsets were left as they are."""

    batch: int
    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)


def translate_checkpoint(
    source: Path,
    target: Path,
    topics: set[str],
    translate: Translate,
    *,
    keep_others: bool = False,
    unfinished: bool = False,
) -> Translated:
    """Make `target`, a copy of the checkpoint `source` with translated offsets of these topics.

    `keep_others`: leave offsets of other topics unchanged, because these topics belong to another
    cluster; otherwise other topics are an error. `unfinished`: accept a checkpoint whose last batch
    is not completed. `target` appears as a whole, or not at all. Raises CheckpointError; OSError.
    """
    batch = _last_batch(source, unfinished=unfinished)
    if target.exists():
        raise CheckpointError(f"{target} exists already: name a folder that does not")
    result = Translated(batch)
    beside = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(source, beside)
    lines = _Lines(topics, translate, keep_others, result)
    for path in _numbered(beside / "offsets"):
        lines.newest = int(path.name) == batch
        _replace(path, lines.offsets_file(path, path.read_text(encoding="utf-8")))
    lines.newest = False
    for path in sorted((beside / "sources").glob("*/0")):
        _replace(path, lines.initial_offsets_file(path, path.read_bytes()))
    if not result.ends and not result.kept:
        raise CheckpointError(
            f"{source} has no offsets of Kafka in it: no source of the query reads from there"
        )
    beside.rename(target)
    return result


def _last_batch(source: Path, *, unfinished: bool) -> int:
    """The number of the last batch. Raises CheckpointError if there is none, or if it is not
    completed and `unfinished` is false."""
    if not (source / "offsets").is_dir() or not (source / "metadata").is_file():
        raise CheckpointError(
            f"{source} is no checkpoint of a streaming query: it needs a file `metadata` and a"
            " folder `offsets`. One that is not on this machine is to be copied here first"
        )
    batches = [int(path.name) for path in _numbered(source / "offsets")]
    if not batches:
        raise CheckpointError(
            f"{source} has no batch yet: start the query at the other cluster with a new checkpoint"
        )
    ended = {int(path.name) for path in _numbered(source / "commits")}
    last = max(batches)
    if last in ended:
        return last
    if not unfinished:
        raise CheckpointError(
            f"batch {last} of {source} was begun and has not ended. Run the query once more at its"
            " old cluster with trigger(availableNow=True), which ends the batch. If the sink takes a"
            " repeated batch for what it is (files, Delta, foreachBatch with the batch's number),"
            " --unfinished lets the batch be repeated at the new cluster"
        )
    if last - 1 not in ended:
        raise CheckpointError(
            f"batch {last} of {source} has not ended, and the batch before it is unknown: the"
            " first offset of the batch is not in the checkpoint. Run the query once more at its"
            " old cluster with trigger(availableNow=True)"
        )
    return last


def _numbered(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        (path for path in folder.iterdir() if path.name.isdecimal()),
        key=lambda path: int(path.name),
    )


def _replace(path: Path, content: bytes) -> None:
    """Replace the content of a file of the copy, and sync it. Hadoop's checksum file of the old
    content would not match, and is removed."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class _Lines:
    """Translates the lines of a checkpoint's files. `newest`: true for the file of the last batch;
    the end offsets in this file go into the result."""

    def __init__(
        self, topics: set[str], translate: Translate, keep_others: bool, result: Translated
    ) -> None:
        self.newest = False
        self._topics = topics
        self._translate = translate
        self._keep_others = keep_others
        self._result = result

    def offsets_file(self, path: Path, text: str) -> bytes:
        """The content of `offsets/N`: the format, the batch's settings, and a line per source."""
        lines = text.split("\n")
        if lines[0] != _FORMAT or len(lines) < 3:
            raise CheckpointError(
                f"{path.parent.name}/{path.name} begins with {lines[0][:20]!r}; only files of the"
                f" format {_FORMAT} can be translated"
            )
        return "\n".join([*lines[:2], *(self._line(line) for line in lines[2:])]).encode()

    def initial_offsets_file(self, path: Path, content: bytes) -> bytes:
        """The content of `sources/N/0`, in which Spark's own format keeps its first offsets."""
        before = content[:1] if content.startswith(_OLD_READERS) else b""
        version, newline, line = content[len(before) :].decode(errors="replace").partition("\n")
        if version != _FORMAT or _offsets_of(line) is None:
            return content
        return before + f"{version}{newline}{self._line(line)}".encode()

    def _line(self, line: str) -> str:
        found = _offsets_of(line)
        if found is None:
            return line
        # The names with a colon are identities of topics, which say nothing in another cluster
        # (pyspark_odradek/topic_identity.py).
        found = {
            topic: offsets
            for topic, offsets in found.items()
            if topic in self._topics or topic.partition(":")[0] not in self._topics
        }
        unknown = {each for each in found.keys() - self._topics if ":" not in each}
        if unknown and not self._keep_others:
            raise CheckpointError(
                f"the query reads the topic {min(unknown)}, which is not mirrored. If it is read"
                " from a cluster that stays, use --keep-others"
            )
        self._result.kept |= unknown
        return json.dumps(
            {
                topic: offsets
                if topic not in self._topics
                else {
                    number: self._offset(topic, int(number), offsets[number]) for number in offsets
                }
                for topic, offsets in found.items()
            }
        )

    def _offset(self, topic: str, partition: int, offset: int) -> int:
        try:
            # Negative offsets stand for the log's start or end.
            translated = offset if offset < 0 else self._translate(topic, partition, offset)
        except NotTranslatable as problem:
            raise CheckpointError(f"offset {offset} of {topic}-{partition}: {problem}") from problem
        if self.newest:
            self._result.ends[topic, partition] = offset, translated
        return translated


def _offsets_of(line: str) -> dict[str, dict[str, int]] | None:
    """{topic: {partition: offset}} in the line of a Kafka source; None for any other line."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not found:
        return None
    for offsets in found.values():
        if not isinstance(offsets, dict):
            return None
        for number, offset in offsets.items():
            if not number.isdecimal() or type(offset) is not int:
                return None
    return found
