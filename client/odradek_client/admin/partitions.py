"""The calls of the admin client about partitions: offsets by time, and the deletion of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from odradek_client.admin.requests import AdminPart, partition_error
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import StorageFailed
from odradek_client.structs import OffsetAndTimestamp, TopicPartition, group_by_topic
from odradek_client.timestamps import Time, as_ms
from odradek_protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from odradek_protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST = EARLIEST_TIMESTAMP
LATEST = LATEST_TIMESTAMP
_PLACES = {"earliest": EARLIEST, "latest": LATEST}


class PartitionAdmin(AdminPart):
    """The calls about partitions."""

    async def list_offsets(
        self,
        timestamps: Mapping[tuple[str, int], Time | Literal["earliest", "latest"]],
        *,
        read_committed: bool = False,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition, the offset at a time (a datetime, or ms since 1970), at EARLIEST (or
        "earliest"), or at LATEST (or "latest").

        For a time, the result is the offset of the first record at that time or later, None if
        there is no such record. For LATEST, the result is the offset that the next record gets or,
        with `read_committed`, the last stable offset. Raises UnknownTopicOrPartition,
        TopicAuthorizationFailed.
        """
        wanted = {
            TopicPartition(*tp): _timestamp(at, f"the time for {tp[0]}-{tp[1]}")
            for tp, at in timestamps.items()
        }

        async def ask(
            node_id: int, asked: list[TopicPartition]
        ) -> Outcomes[TopicPartition, OffsetAndTimestamp | None]:
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(partition_index=tp.partition, timestamp=wanted[tp])
                            for tp in some
                        ],
                    )
                    for topic, some in group_by_topic(asked).items()
                ],
            )
            response: ListOffsetsResponse = await self.network.send(node_id, request)
            return {
                (tp := TopicPartition(topic.name, part.partition_index)): partition_error(
                    tp, part.error_code
                )
                if part.error_code
                else _first_record(part)
                for topic in response.topics
                for part in topic.partitions
            }

        return await self.requests.for_each_partition(wanted, ask, raise_errors)

    async def delete_records(
        self, before: Mapping[tuple[str, int], Time], *, raise_errors: bool = True
    ) -> Results[TopicPartition, int]:
        """Delete the oldest records of partitions; returns the new first offset of each.

        `before`: for each partition, the records before this offset are deleted. A datetime stands
        for the offset of the first record at that time or later, and LATEST for the end of the
        partition (all records are deleted). Raises OffsetOutOfRange (the offset is after the end),
        UnknownTopicOrPartition, PolicyViolation (the topic is only compacted), StorageFailed (the
        broker cannot store the change, for example because the disk is full),
        TopicAuthorizationFailed.
        """
        offsets = await self._first_offsets(before)

        async def ask(node_id: int, asked: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp])
                            for tp in some
                        ],
                    )
                    for topic, some in group_by_topic(asked).items()
                ],
                timeout_ms=self.config.request_timeout_ms,
            )
            response: DeleteRecordsResponse = await self.network.send(node_id, request)
            return {
                (tp := TopicPartition(topic.name, part.partition_index)): partition_error(
                    tp, part.error_code
                )
                if part.error_code
                else part.low_watermark
                for topic in response.topics
                for part in topic.partitions
            }

        # Storage errors are not retried: a full disk stays full while the caller waits.
        return await self.requests.for_each_partition(
            offsets, ask, raise_errors, final=(StorageFailed,)
        )

    async def _first_offsets(
        self, before: Mapping[tuple[str, int], Time]
    ) -> dict[TopicPartition, int]:
        """The offset of the first record that stays in each partition. Times are translated to
        offsets."""
        times: dict[tuple[str, int], Time] = {}
        offsets: dict[TopicPartition, int] = {}
        for (topic, partition), at in before.items():
            tp = TopicPartition(topic, partition)
            if isinstance(at, int) and not isinstance(at, bool):
                offsets[tp] = at
            else:
                times[tp] = as_ms(at, f"the end for {topic}-{partition}")
        found = await self.list_offsets(times) if times else {}
        for tp, first in found.items():
            offsets[tp] = LATEST if first is None else first.offset
        return offsets


def _timestamp(at: Time | str, what: str) -> int:
    """The timestamp for ListOffsets. TypeError, with `what` in its text, for a value of a wrong
    type."""
    if not isinstance(at, str):
        return as_ms(at, what)
    if at not in _PLACES:
        raise TypeError(
            f"{what} is str; give a datetime, milliseconds since 1970, 'earliest' or 'latest', "
            f"not {at!r}"
        )
    return _PLACES[at]


def _first_record(answer: ListOffsetsPartitionResponse) -> OffsetAndTimestamp | None:
    if answer.offset < 0:
        return None
    return OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
