"""The replay of a commit journal after a crash: the logs that are recovered get back the records
that only the journal has (L-50).

Only an index of the journal stays in memory; batches are read when a log has lost them.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.platform.seams import Files
from odradek_broker.storage.journal_format import (
    ALIGN_BYTES,
    JournalBlock,
    decode_header,
    decode_part,
    journal_parts,
    read_part,
)
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchError, read_header_alone, verify_crc


class _Found(NamedTuple):
    """Batches in the journal: `position` is their position in the segment, `at` their position in
    the journal."""

    position: int
    size_bytes: int
    at: int


class JournalReplay:
    """The entries of a journal at `path`, as they were when it was read."""

    def __init__(self, files: Files, path: str) -> None:
        """Read the journal. Raises OSError, UnknownJournal, CorruptJournal."""
        self._files = files
        self._path = path
        self._found: dict[tuple[bytes, int], dict[int, list[_Found]]] = {}
        file = files.open(path)
        try:
            header = decode_header(file.read_at(0, ALIGN_BYTES))
            for start in journal_parts(file, header):
                for block, at in decode_part(read_part(file, header, start), header.incarnation):
                    self._take(block, start + at)
        finally:
            file.close()

    def _take(self, block: JournalBlock, at: int) -> None:
        for entry, offset in block.entries:
            key = entry.topic_id, entry.partition
            entries = self._found.setdefault(key, {}).setdefault(entry.segment, [])
            entries.append(_Found(entry.position, len(entry.batches), at + offset))

    def __len__(self) -> int:
        return len(self._found)

    def behind(
        self, topic_id: bytes, partition: int, segment: int, position: int, offset: int
    ) -> Iterator[bytes]:
        """The successive batches of a segment in the journal: the first is at `position` of the
        segment and has the base offset `offset`. Raises OSError."""
        entries = self._found.get((topic_id, partition), {}).get(segment)
        if not entries:
            return
        file = self._files.open(self._path)
        try:
            for entry in entries:
                if entry.position + entry.size_bytes <= position:
                    continue
                if entry.position > position:
                    return
                content = file.read_at(entry.at, entry.size_bytes)
                start, next_offset = _from(content, position - entry.position, offset)
                if start < 0:
                    return
                yield content[start:]
                position = entry.position + entry.size_bytes
                offset = next_offset
        finally:
            file.close()


def _from(content: bytes, wanted: int, offset: int) -> tuple[int, int]:
    """Check that the bytes are intact batches, that a batch with the base offset `offset` begins at
    position `wanted`, and that no offsets are missing after it. Returns (`wanted`, the offset after
    the last batch), or (-1, -1) if the check fails."""
    position = 0
    met = False
    try:
        while position < len(content):
            header = read_header_alone(content, position)
            end = position + header.size_bytes
            if end > len(content):
                return -1, -1
            verify_crc(content, position, header)
            if position == wanted:
                met = header.base_offset == offset
            if met:
                if header.base_offset != offset or header.last_offset_delta < 0:
                    return -1, -1
                offset = header.next_offset
            position = end
    except BatchError:
        return -1, -1
    return (wanted, offset) if met else (-1, -1)
