"""The requests about the committed offsets of a group, OffsetFetch and OffsetCommit, and the
readers of their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from odradek_client.consumer.errors import CommitFailed, describe, partition_error
from odradek_client.errors import RebalanceInProgress, error_for
from odradek_client.structs import (
    OffsetAndMetadata,
    TopicPartition,
    group_by_topic,
)
from odradek_protocol.errors import ErrorCode
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

#: Later versions are not needed: OffsetFetch 8 adds requests for many groups, OffsetCommit 10 adds
#: topic ids.
OFFSET_FETCH_NEWEST = 7
OFFSET_COMMIT_NEWEST = 9


class CoordinatorRetry(Enum):
    """The step between an error and the repetition of the request."""

    BACK_OFF = "back off"
    REDISCOVER = "find the coordinator again"


_OTHER_COORDINATOR = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def _retry_for(code: ErrorCode, about: str) -> CoordinatorRetry | None:
    """The step before a retry; None if there is no error. Raises errors that a retry does not
    resolve."""
    if code is ErrorCode.NONE:
        return None
    if code in _OTHER_COORDINATOR:
        return CoordinatorRetry.REDISCOVER
    if code.retriable:
        return CoordinatorRetry.BACK_OFF
    raise error_for(code, about=about)


# --- OffsetFetch ----------------------------------------------------------------------------------


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], *, require_stable: bool
) -> OffsetFetchRequest:
    """The OffsetFetch. Only stable offsets are requested, if the broker supports that (K-25)."""
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
) -> dict[TopicPartition, OffsetAndMetadata | None] | CoordinatorRetry:
    """The committed offset of each partition; None for a partition without a committed offset.
    Raises errors that a retry does not resolve."""
    about = f"group {group_id!r}"
    retry = _retry_for(ErrorCode.of(response.error_code), about)
    if retry is not None:
        return retry
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            code = ErrorCode.of(answer.error_code)
            if code in (ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return CoordinatorRetry.BACK_OFF
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise partition_error(code, partition)
            # Version 1 has no top-level code, and has the group's code for each partition.
            retry = _retry_for(code, about)
            if retry is not None:
                return retry
            found[partition] = (
                OffsetAndMetadata(
                    answer.committed_offset, answer.metadata or "", answer.committed_leader_epoch
                )
                if answer.committed_offset >= 0
                else None
            )
    return found


# --- OffsetCommit ---------------------------------------------------------------------------------


def offset_commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    generation: int,
    member_id: str,
    group_instance_id: str | None,
) -> OffsetCommitRequest:
    """An OffsetCommit request. Generation -1 and no member id mean that the consumer is not a
    member of any generation (O-04)."""
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


#: The error codes of a commit after which the consumer is no longer a member of the group (K-38).
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
    on_member_lost: Callable[[ErrorCode], bool],
    may_retry: Callable[[ErrorCode], bool] = lambda code: False,
) -> CoordinatorRetry | None:
    """The step before a retry; None if all offsets are committed. Raises CommitFailed,
    RebalanceInProgress or the broker's refusal.

    `on_member_lost` returns true if a rebalance has begun already, so that the next poll rejoins
    (K-38). `may_retry` returns true if the member has a newer epoch than the refused request had,
    so that the commit may be sent again (KIP-848).
    """
    worst: CoordinatorRetry | None = None
    for topic in response.topics:
        for answer in topic.partitions:
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                continue
            if code in COMMIT_MEMBER_LOST and may_retry(code):
                worst = worst or CoordinatorRetry.BACK_OFF
                continue
            about = f"group {group_id!r}, {describe(TopicPartition(topic.name, answer.partition_index))}"
            if code is ErrorCode.REBALANCE_IN_PROGRESS or (
                code in COMMIT_MEMBER_LOST and on_member_lost(code)
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
            if _retry_for(code, about) is CoordinatorRetry.REDISCOVER:
                worst = CoordinatorRetry.REDISCOVER
            else:
                worst = worst or CoordinatorRetry.BACK_OFF
    return worst
