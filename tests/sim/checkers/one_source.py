"""A mirror topic has records of one source only: of the one that it names."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.storage.log import PartitionLog
from odradek_protocol.records.batch import iter_batches


def check_one_source(
    copy: PartitionLog, source: PartitionLog, *, is_whole: bool = False
) -> Iterator[str]:
    """Yield the batches of the copy that the source does not have at their offsets, and records of
    the source that the copy has skipped. `is_whole`: the copy must have all records."""
    theirs = _batches(source)
    for offset, batch in _batches(copy).items():
        if offset >= source.log_start_offset and theirs.get(offset) != batch:
            yield f"the batch at offset {offset} is not of the source that the topic names"
    if copy.log_start_offset > source.log_start_offset:
        yield f"the copy begins at {copy.log_start_offset}, the source at {source.log_start_offset}"
    if is_whole and copy.high_watermark != source.high_watermark:
        yield f"the copy ends at {copy.high_watermark}, the source at {source.high_watermark}"


def _batches(log: PartitionLog) -> dict[int, bytes]:
    """The batches below the high watermark by their base offsets."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while data := log.read(offset, 2**30, upper_bound=log.high_watermark, minimum_one=True):
        for at, header in iter_batches(data):
            found[header.base_offset] = bytes(data[at : at + header.size_bytes])
            offset = header.next_offset
    return found
