"""What partitions hold, as an administrator sees it: offsets by time, deleting records, bytes on disk.

A part of `Admin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek_client.admin_base import AdminBase
from odradek_client.admin_results import Results, settle
from odradek_client.consumer.types import OffsetAndTimestamp, TopicPartition
from odradek_client.errors import OdradekError, Refused, error_for
from odradek_client.times import Time, as_ms
from odradek_protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek_protocol.schemas.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

EARLIEST = -2
LATEST = -1


@dataclass(frozen=True)
class ReplicaSize:
    """What one replica takes in a directory. `is_future`: it is being moved there."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True)
class LogDir:
    """One data directory of a broker. `error` says why nothing is known of it; the bytes of its volume
    are None where the broker does not say."""

    path: str
    error: OdradekError | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: dict[TopicPartition, ReplicaSize]

    @property
    def size_bytes(self) -> int:
        """Of all replicas in it."""
        return sum(replica.size_bytes for replica in self.replicas.values())


class PartitionAdmin(AdminBase):
    """The calls about partitions."""

    async def list_offsets(
        self,
        timestamps: Mapping[tuple[str, int], Time],
        *,
        read_committed: bool = False,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the offset at a time (a datetime, or ms since 1970), EARLIEST or LATEST.

        It is the first record at that time or later; None if there is none. LATEST is the offset
        that the next record gets, or the last stable offset if `read_committed`. Raises
        UnknownTopicOrPartition, TopicAuthorizationFailed.
        """
        wanted = {
            TopicPartition(*tp): as_ms(at, f"the time for {tp[0]}-{tp[1]}")
            for tp, at in timestamps.items()
        }
        results: Results[TopicPartition, OffsetAndTimestamp | None] = Results()

        async def ask(asked: list[TopicPartition]) -> dict[TopicPartition, OdradekError]:
            homes, errors = await self._by_leader(asked)
            for node_id, group in homes.items():
                request = _offsets_request(group, wanted, read_committed)
                response = await self._network.send(node_id, request)
                for topic in response.topics:
                    for part in topic.partitions:
                        tp = TopicPartition(topic.name, part.partition_index)
                        if part.error_code:
                            errors[tp] = error_for(
                                part.error_code, about=f"{tp.topic}-{tp.partition}"
                            )
                        elif part.offset < 0:
                            results[tp] = None
                        else:
                            results[tp] = OffsetAndTimestamp(
                                part.offset, part.timestamp, part.leader_epoch
                            )
            return errors

        errors = await self._all(list(wanted), ask, place_of=lambda tp: tp)
        return settle(results, errors, raise_errors)

    async def delete_records(
        self, before: Mapping[tuple[str, int], Time], *, raise_errors: bool = True
    ) -> Results[TopicPartition, int]:
        """Delete the oldest records of partitions; the offset at which each begins now.

        `before`: for each partition the offset of the first record that stays; or a datetime, which
        stands for the first record at that time or later; or LATEST for everything that there is.
        Raises OffsetOutOfRange (behind the end), UnknownTopicOrPartition, PolicyViolation (the topic
        is compacted only), TopicAuthorizationFailed.
        """
        offsets = await self._first_offsets(before)
        results: Results[TopicPartition, int] = Results()

        async def ask(asked: list[TopicPartition]) -> dict[TopicPartition, OdradekError]:
            homes, errors = await self._by_leader(asked)
            for node_id, group in homes.items():
                topics: dict[str, DeleteRecordsTopic] = {}
                for tp in group:
                    topic = topics.setdefault(
                        tp.topic, DeleteRecordsTopic(name=tp.topic, partitions=[])
                    )
                    topic.partitions.append(
                        DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp])
                    )
                request = DeleteRecordsRequest(
                    topics=list(topics.values()), timeout_ms=self.config.request_timeout_ms
                )
                response = await self._network.send(node_id, request)
                for answer in response.topics:
                    for part in answer.partitions:
                        tp = TopicPartition(answer.name, part.partition_index)
                        if part.error_code:
                            about = f"{tp.topic}-{tp.partition}"
                            errors[tp] = error_for(part.error_code, about=about)
                        else:
                            results[tp] = part.low_watermark
            return errors

        errors = await self._all(list(offsets), ask, place_of=lambda tp: tp)
        return settle(results, errors, raise_errors)

    async def _first_offsets(
        self, before: Mapping[tuple[str, int], Time]
    ) -> dict[TopicPartition, int]:
        """The offsets of the records that stay; times are looked up."""
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

    async def describe_log_dirs(
        self, node_ids: int | Iterable[int] | None = None, *, raise_errors: bool = True
    ) -> Results[int, list[LogDir]]:
        """The data directories of brokers, by node id: all brokers, or those named.

        Raises ClusterAuthorizationFailed, ConnectionLost, Refused (there is no such node).
        """
        there = sorted(broker.node_id for broker in (await self._metadata([])).brokers)
        wanted = (
            [node_ids]
            if isinstance(node_ids, int)
            else list(there if node_ids is None else node_ids)
        )
        results: Results[int, list[LogDir]] = Results()

        async def ask(asked: list[int]) -> dict[int, OdradekError]:
            errors: dict[int, OdradekError] = {}
            for node_id in asked:
                if node_id not in there:
                    known = ", ".join(map(str, there))
                    errors[node_id] = Refused(
                        f"there is no node {node_id}; the cluster has {known}"
                    )
                    continue
                try:
                    response = await self._network.send(
                        node_id, DescribeLogDirsRequest(topics=None)
                    )
                except OdradekError as error:
                    errors[node_id] = error
                    continue
                if response.error_code:
                    errors[node_id] = error_for(response.error_code, about=f"node {node_id}")
                else:
                    results[node_id] = [_log_dir(each) for each in response.results]
            return errors

        errors = await self._all(wanted, ask)
        return settle(results, errors, raise_errors)


def _log_dir(found: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        found.log_dir,
        error_for(found.error_code, about=found.log_dir) if found.error_code else None,
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None,
        {
            TopicPartition(topic.name, part.partition_index): ReplicaSize(
                part.partition_size, part.offset_lag, part.is_future_key
            )
            for topic in found.topics
            for part in topic.partitions
        },
    )


def _offsets_request(
    tps: Iterable[TopicPartition], timestamps: Mapping[TopicPartition, int], read_committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for tp in tps:
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamps[tp])
        )
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=int(read_committed), topics=list(topics.values())
    )
