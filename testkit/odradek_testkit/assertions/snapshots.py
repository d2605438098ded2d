"""Snapshots: the records of a topic as lines of JSON. Equal records give equal lines."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from odradek_client.structs import ConsumerRecord
from odradek_records.record_format import to_json_line

_DIFFERENCE_LINES_MAX = 60


class TopicSnapshot:
    """A line for each added record, in a fixed order."""

    def __init__(self, *, partitions: bool, offsets: bool, timestamps: bool) -> None:
        if offsets and not partitions:
            raise ValueError("offsets=True needs partitions=True: an offset is one of a partition")
        left_out = {
            "topic": False,
            "tstype": False,
            "partition": partitions,
            "offset": offsets,
            "ts": timestamps,
        }
        self._left_out = [name for name, wanted in left_out.items() if not wanted]
        self._by_partition = partitions
        self._lines: list[tuple[int, int, str]] = []
        self._sorted: list[str] | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def extend(self, records: Iterable[ConsumerRecord]) -> None:
        """Add further records."""
        for each in records:
            self._lines.append((each.partition, each.offset, self._line(each)))
            self._sorted = None

    def lines(self) -> list[str]:
        """The lines without line ends, sorted by partition and offset; sorted by their text if they
        contain no partition."""
        if self._sorted is None:
            if self._by_partition:
                self._sorted = [line for _, _, line in sorted(self._lines)]
            else:
                self._sorted = sorted(line for _, _, line in self._lines)
        return self._sorted

    def _line(self, record: Any) -> str:
        fields: dict[str, Any] = json.loads(to_json_line(record))
        for name in self._left_out:
            del fields[name]
        if not fields["headers"]:
            del fields["headers"]
        return json.dumps(fields, ensure_ascii=False)


def write_snapshot(path: Path, lines: Iterable[str]) -> None:
    """Write the lines to a new file, which then replaces the present file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    temporary.replace(path)


def difference(wanted: Sequence[str], found: Sequence[str], path: str, topic: str) -> list[str]:
    """The difference as `diff -u` shows it, shortened."""
    lines = list(difflib.unified_diff(wanted, found, path, topic, lineterm="", n=2))
    more = len(lines) - _DIFFERENCE_LINES_MAX
    return lines[:_DIFFERENCE_LINES_MAX] + ([f"... {more} more lines"] if more > 0 else [])
