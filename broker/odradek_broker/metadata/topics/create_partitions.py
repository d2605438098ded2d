"""The partitions that a CreatePartitions request adds.

An error of one topic leaves the others alone. Error codes and their order are those of Kafka's
controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics.checks import (
    PartitionLimit,
    TopicResult,
    check_assignment,
    check_quota,
)
from odradek_broker.quotas.managers import TakeQuota, unlimited
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import MetadataRecord


@dataclass(frozen=True)
class NewPartitions:
    """A topic and its new number of partitions.

    `assignments`: node ids of each new partition; None for any.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def create_partitions(
    metadata: ClusterMetadata, wanted: Sequence[NewPartitions], quota: TakeQuota = unlimited
) -> tuple[list[MetadataRecord], list[TopicResult]]:
    """The records of the new partitions, and an answer for each topic, once per name.

    `quota`: what the client has left.
    """
    times = Counter(more.name for more in wanted)
    limit = PartitionLimit(metadata)
    records: list[MetadataRecord] = []
    results = {}
    for more in wanted:
        if more.name in results:
            continue
        try:
            if times[more.name] > 1:
                raise AdminError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            made = _add_partitions(metadata, more, limit)
            check_quota(quota, len(made))
        except AdminError as error:
            results[more.name] = TopicResult.refused(more.name, error)
            continue
        records += made
        limit.take(len(made))
        results[more.name] = TopicResult(more.name, num_partitions=more.count)
    return records, list(results.values())


def _add_partitions(
    metadata: ClusterMetadata, more: NewPartitions, limit: PartitionLimit
) -> list[MetadataRecord]:
    topic = metadata.topics.get(more.name)
    if topic is None:
        raise AdminError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    if topic.is_internal:
        # The coordinator of a key is found by the number of partitions; it must never change.
        raise AdminError(
            ErrorCode.INVALID_REQUEST,
            f"The number of partitions of the internal topic {more.name} cannot be changed.",
        )
    present = len(topic.partitions)
    if more.count == present:
        raise AdminError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if more.count < present:
        raise AdminError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {more.name} currently has {present} partition(s);"
            f" {more.count} would not be an increase.",
        )
    added = more.count - present
    limit.check(added)
    if more.assignments is not None:
        if len(more.assignments) != added:
            raise AdminError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only"
                f" {len(more.assignments)} assignment(s) were specified.",
            )
        for brokers in more.assignments:
            check_assignment(metadata, brokers)
    return metadata.partition_records(
        topic.topic_id, {index: [metadata.node_id] for index in range(present, more.count)}
    )
