"""Flipped bits in flushed data: readers get errors, and no record is truncated or skipped
(L-33)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import budget
from broker_in_loop import StartBroker
from logs import DIRECTORY, EVERYTHING, NOW_MS, append, make_batch, make_log, records
from odradek_broker.storage.errors import LogCorrupt
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_options import LogStart
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import BatchError, iter_batches, verify_crc
from odradek_testkit.simulation.disk import MemoryFiles
from raw_client import batch_of, produce_request
from raw_transactions import fetch_request

FIRST_SEGMENT = f"{DIRECTORY}/{0:020d}.log"
#: The values of batches of two records each; the fourth batch has its own segment.
VALUES = (b"first", b"middle", b"last", b"next")
#: The checksum does not cover the base offset of a batch (R-01).
BASE_OFFSET_BYTES = 8


def written(files: MemoryFiles) -> list[int]:
    """Write the batches; returns the end positions, in bytes, of those in the first segment."""
    log = make_log(files)
    ends = []
    for value in VALUES[:-1]:
        append(log, make_batch(2, value=value))
        ends.append(log.size_bytes)
    log.roll(NOW_MS)
    append(log, make_batch(2, value=VALUES[-1]))
    log.durability.flush()
    log.close(clean=True)
    return ends


def opened(files: MemoryFiles, clean: bool) -> PartitionLog:
    return make_log(files, start=LogStart(0, 8, 8, clean))


def found_at(log: PartitionLog, offset: int) -> list[tuple[int, bytes | None]] | None:
    """(offset, value) of each record in the batch at `offset`; None if the broker returns an error
    or the checksum does not match."""
    try:
        data = log.read(offset, 1, upper_bound=EVERYTHING, minimum_one=True)
    except LogCorrupt as problem:
        assert problem.error is ErrorCode.CORRUPT_MESSAGE
        return None
    try:
        for position, header in iter_batches(data):
            verify_crc(data, position, header)
        return [(record.offset, record.value) for record in records(data)]
    except BatchError:
        return None


@pytest.mark.full
@pytest.mark.parametrize("clean", budget.of_which([True, False], [False]))
def test_l33_a_flipped_bit_is_reported_and_no_record_is_truncated_or_skipped(clean: bool) -> None:
    first_end, middle_end, _ = written(MemoryFiles())
    told = 0
    for at in range(first_end + BASE_OFFSET_BYTES, middle_end):
        for bit in range(8):
            files = MemoryFiles()
            written(files)
            flipped = bytearray(files.content(FIRST_SEGMENT))
            flipped[at] ^= 1 << bit
            files.put(FIRST_SEGMENT, bytes(flipped))
            log = opened(files, clean)
            assert log.log_end_offset == 8
            assert found_at(log, 0) == [(0, b"first"), (1, b"first")]
            middle, last = found_at(log, 2), found_at(log, 4)
            # Damage to the leader epoch is not noticed, because the checksum does not cover it; the
            # records are unaffected.
            assert middle in (None, [(2, b"middle"), (3, b"middle")]), (at, bit)
            assert last in (None, [(4, b"last"), (5, b"last")]), (at, bit)
            told += middle is None
            assert found_at(log, 6) == [(6, b"next"), (7, b"next")]
            assert append(log).base_offset == 8
            assert files.content(FIRST_SEGMENT) == flipped, "the damage stays for others to look at"
    epoch_bits = 4 * 8
    assert told == (middle_end - first_end - BASE_OFFSET_BYTES) * 8 - epoch_bits


async def test_l33_a_fetch_of_a_damaged_batch_gets_corrupt_message(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    for value in VALUES[:-1]:
        await client.call(produce_request("t", batch_of(value)), 9)
    broker.node.partition("t", 0).log.roll(NOW_MS)
    await client.call(produce_request("t", batch_of(VALUES[-1])), 9)
    await broker.stop()
    path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[8:12], "big") + 12
    content[size + 8] ^= 0x40  # the length of the second batch
    path.write_bytes(content)

    broker = await start_broker()
    client = await broker.client()

    async def fetched(offset: int) -> tuple[int, list[bytes | None]]:
        """Fetch, and retry until the indexes are rebuilt; the rebuild meets the damage."""
        async with asyncio.timeout(20):
            while True:
                response = await client.call(fetch_request(offset, max_bytes=size), 11)
                part = response.responses[0].partitions[0]
                if part.error_code != ErrorCode.OFFSET_NOT_AVAILABLE:
                    values = [record.value for record in records(part.records or b"")]
                    return part.error_code, values
                await asyncio.sleep(0.01)

    assert [await fetched(offset) for offset in range(4)] == [
        (ErrorCode.NONE, [b"first"]),
        (ErrorCode.CORRUPT_MESSAGE, []),
        (ErrorCode.CORRUPT_MESSAGE, []),
        (ErrorCode.NONE, [b"next"]),
    ]
    response = await client.call(produce_request("t", batch_of(b"more")), 9)
    assert response.responses[0].partition_responses[0].base_offset == 4
    assert path.read_bytes() == content
