"""The checks of the batches in a mirror's request, before they are appended (I-03, I-04)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.storage.errors import AppendRejected
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import (
    BatchError,
    BatchHeader,
    TruncatedBatch,
    read_header,
    verify_crc,
)

#: The limits of the offsets, producer ids and leader epochs that are accepted from a source. The
#: limits are below the maximum values of int64 and int32, because this broker later assigns larger
#: numbers.
OFFSET_MAX = 2**62
PRODUCER_ID_MAX = 2**62
LEADER_EPOCH_MAX = 2**31 - 2


def batches_of(records: memoryview) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Each batch with its header; the checksum is not verified. Raises AppendRejected at bytes that
    are not a whole batch, after the preceding batches were yielded."""
    position = 0
    while position < len(records):
        try:
            header = read_header(records, position)
        except TruncatedBatch as problem:
            raise AppendRejected(
                ErrorCode.CORRUPT_MESSAGE, f"the last batch is incomplete: {problem}"
            ) from None
        except BatchError as problem:
            raise AppendRejected(ErrorCode.CORRUPT_MESSAGE, str(problem)) from None
        yield records[position : position + header.size_bytes], header
        position += header.size_bytes


def check_source(header: BatchHeader, source_leader_epoch: int, last_leader_epoch: int) -> None:
    """Refuse a batch that a source cannot have at this position. Raises AppendRejected.

    `source_leader_epoch`: the epoch of the source's leader, -1 if it is not known;
    `last_leader_epoch`: the newest leader epoch in the mirror's log.
    """
    epoch = header.leader_epoch
    if epoch > source_leader_epoch and epoch >= 0:
        raise _invalid(
            f"its leader epoch {epoch} is newer than the source's leader epoch"
            f" {source_leader_epoch}"
        )
    if 0 <= epoch < last_leader_epoch:
        raise _invalid(f"its leader epoch {epoch} is older than {last_leader_epoch} before it")
    if not 0 <= header.base_offset <= OFFSET_MAX:
        raise _invalid(f"its base offset {header.base_offset} is not between 0 and {OFFSET_MAX}")
    if header.producer_id > PRODUCER_ID_MAX:
        raise _invalid(f"its producer id {header.producer_id} is above {PRODUCER_ID_MAX}")


def highest_producer_id(records: memoryview, known_below: int) -> int:
    """The highest producer id of the valid batches; -1 if none has a producer id. Checksums are
    verified only for batches whose producer id is `known_below` or higher."""
    highest = -1
    try:
        for batch, header in batches_of(records):
            producer_id = header.producer_id
            if not highest < producer_id <= PRODUCER_ID_MAX:
                continue
            if producer_id >= known_below:
                verify_crc(batch, 0, header)
            highest = producer_id
    except (AppendRejected, BatchError):
        pass  # The append reports the problem.
    return highest


def _invalid(message: str) -> AppendRejected:
    return AppendRejected(ErrorCode.INVALID_RECORD, message)
