"""The topics that a CreateTopics request creates.

An error of one topic leaves the others alone. Error codes and their order are those of Kafka's
controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek_broker.config.types import ConfigError
from odradek_broker.metadata.cluster import INTERNAL_TOPICS, METADATA_TOPIC, ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics.checks import (
    PARTITIONS_PER_REQUEST_MAX,
    PartitionLimit,
    TopicResult,
    check_assignment,
    check_quota,
    check_topic_name,
    too_many_partitions,
)
from odradek_broker.quotas.managers import TakeQuota, unlimited
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import MetadataRecord

USE_DEFAULT = -1


@dataclass(frozen=True)
class NewTopic:
    """A requested topic. -1 stands for the broker's default.

    `assignments`: node ids by partition, given instead of the two numbers.
    """

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


def create_topics(
    metadata: ClusterMetadata, wanted: Sequence[NewTopic], quota: TakeQuota = unlimited
) -> tuple[list[MetadataRecord], list[TopicResult]]:
    """The records of the valid topics, and one answer per name. `quota`: what the client has left.

    With more partitions than one request may bring, all of its topics are refused, as in Kafka.
    """
    times = Counter(topic.name for topic in wanted)
    if sum(_count_asked(metadata, topic) for topic in wanted) > PARTITIONS_PER_REQUEST_MAX:
        return [], [TopicResult.refused(name, too_many_partitions()) for name in times]
    # '.' and '_' are one character in the names of metrics, so a topic that differs only in them
    # from one that exists is refused; of two in one request Kafka creates both.
    taken = {name.replace(".", "_"): name for name in metadata.topics}
    limit = PartitionLimit(metadata)
    records: list[MetadataRecord] = []
    results = {}
    for topic in wanted:
        if topic.name in results:
            continue
        try:
            if times[topic.name] > 1:
                raise AdminError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_new_name(metadata, topic.name, taken)
            made, result = _create_one(metadata, topic, limit)
            check_quota(quota, result.num_partitions)
        except AdminError as error:
            results[topic.name] = TopicResult.refused(topic.name, error)
            continue
        records += made
        limit.take(result.num_partitions)
        results[topic.name] = result
    return records, list(results.values())


def _check_new_name(metadata: ClusterMetadata, name: str, taken: Mapping[str, str]) -> None:
    if name in metadata.topics:
        raise AdminError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if name == METADATA_TOPIC or name in INTERNAL_TOPICS:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    check_topic_name(name)
    other = taken.get(name.replace(".", "_"))
    if other is not None:
        raise AdminError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _count_asked(metadata: ClusterMetadata, topic: NewTopic) -> int:
    """The requested number of partitions, valid or not."""
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == USE_DEFAULT:
        return metadata.config.num_partitions
    return max(0, topic.num_partitions)


def _create_one(
    metadata: ClusterMetadata, topic: NewTopic, limit: PartitionLimit
) -> tuple[list[MetadataRecord], TopicResult]:
    configs = _check_configs(metadata, topic.configs)
    message = None
    if topic.assignments:
        assignments = _manual_assignments(metadata, topic)
        limit.check(len(assignments))
    else:
        count, factor = _numbers(metadata, topic)
        if factor > 1:
            message = _check_replication(metadata, factor)
        limit.check(count)
        assignments = {index: [metadata.node_id] for index in range(count)}
    records = metadata.topic_records(topic.name, assignments, configs)
    result = TopicResult(
        topic.name,
        message=message,
        topic_id=records[0].topic_id,  # type: ignore[union-attr]
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=configs,
    )
    return records, result


def _check_configs(metadata: ClusterMetadata, configs: Mapping[str, str | None]) -> dict[str, str]:
    try:
        return metadata.topic_configs.validate(configs)
    except ConfigError as error:
        raise AdminError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _numbers(metadata: ClusterMetadata, topic: NewTopic) -> tuple[int, int]:
    """(partitions, replication factor) with defaults filled in, in every version."""
    count, factor = topic.num_partitions, topic.replication_factor
    if factor == 0 or factor < USE_DEFAULT:
        raise AdminError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count == 0 or count < USE_DEFAULT:
        raise AdminError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    config = metadata.config
    return (
        config.num_partitions if count == USE_DEFAULT else count,
        config.default_replication_factor if factor == USE_DEFAULT else factor,
    )


def _check_replication(metadata: ClusterMetadata, factor: int) -> str:
    """The message about a factor above 1 if it is accepted; AdminError if it is not."""
    if metadata.config.replication_factor_policy == "accept":
        return (
            f"replication factor {factor} was asked for; one copy is kept, because there is one"
            " broker (replication.factor.policy=accept)"
        )
    raise AdminError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {factor} time(s): The target replication factor of"
        f" {factor} cannot be reached because only 1 broker(s) are registered."
        " (replication.factor.policy=accept keeps one copy instead.)",
    )


def _manual_assignments(metadata: ClusterMetadata, topic: NewTopic) -> dict[int, list[int]]:
    for number, name in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if number != USE_DEFAULT:
            raise AdminError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise AdminError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    for brokers in topic.assignments.values():
        check_assignment(metadata, brokers)
    return {index: list(topic.assignments[index]) for index in sorted(topic.assignments)}
