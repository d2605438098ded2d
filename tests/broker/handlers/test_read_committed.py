"""Readers of committed records, from every offset of a log with every kind of transaction (F-03,
F-08, F-09, T-45)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from broker_in_loop import RunningBroker, StartBroker
from logs import NOW_MS, append, append_marker, make_batch
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.record import read_records
from odradek_protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raw_client import RawClient
from raw_transactions import fetch_request

E = ErrorCode
Seen = list[tuple[int, bytes | None]]


class Written(NamedTuple):
    """The expected log.

    `committed`: (offset, value) of the records that readers of committed records get. `open_at`:
    the first offset of an open transaction, where they stop.
    """

    committed: Seen
    open_at: int
    end: int


def write(log: Any) -> Written:
    """Write plain records and transactions. Some transactions are aborted, some overlap, and an
    open transaction is followed by a committed transaction."""
    sequences: dict[int, int] = {}
    pending: dict[int, Seen] = {}
    committed: Seen = []
    open_at: dict[int, int] = {}

    def data(producer: int, value: bytes, count: int = 2) -> None:
        batch = make_batch(count, value=value)
        if producer:
            sequence = sequences.get(producer, 0)
            sequences[producer] = sequence + count
            batch = make_batch(
                count, value=value, producer_id=producer, sequence=sequence, transactional=True
            )
        base = append(log, batch).base_offset
        seen = [(base + at, value) for at in range(count)]
        if producer:
            pending.setdefault(producer, []).extend(seen)
            open_at.setdefault(producer, base)
        else:
            committed.extend(seen)

    def end(producer: int, commit: bool) -> None:
        append_marker(log, commit, producer)
        del open_at[producer]
        if commit:
            committed.extend(pending[producer])
        pending[producer] = []

    for number in range(3):
        data(0, b"plain")
        data(1, b"committed")
        end(1, True)
        data(2, b"aborted")
        data(0, b"inside", 1)
        data(2, b"aborted")
        end(2, False)
        data(3, b"interleaved and committed")
        data(4, b"interleaved and aborted", 3)
        data(3, b"interleaved and committed", 1)
        end(4 - number % 2, number % 2 == 1)
        end(3 + number % 2, number % 2 == 0)
        log.roll(NOW_MS)
    data(0, b"plain")
    data(5, b"open")
    data(0, b"behind what is open")
    data(1, b"behind what is open")
    end(1, True)
    log.durability.flush()
    first = min(open_at.values())
    readable = sorted(each for each in committed if each[0] < first)
    return Written(readable, first, log.log_end_offset)


async def read_from(client: RawClient, offset: int, max_bytes: int) -> tuple[Seen, int]:
    """The records that a consumer gets from `offset` on, and the offset at which it stops."""
    seen: Seen = []
    while True:
        response = await client.call(fetch_request(offset, max_bytes=max_bytes), 11)
        (part,) = response.responses[0].partitions
        assert part.error_code == E.NONE
        if not part.records:
            return seen, offset
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in part.aborted_transactions
        )
        begun: set[int] = set()
        for position, header in iter_batches(part.records):
            while aborted and aborted[0][0] <= header.last_offset:
                begun.add(aborted.pop(0)[1])
            records = read_records(part.records, position, header)
            if header.is_control:
                begun.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in begun):
                seen += [(each.offset, each.value) for each in records if each.offset >= offset]
            last = header.next_offset
        assert last > offset, "it goes on"
        offset = last


@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 20])
async def test_f09_read_committed_sees_committed_records_from_every_offset(
    client: RawClient, broker: RunningBroker, max_bytes: int
) -> None:
    """Some of the fetch offsets are in the middle of a batch, and some limits are smaller than any
    batch."""
    await client.create_topic("t")
    written = write(broker.node.partition("t", 0).log)
    for offset in range(written.open_at + 1):
        seen, halt = await read_from(client, offset, max_bytes)
        assert seen == [each for each in written.committed if each[0] >= offset], offset
        assert halt == written.open_at


async def test_f09_read_committed_sees_the_same_records_after_a_restart(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    written = write(broker.node.partition("t", 0).log)
    await broker.stop()
    broker = await start_broker()
    client = await broker.client()
    for offset in range(written.open_at + 1):
        seen, halt = await read_from(client, offset, 300)
        assert (seen, halt) == (
            [each for each in written.committed if each[0] >= offset],
            written.open_at,
        )


async def test_f07_read_committed_begins_at_the_log_start_after_deletions(
    client: RawClient, broker: RunningBroker
) -> None:
    """If the log start is in the middle of a batch, the whole batch is sent, and the reader drops
    the records before the log start."""
    await client.create_topic("t", partitions=2)
    written = write(broker.node.partition("t", 0).log)
    for start in (1, 5, written.open_at - 1):
        topic = DeleteRecordsTopic(
            name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=start)]
        )
        await client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)
        for offset in range(start):
            response = await client.call(fetch_request(offset), 11)
            assert response.responses[0].partitions[0].error_code == E.OFFSET_OUT_OF_RANGE
        seen, halt = await read_from(client, start, 1)
        assert (seen, halt) == (
            [each for each in written.committed if each[0] >= start],
            written.open_at,
        )
    for offset, code in ((written.end, E.NONE), (written.end + 1, E.OFFSET_OUT_OF_RANGE)):
        response = await client.call(fetch_request(offset), 11)
        (part,) = response.responses[0].partitions
        assert (part.error_code, bytes(part.records or b"")) == (code, b"")
