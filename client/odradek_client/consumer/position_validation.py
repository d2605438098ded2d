"""Validation of positions by OffsetForLeaderEpoch after another leader was elected (K-26, KIP-320).

The leader returns the end offset of the epoch of the last record that was read. If that end is
before the position, the log was truncated below the position. Other records may now have the
offsets of records that were read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_client.consumer.errors import (
    RETRY,
    RETRY_WITH_NEW_METADATA,
    LogTruncated,
    partition_error,
)
from odradek_client.consumer.subscription_state import FetchState, SubscriptionState
from odradek_client.network.cluster import ClusterView
from odradek_client.structs import TopicPartition, group_by_topic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_UNDEFINED = -1


@dataclass(frozen=True, slots=True)
class ValidatedPosition:
    """A position under validation: offset and leader epoch at the time of the request.
    `checked_epoch`: the present epoch of the leader, in which the position will be valid."""

    offset: int
    leader_epoch: int
    checked_epoch: int


@dataclass(slots=True)
class ValidationPlan:
    """An OffsetForLeaderEpoch request to a node, and the positions that it checks."""

    request: OffsetForLeaderEpochRequest
    asked: dict[TopicPartition, ValidatedPosition] = field(default_factory=dict)


def plan_validation(
    partitions: Iterable[TopicPartition], subscription: SubscriptionState, cluster: ClusterView
) -> tuple[dict[int, ValidationPlan], set[TopicPartition]]:
    """(plans by node, partitions without a known leader)."""
    plans: dict[int, ValidationPlan] = {}
    leaderless = set()
    for topic, some in group_by_topic(partitions).items():
        by_node: dict[int, OffsetForLeaderTopic] = {}
        for partition in some:
            node_id, state = cluster.leader_of(*partition), subscription.get(partition)
            if state is None or state.position is None:
                continue
            if node_id is None:
                leaderless.add(partition)
                continue
            epoch = cluster.leader_epoch_of(*partition)
            plan = plans.setdefault(
                node_id, ValidationPlan(OffsetForLeaderEpochRequest(replica_id=-1, topics=[]))
            )
            if node_id not in by_node:
                by_node[node_id] = OffsetForLeaderTopic(topic=topic, partitions=[])
                plan.request.topics.append(by_node[node_id])
            by_node[node_id].partitions.append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=epoch,
                    leader_epoch=state.leader_epoch,
                )
            )
            plan.asked[partition] = ValidatedPosition(state.position, state.leader_epoch, epoch)
    return plans, leaderless


@dataclass(slots=True)
class ValidationResult:
    """The result of a validation. `retry`: the partitions to check again, with new metadata if
    `metadata_wanted`. `failure`: the error to raise after all partitions have been processed."""

    retry: set[TopicPartition] = field(default_factory=set)
    metadata_wanted: bool = False
    failure: Exception | None = None


def read_validation(
    plan: ValidationPlan,
    response: OffsetForLeaderEpochResponse,
    subscription: SubscriptionState,
    reset_timestamp: int | None,
) -> ValidationResult:
    """Process an answer. Partitions with a valid position are fetched again. An invalid position
    moves back to the divergent offset, or is reset if that offset is unknown; if `reset_timestamp`
    is None, an invalid position is a failure instead."""
    result = ValidationResult()
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.topic, answer.partition)
            asked, state = plan.asked.get(partition), subscription.get(partition)
            if (
                asked is None
                or state is None
                or state.fetch_state is not FetchState.AWAIT_VALIDATION
            ):
                continue
            if (state.position, state.leader_epoch) != (asked.offset, asked.leader_epoch):
                continue  # a seek in the meantime
            code = ErrorCode.of(answer.error_code)
            if code in RETRY_WITH_NEW_METADATA or code in RETRY:
                result.retry.add(partition)
                result.metadata_wanted = True
            elif code is not ErrorCode.NONE:
                result.failure = partition_error(code, partition)
            elif _UNDEFINED in (answer.end_offset, answer.leader_epoch):
                # The leader no longer has this epoch, so the divergent offset is unknown.
                if reset_timestamp is None:
                    result.failure = LogTruncated(partition, asked.offset, None)
                else:
                    subscription.reset(partition, reset_timestamp)
            elif answer.end_offset < asked.offset:
                if reset_timestamp is None:
                    result.failure = LogTruncated(partition, asked.offset, answer.end_offset)
                else:
                    subscription.seek(partition, answer.end_offset, answer.leader_epoch)
                    state.checked_epoch = asked.checked_epoch
            else:
                subscription.validated(partition, asked.checked_epoch)
    return result
