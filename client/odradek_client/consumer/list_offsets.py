"""ListOffsets: the beginnings and ends of partitions, and offsets by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_client.consumer.errors import RETRY, RETRY_WITH_NEW_METADATA, partition_error
from odradek_client.network.cluster import ClusterView
from odradek_client.structs import OffsetAndTimestamp, TopicPartition, group_by_topic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


@dataclass(slots=True)
class FoundOffsets:
    """The result of ListOffsets. `found`: the offset by partition, None if no record is at or after
    the time. `retry`: the partitions to request again, with new metadata if `metadata_wanted`."""

    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    retry: set[TopicPartition] = field(default_factory=set)
    metadata_wanted: bool = False


def list_offsets_requests(
    timestamps: Mapping[TopicPartition, int], cluster: ClusterView, *, read_committed: bool
) -> tuple[dict[int, ListOffsetsRequest], set[TopicPartition]]:
    """(requests by node, partitions without a known leader). `timestamps` are in ms; -1 means the
    end, -2 the start."""
    requests: dict[int, ListOffsetsRequest] = {}
    leaderless = set()
    for topic, partitions in group_by_topic(timestamps).items():
        by_node: dict[int, ListOffsetsTopic] = {}
        for partition in partitions:
            node_id = cluster.leader_of(*partition)
            if node_id is None:
                leaderless.add(partition)
                continue
            by_node.setdefault(node_id, ListOffsetsTopic(name=topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=cluster.leader_epoch_of(*partition),
                    timestamp=timestamps[partition],
                )
            )
        for node_id, asked in by_node.items():
            request = requests.setdefault(
                node_id, ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed))
            )
            request.topics.append(asked)
    return requests, leaderless


def read_list_offsets(
    request: ListOffsetsRequest, response: ListOffsetsResponse, into: FoundOffsets
) -> None:
    """Add an answer to the result `into`. A partition of the request that the answer leaves out is
    to be requested again. Raises errors that a retry does not resolve."""
    left = {
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    }
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if partition not in left:
                continue
            left.remove(partition)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                into.found[partition] = (
                    OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
                    if answer.offset >= 0
                    else None
                )
            elif code in RETRY_WITH_NEW_METADATA or code in RETRY or code.retriable:
                into.retry.add(partition)
                into.metadata_wanted |= code not in RETRY
            else:
                raise partition_error(code, partition)
    into.retry |= left
