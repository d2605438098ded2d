"""A scripted broker with records to fetch, and an end offset for every leader epoch."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek_protocol.schemas.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from scripted_broker import ScriptedBroker, topic_id

START_MS = 1_000_000
"""The timestamp of the record at offset 0; each is a second after the one before."""


class LogBroker(ScriptedBroker):
    """A scripted broker without fetch sessions.

    A fetch that finds no records waits until some are added or the client ends it. `fetched`: every
    fetch, in order.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._batches: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
        self._news = asyncio.Event()
        self.fetched: list[list[tuple[int, int]]] = []
        #: The timestamps in ListOffsets requests.
        self.asked_ms: list[int] = []
        #: Fetches wait until this event is set.
        self.open = asyncio.Event()
        self.open.set()
        #: (topic, partition) -> the leader epoch and end offset to respond with. A missing
        #: partition means that the broker does not know the epoch.
        self.epoch_ends: dict[tuple[str, int], tuple[int, int]] = {}

    def add(self, topic: str, partition: int, *counts: int, leader_epoch: int = 0) -> None:
        """Append a batch for each number of records."""
        batches = self._batches.setdefault((topic, partition), [])
        for count in counts:
            first = self.end(topic, partition)
            pairs = [(None, b"%d" % n) for n in range(first, first + count)]
            batch = simple_batch(
                pairs, START_MS + first * 1_000, base_offset=first, leader_epoch=leader_epoch
            )
            batches.append((first, first + count, bytes(batch)))
        self._news.set()

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Remove the batches from `offset` on."""
        kept = [each for each in self._batches[topic, partition] if each[1] <= offset]
        self._batches[topic, partition] = kept

    def end(self, topic: str, partition: int) -> int:
        batches = self._batches.get((topic, partition))
        return batches[-1][1] if batches else 0

    async def _fetch(self, request: Any, version: int) -> FetchResponse:
        names = {topic_id(name): name for name in self.topics}
        asked = {
            (topic.topic or names[topic.topic_id], each.partition): each.fetch_offset
            for topic in request.topics
            for each in topic.partitions
        }
        self.fetched.append([(number, offset) for (_, number), offset in asked.items()])
        await self.open.wait()
        while True:
            self._news.clear()
            response = self._answer_fetch(request, names)
            if response is not None:
                return response
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                return FetchResponse(responses=[])

    def _answer_fetch(self, request: Any, names: dict[bytes, str]) -> FetchResponse | None:
        found = False
        topics = []
        for topic in request.topics:
            name = topic.topic or names[topic.topic_id]
            answers = []
            for each in topic.partitions:
                key = (name, each.partition)
                epoch = self.leader_epochs.get(key, 0)
                end = self.end(*key)
                answer = PartitionData(
                    partition_index=each.partition, high_watermark=end, last_stable_offset=end
                )
                if each.current_leader_epoch not in (-1, epoch):
                    answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
                    answer.high_watermark = -1
                elif each.fetch_offset > end:
                    answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                    answer.high_watermark = -1
                else:
                    batches = self._batches.get(key, [])
                    answer.records = b"".join(
                        data for _, last, data in batches if last > each.fetch_offset
                    )
                found = found or bool(answer.records) or answer.error_code != 0
                answers.append(answer)
            topics.append(
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=answers
                )
            )
        return FetchResponse(responses=topics) if found else None

    def _list_offsets(self, request: Any, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._listed(topic.name, each.partition_index, each.timestamp)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _listed(self, topic: str, number: int, timestamp: int) -> ListOffsetsPartitionResponse:
        end = self.end(topic, number)
        self.asked_ms.append(timestamp)
        offset = {-1: end, -2: 0}.get(timestamp)
        if offset is None:
            offset = max(0, -(-(timestamp - START_MS) // 1_000))
            if offset >= end:
                offset = -1
        return ListOffsetsPartitionResponse(
            partition_index=number,
            offset=offset,
            leader_epoch=self.leader_epochs.get((topic, number), 0),
        )

    def _offset_for_leader_epoch(self, request: Any, version: int) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[self._epoch_end(topic.topic, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _epoch_end(self, topic: str, asked: Any) -> EpochEndOffset:
        epoch, end = self.epoch_ends.get((topic, asked.partition), (-1, -1))
        return EpochEndOffset(
            error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end
        )

    def validations(self) -> list[tuple[int, int, int]]:
        """(partition, epoch of the last record read, leader's epoch) of each OffsetForLeaderEpoch
        request."""
        return [
            (each.partition, each.leader_epoch, each.current_leader_epoch)
            for request in self.received(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            for topic in request.topics
            for each in topic.partitions
        ]
