"""Produces batches to a broker, and describes the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.oracle.batches.cases import DAY_MS, PARTITIONS, TOPICS, Case

from odradek_protocol.records.batch import BatchError, BatchHeader, read_header, verify_crc
from odradek_protocol.records.record import read_columns
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.produce import PartitionProduceData, PartitionProduceResponse
from raw_client import RawClient, produce_request


class Asker:
    """Produces cases over one connection, and describes the results."""

    def __init__(self, client: RawClient, wall_ms: Callable[[], int]) -> None:
        self._client, self._wall_ms = client, wall_ms

    async def create_topics(self) -> None:
        for name, configs in TOPICS.items():
            await self._client.create_topic(name, PARTITIONS.get(name, 1), **configs)

    async def ask(self, case: Case) -> dict[str, Any]:
        """Produce a case, and describe the result.

        Times are relative to those of the batch, offsets relative to the log end. Empty parts are
        left out, such as no record errors, or no growth of the log. A topic of several partitions
        has a result for each.
        """
        # The batch's times are before the present, so that they differ from the append time.
        now_ms = self._wall_ms() - 1000
        partitions = range(PARTITIONS.get(case.topic, 1))
        ends = [await self._log_end(case.topic, partition) for partition in partitions]
        data = case.build(now_ms)
        request = produce_request(case.topic, data)
        request.topic_data[0].partition_data = [
            PartitionProduceData(index=partition, records=data) for partition in partitions
        ]
        response = await self._client.call(request, case.version)
        answers = response.responses[0].partition_responses
        said = [
            await self._described(case.topic, answer, end, data, now_ms)
            for answer, end in zip(answers, ends, strict=True)
        ]
        return said[0] if len(said) == 1 else {"partitions": said}

    async def _described(
        self, topic: str, answer: PartitionProduceResponse, end: int, data: bytes, now_ms: int
    ) -> dict[str, Any]:
        """The answer for a partition that ended at `end`, and what it has stored."""
        appended_ms = answer.log_append_time_ms
        if appended_ms != -1:
            assert now_ms + 1000 <= appended_ms <= self._wall_ms()
        moved = await self._log_end(topic, answer.index) - end
        said: dict[str, Any] = {
            "error": answer.error_code,
            "base_offset": answer.base_offset - end if answer.base_offset >= 0 else None,
            "append_time": appended_ms != -1 or None,
            "log_start": answer.log_start_offset,
            "record_errors": [one.batch_index for one in answer.record_errors] or None,
            "moved": moved or None,
        }
        if moved:
            stored = await self._fetched(topic, answer.index, end)
            said["stored"] = _described(stored, data, now_ms, appended_ms)
        return {name: value for name, value in said.items() if value is not None}

    async def _log_end(self, topic: str, partition: int) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)],
                )
            ],
        )
        response = await self._client.call(request, 4)
        offset = response.topics[0].partitions[0].offset
        assert isinstance(offset, int)
        return offset

    async def _fetched(self, topic: str, partition: int, offset: int) -> bytes:
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
        )
        response = await self._client.call(request, 11)
        return bytes(response.responses[0].partitions[0].records)


def _described(data: bytes, sent: bytes, now_ms: int, appended_ms: int) -> dict[str, Any]:
    """Describe the stored batch, compared with the sent one."""
    header = read_header(data)
    assert header.size_bytes == len(data), "one batch"
    verify_crc(data, 0, header)
    sent = sent[: len(data)]
    return {
        "header": "as sent" if data[21:61] == sent[21:61] else "other",
        "records": "as sent" if data[61:] == sent[61:] else "other",
        "attributes": header.attributes,
        "last_offset_delta": header.last_offset_delta,
        "record_count": header.record_count,
        "base_timestamp": _time(header.base_timestamp, now_ms, appended_ms),
        "max_timestamp": _time(header.max_timestamp, now_ms, appended_ms),
        "found": _found(data, header, now_ms, appended_ms),
    }


def _time(timestamp_ms: int, now_ms: int, appended_ms: int) -> int | str:
    if timestamp_ms == appended_ms != -1:
        return "append"
    distance = timestamp_ms - now_ms
    return f"now{distance:+d}" if abs(distance) < 30 * DAY_MS else timestamp_ms


def _found(data: bytes, header: BatchHeader, now_ms: int, appended_ms: int) -> list[Any] | str:
    """Offset, timestamp, key and value of each record, as read by our codec."""
    try:
        columns = read_columns(data, 0, header)
    except BatchError:
        return "unreadable"
    if sum(len(value or b"") for value in columns.values) > 1000:
        return "large"
    return [
        [
            offset - header.base_offset,
            _time(timestamp, now_ms, appended_ms),
            None if key is None else key.decode(),
            None if value is None else value.decode(),
        ]
        for offset, timestamp, key, value in zip(*columns[:4], strict=True)
    ]
