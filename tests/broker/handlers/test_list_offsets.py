"""ListOffsets: ends and times (rules L-15 and L-16, and the table before L-15 in
docs/rules/log.md)."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raw_client import RawClient, batch_of, produce_request

BASE_MS = 1_700_000_000_000


def ask(*timestamps: int, partition: int | None = None, epoch: int = -1) -> ListOffsetsRequest:
    """A request that asks partition 0 for the first timestamp, partition 1 for the second, and so
    on. `partition`: this partition is asked for all timestamps."""
    return ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index if partition is None else partition,
                        timestamp=timestamp,
                        current_leader_epoch=epoch,
                    )
                    for index, timestamp in enumerate(timestamps)
                ],
            )
        ]
    )


async def one(client: RawClient, timestamp: int, version: int, **fields: Any) -> Any:
    response = await client.call(ask(timestamp, **fields), version)
    return response.topics[0].partitions[0]


def deletion(topic: str, offset: int) -> DeleteRecordsRequest:
    """A request that deletes all records of partition 0 before the offset."""
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=10_000
    )


@pytest.fixture(autouse=True)
async def topic(client: RawClient) -> None:
    """Create a topic with six records in two batches, at BASE_MS + 0, 1, 2 ms and + 10, 11, 12
    ms."""
    await client.create_topic("t", partitions=2)
    for start in (0, 10):
        batch = batch_of(b"a", b"b", b"c", timestamp_ms=BASE_MS + start)
        await client.call(produce_request("t", batch), 9)


@pytest.mark.parametrize("version", range(1, 12))
async def test_every_version_answers_the_earliest_and_latest_offset(
    client: RawClient, version: int
) -> None:
    latest = await one(client, -1, version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 6, -1)
    earliest = await one(client, -2, version)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)
    if version >= 4:
        assert latest.leader_epoch == 0


async def test_l15_a_timestamp_finds_the_record_and_not_its_batch(client: RawClient) -> None:
    for since_ms, offset, found_ms in ((0, 0, 0), (1, 1, 1), (3, 3, 10), (11, 4, 11)):
        answer = await one(client, BASE_MS + since_ms, 7)
        assert (answer.offset, answer.timestamp) == (offset, BASE_MS + found_ms)
    none = await one(client, BASE_MS + 13, 7)
    assert (none.error_code, none.offset, none.timestamp) == (0, -1, -1)


async def test_max_timestamp_finds_the_newest_record_since_version_7(client: RawClient) -> None:
    answer = await one(client, -3, 7)
    assert (answer.offset, answer.timestamp) == (5, BASE_MS + 12)
    empty = await client.call(ask(-1, -3), 7)
    assert empty.topics[0].partitions[1].offset == -1


@pytest.mark.parametrize(
    "segment_bytes", ["1073741824", "2000"], ids=["one segment", "a segment each"]
)
async def test_l53_max_timestamp_ignores_deleted_records(
    client: RawClient, segment_bytes: str
) -> None:
    configs = {"segment.bytes": segment_bytes}
    await client.create_topic("d", 1, **configs)
    for since_ms in (9000, 0, 50):
        batch = batch_of(b"a" * 500, b"b" * 500, b"c" * 500, timestamp_ms=BASE_MS + since_ms)
        await client.call(produce_request("d", batch), 9)
    found = []
    for log_start in (0, 2, 3, 4, 7, 9):
        await client.call(deletion("d", log_start), 2)
        request = ask(-3)
        request.topics[0].name = "d"
        answer = (await client.call(request, 7)).topics[0].partitions[0]
        found.append((answer.offset, answer.timestamp - BASE_MS))
    nothing = (-1, -1 - BASE_MS)
    assert found == [(2, 9002), (2, 9002), (8, 52), (8, 52), (8, 52), nothing]


async def test_l53_max_timestamp_ignores_deleted_records_within_a_batch(client: RawClient) -> None:
    builder = BatchBuilder()
    for since_ms in (9000, 5, 7):
        builder.append(BASE_MS + since_ms, None, b"x")
    await client.create_topic("d")
    await client.call(produce_request("d", builder.build()), 9)
    await client.call(deletion("d", 1), 2)
    request = ask(-3)
    request.topics[0].name = "d"
    answer = (await client.call(request, 7)).topics[0].partitions[0]
    assert (answer.offset, answer.timestamp) == (2, BASE_MS + 7)


async def test_l53_max_timestamp_of_records_without_timestamps_is_the_first_record(
    client: RawClient,
) -> None:
    await client.create_topic("d")
    for _ in range(3):
        await client.call(produce_request("d", batch_of(b"x", timestamp_ms=-1)), 9)
    request = ask(-3)
    request.topics[0].name = "d"
    for log_start, expected in ((0, 0), (1, 1), (3, -1)):
        await client.call(deletion("d", log_start), 2)
        answer = (await client.call(request, 7)).topics[0].partitions[0]
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, expected, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-100, 11)]
)
async def test_l16_special_timestamps_of_later_versions_are_refused(
    client: RawClient, timestamp: int, version: int
) -> None:
    answer = await one(client, timestamp, version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_l16_local_and_tiered_offsets_are_answered(client: RawClient) -> None:
    assert (await one(client, -4, 8)).offset == 0
    assert (await one(client, -5, 9)).offset == -1
    assert (await one(client, -6, 11)).offset == -1


async def test_l16_a_partition_named_twice_is_an_invalid_request(client: RawClient) -> None:
    response = await client.call(ask(-1, -2, partition=0), 7)
    codes = [answer.error_code for answer in response.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST]


async def test_f11_unknown_leader_epochs_and_partitions_are_refused(client: RawClient) -> None:
    assert (await one(client, -1, 7, epoch=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    unknown = await one(client, -1, 7, partition=9)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
