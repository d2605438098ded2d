"""Requests about offsets: where a partition begins and ends, and what a group has committed.

Each has a builder and a reader; the reader gives what was found, and per partition what was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from odradek_client.cluster import ClusterView
from odradek_client.consumer.errors import CommitFailed, describe, partition_error
from odradek_client.consumer.fetcher import RETRY, RETRY_WITH_NEW_METADATA
from odradek_client.consumer.types import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from odradek_client.errors import RebalanceInProgress, error_for
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

#: OffsetFetch 8 asks for many groups at once, OffsetCommit 10 names topics by id: not needed here.
OFFSET_FETCH_NEWEST = 7
OFFSET_COMMIT_NEWEST = 9
#: require_stable came with this version of OffsetFetch.
OFFSET_FETCH_STABLE = 7


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """In the order of their first appearance."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics


# --- ListOffsets ----------------------------------------------------------------------------------


@dataclass(slots=True)
class FoundOffsets:
    """`found`: per partition, None if no record is at or behind the time. `retry`: to be asked about
    again, with new metadata if `metadata_wanted`."""

    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    retry: set[TopicPartition] = field(default_factory=set)
    metadata_wanted: bool = False


def list_offsets_requests(
    timestamps: Mapping[TopicPartition, int], cluster: ClusterView, *, read_committed: bool
) -> tuple[dict[int, ListOffsetsRequest], set[TopicPartition]]:
    """(requests by node, partitions without a known leader). Timestamps in ms, -1 end, -2 start."""
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


def read_list_offsets(response: ListOffsetsResponse, into: FoundOffsets) -> None:
    """Raises what another try will not help."""
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
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


# --- OffsetFetch ----------------------------------------------------------------------------------


class CoordinatorTrouble(Enum):
    """What to do before asking again."""

    WAIT = "back off"
    REDISCOVER = "find the coordinator again"


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], *, require_stable: bool
) -> OffsetFetchRequest:
    """Stable ones are always wanted where the broker knows the difference (K-25)."""
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=[each.partition for each in some])
            for topic, some in group_by_topic(partitions).items()
        ],
        require_stable=require_stable,
    )


def read_offset_fetch(
    response: OffsetFetchResponse, group_id: str
) -> dict[TopicPartition, OffsetAndMetadata | None] | CoordinatorTrouble:
    """What is committed, None where nothing is. Raises what another try will not help."""
    trouble = _coordinator_trouble(ErrorCode.of(response.error_code), group_id)
    if trouble is not None:
        return trouble
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            code = ErrorCode.of(answer.error_code)
            if code in (ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return CoordinatorTrouble.WAIT
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise partition_error(code, partition)
            # Version 1 has no top-level code and gives the group's per partition.
            trouble = _coordinator_trouble(code, group_id)
            if trouble is not None:
                return trouble
            found[partition] = (
                OffsetAndMetadata(
                    answer.committed_offset, answer.metadata or "", answer.committed_leader_epoch
                )
                if answer.committed_offset >= 0
                else None
            )
    return found


def _coordinator_trouble(code: ErrorCode, group_id: str) -> CoordinatorTrouble | None:
    if code is ErrorCode.NONE:
        return None
    if code in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return CoordinatorTrouble.REDISCOVER
    if code.retriable:
        return CoordinatorTrouble.WAIT
    raise error_for(code, about=f"group {group_id!r}")


# --- OffsetCommit ---------------------------------------------------------------------------------


def offset_commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    generation: int,
    member_id: str,
    group_instance_id: str | None,
) -> OffsetCommitRequest:
    """Generation -1 and no member id: from outside of any generation (O-04)."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=each.partition,
                        committed_offset=offsets[each].offset,
                        committed_leader_epoch=offsets[each].leader_epoch,
                        committed_metadata=offsets[each].metadata,
                    )
                    for each in some
                ],
            )
            for topic, some in group_by_topic(offsets).items()
        ],
    )


#: Codes that say the member is out, and what that is to it (K-38).
COMMIT_MEMBER_LOST = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


def read_offset_commit(
    response: OffsetCommitResponse,
    group_id: str,
    lose: Callable[[ErrorCode], bool],
    renewed: Callable[[ErrorCode], bool] = lambda code: False,
) -> CoordinatorTrouble | None:
    """None if all is committed. Raises CommitFailed, RebalanceInProgress or what the broker refused.

    `lose` is told that the membership is lost, and answers whether a rebalance is going on already,
    in which case polling puts it right (K-38). `renewed` answers whether the member has a newer
    epoch by now than the refused one, with which to try again (KIP-848).
    """
    worst: CoordinatorTrouble | None = None
    for topic in response.topics:
        for answer in topic.partitions:
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                continue
            if code in COMMIT_MEMBER_LOST and renewed(code):
                worst = worst or CoordinatorTrouble.WAIT
                continue
            about = f"group {group_id!r}, {describe(TopicPartition(topic.name, answer.partition_index))}"
            if code is ErrorCode.REBALANCE_IN_PROGRESS or (
                code in COMMIT_MEMBER_LOST and lose(code)
            ):
                raise RebalanceInProgress(
                    f"{about}: not committed, the group is being rebalanced; poll, then commit "
                    f"what is still assigned",
                    code=code,
                )
            if code in COMMIT_MEMBER_LOST:
                raise CommitFailed(
                    f"{about}: not committed, the group has given the partitions to others "
                    f"({code.name}); poll more often, raise max_poll_interval_ms or lower "
                    f"max_poll_records",
                    code=code,
                )
            if code in (
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.REQUEST_TIMED_OUT,
            ):
                worst = CoordinatorTrouble.REDISCOVER
            elif code.retriable:
                worst = worst or CoordinatorTrouble.WAIT
            else:
                raise error_for(code, about=about)
    return worst
