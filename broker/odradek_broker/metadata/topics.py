"""Changes of topics by CreateTopics, CreatePartitions and DeleteTopics, and the checks that these
APIs share.

An error of one topic does not affect the other topics. Error codes and their order are those of
Kafka's controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from odradek_broker.config.types import BrokerConfigError
from odradek_broker.metadata.cluster import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    ClusterMetadata,
    Topic,
    metric_name,
)
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.new_partitions import new_partitions
from odradek_broker.quotas.managers import TakeQuota, unlimited
from odradek_broker.topic_partition import TOPIC_NAME_MAX, topic_name_problem
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.stored.cluster_metadata import MetadataRecord, RemoveTopicRecord

#: Kafka's limit of partitions in one request: creating more partitions would delay all other
#: requests for too long.
PARTITIONS_PER_REQUEST_MAX = 10_000


@dataclass
class TopicResult:
    """The answer for one topic; `message` may be set even without an error."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def refused(cls, name: str, error: AdminError) -> TopicResult:
        return cls(name, error.error, error.message)


def check_topic_name(name: str) -> None:
    """Raise AdminError for an illegal topic name."""
    problem = topic_name_problem(name)
    if problem:
        shown = name if len(name) <= TOPIC_NAME_MAX else name[:TOPIC_NAME_MAX] + "..."
        raise AdminError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {shown!r} is illegal: {problem}"
        )


def check_assignment(metadata: ClusterMetadata, brokers: Sequence[int]) -> None:
    """Raise AdminError unless the replicas of a partition can be on these brokers."""
    problem = None
    unknown = [broker for broker in brokers if broker != metadata.node_id]
    if not brokers:
        problem = "The manual partition assignment includes an empty replica list."
    elif unknown:
        problem = (
            f"The manual partition assignment includes broker {unknown[0]},"
            " but no such broker is registered."
        )
    elif len(brokers) > 1:
        problem = "The manual partition assignment includes the same broker twice."
    if problem:
        raise AdminError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def too_many_partitions() -> AdminError:
    """The refusal of a request with more than PARTITIONS_PER_REQUEST_MAX."""
    return AdminError(
        ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
    )


def check_quota(take: TakeQuota, partitions: int) -> None:
    """Count new partitions against a quota. Raises AdminError if the quota is exhausted."""
    if not take(partitions):
        raise AdminError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            "The quota of created and deleted partitions (controller_mutation_rate) is used up.",
        )


class CreatedSoFar:
    """The partitions that one request has created so far, for the limits of the broker and of one
    request. If the request is carried out in parts, others create partitions between the parts."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._partitions = 0
        #: Partitions that are not in the metadata yet.
        self._unrecorded = 0
        #: The number of created topics by their names in metrics.
        self.metric_names: Counter[str] = Counter()

    def check(self, count: int) -> None:
        """Raise AdminError if `count` more partitions would exceed a limit."""
        if self._partitions + count > PARTITIONS_PER_REQUEST_MAX:
            raise too_many_partitions()
        most = self._metadata.config.max_partitions
        if self._metadata.total_partitions + self._unrecorded + count > most:
            raise AdminError(
                ErrorCode.POLICY_VIOLATION,
                f"{count} more partitions would be more than max.partitions ({most}) allows.",
            )

    def add(self, count: int) -> None:
        """Count partitions that will be recorded."""
        self._partitions += count
        self._unrecorded += count

    def recorded(self) -> None:
        """To be called when all partitions so far are in the metadata."""
        self._unrecorded = 0


USE_DEFAULT = -1


@dataclass(frozen=True)
class RequestedTopic:
    """A requested topic. -1 as number of partitions or replication factor means the broker's
    default.

    `assignments`: node ids by partition, given instead of the two numbers.
    """

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


def create_topics(
    metadata: ClusterMetadata,
    wanted: Sequence[RequestedTopic],
    quota: TakeQuota = unlimited,
    created: CreatedSoFar | None = None,
) -> tuple[list[MetadataRecord], list[TopicResult]]:
    """The records of the valid topics, and one answer for each topic name. `quota`: the client's
    remaining quota. `created`: what other parts of the request have created, if these are not all
    of its topics."""
    times = Counter(topic.name for topic in wanted)
    created = created or CreatedSoFar(metadata)
    records: list[MetadataRecord] = []
    results = {}
    for topic in wanted:
        if topic.name in results:
            continue
        try:
            if times[topic.name] > 1:
                raise AdminError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_new_name(metadata, topic.name, created)
            made, result = _create_one(metadata, topic, created)
            check_quota(quota, result.num_partitions)
        except AdminError as error:
            results[topic.name] = TopicResult.refused(topic.name, error)
            continue
        records += made
        created.add(result.num_partitions)
        created.metric_names[metric_name(topic.name)] += 1
        results[topic.name] = result
    return records, list(results.values())


def _check_new_name(metadata: ClusterMetadata, name: str, created: CreatedSoFar) -> None:
    if name in metadata.topics:
        raise AdminError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if name == METADATA_TOPIC or name in INTERNAL_TOPICS:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    check_topic_name(name)
    # If the names of two new topics in one request differ only in '.' and '_', Kafka creates both.
    other = metadata.topic_with_metric_name_of(name, created.metric_names[metric_name(name)])
    if other is not None:
        raise AdminError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def partitions_asked(metadata: ClusterMetadata, topic: RequestedTopic) -> int:
    """The requested number of partitions, valid or not."""
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == USE_DEFAULT:
        return metadata.config.num_partitions
    return max(0, topic.num_partitions)


def _create_one(
    metadata: ClusterMetadata, topic: RequestedTopic, created: CreatedSoFar
) -> tuple[list[MetadataRecord], TopicResult]:
    configs = _check_configs(metadata, topic.configs)
    message = None
    if topic.assignments:
        assignments = _manual_assignments(metadata, topic)
        created.check(len(assignments))
    else:
        count, factor = _numbers(metadata, topic)
        if factor > 1:
            message = _check_replication(metadata, factor)
        created.check(count)
        own = [metadata.node_id]
        assignments = dict.fromkeys(range(count), own)
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
    except BrokerConfigError as error:
        raise AdminError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _numbers(metadata: ClusterMetadata, topic: RequestedTopic) -> tuple[int, int]:
    """(partitions, replication factor), with the broker's defaults in place of -1, whatever the
    version of the request."""
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
    """The message about an accepted replication factor above 1. Raises AdminError if the factor is
    refused."""
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


def _manual_assignments(metadata: ClusterMetadata, topic: RequestedTopic) -> dict[int, list[int]]:
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


@dataclass(frozen=True)
class NewPartitions:
    """A topic and its new number of partitions.

    `assignments`: node ids of each new partition; None if the broker may choose.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def create_partitions(
    metadata: ClusterMetadata,
    wanted: Sequence[NewPartitions],
    quota: TakeQuota = unlimited,
    created: CreatedSoFar | None = None,
) -> tuple[list[MetadataRecord], list[TopicResult]]:
    """The records of the new partitions, and one answer per name. `quota` and `created`: as for
    `create_topics`."""
    times = Counter(more.name for more in wanted)
    created = created or CreatedSoFar(metadata)
    records: list[MetadataRecord] = []
    results = {}
    for more in wanted:
        if more.name in results:
            continue
        try:
            if times[more.name] > 1:
                raise AdminError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            made, added = _add_partitions(metadata, more, created)
            check_quota(quota, added)
        except AdminError as error:
            results[more.name] = TopicResult.refused(more.name, error)
            continue
        records += made
        created.add(added)
        results[more.name] = TopicResult(more.name, num_partitions=more.count)
    return records, list(results.values())


def _add_partitions(
    metadata: ClusterMetadata, more: NewPartitions, created: CreatedSoFar
) -> tuple[list[MetadataRecord], int]:
    """The records of the new partitions, and their number."""
    topic = metadata.topics.get(more.name)
    if topic is None:
        raise AdminError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    if topic.is_internal:
        # The number of partitions of an internal topic determines the partition that stores a key,
        # so the number must never change.
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
    created.check(added)
    if more.assignments is not None:
        if len(more.assignments) != added:
            raise AdminError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only"
                f" {len(more.assignments)} assignment(s) were specified.",
            )
        for brokers in more.assignments:
            check_assignment(metadata, brokers)
    own = [metadata.node_id]
    assignments = dict.fromkeys(range(present, more.count), own)
    return new_partitions(topic.topic_id, assignments), added


@dataclass(frozen=True)
class TopicRef:
    """A topic by name, or by id if the name is None."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID


@dataclass
class DeleteResult:
    """The answer for one topic; `name` is None if only the topic's id is known."""

    name: str | None
    topic_id: bytes
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def delete_topics(
    metadata: ClusterMetadata, wanted: Sequence[TopicRef], quota: TakeQuota = unlimited
) -> tuple[list[MetadataRecord], list[DeleteResult]]:
    """The records that remove topics, and an answer for each topic. `quota`: the client's remaining
    quota.

    A topic that is named more than once is not deleted, and gets one refusal.
    """
    once, results = _named_once(metadata, wanted)
    records: list[MetadataRecord] = []
    for ref in once:
        try:
            topic = _find(metadata, ref)
        except AdminError as error:
            found = ref.name if ref.name is not None else metadata.topic_name(ref.topic_id)
            results.append(DeleteResult(found, ref.topic_id, error.error, error.message))
            continue
        result = DeleteResult(topic.name, topic.topic_id)
        results.append(result)
        try:
            check_quota(quota, len(topic.partitions))
        except AdminError as error:
            result.error, result.message = error.error, error.message
            continue
        records.append(RemoveTopicRecord(topic_id=topic.topic_id))
    return records, results


def _named_once(
    metadata: ClusterMetadata, wanted: Sequence[TopicRef]
) -> tuple[list[TopicRef], list[DeleteResult]]:
    """The references to topics that the request names once, and the refusals of topics that it
    names more than once."""
    times = Counter(wanted)
    once = [ref for ref, count in times.items() if count == 1]
    ids = {ref.topic_id for ref in wanted if ref.name is None}
    # Topics that the request names both by name and by id.
    doubles: dict[bytes, str] = {}
    for ref in once:
        if ref.name is not None and ref.topic_id == ZERO_UUID:
            topic_id = metadata.topic_id(ref.name)
            if topic_id in ids and topic_id != ZERO_UUID:
                doubles[topic_id] = ref.name
    refused = [
        DeleteResult(
            ref.name,
            ref.topic_id,
            ErrorCode.INVALID_REQUEST,
            "Duplicate topic id." if ref.name is None else "Duplicate topic name.",
        )
        for ref, count in times.items()
        if count > 1
    ]
    refused += [
        DeleteResult(
            name,
            topic_id,
            ErrorCode.INVALID_REQUEST,
            "The provided topic name maps to an ID that was already supplied.",
        )
        for topic_id, name in doubles.items()
    ]
    both = {TopicRef(name) for name in doubles.values()}
    both.update(TopicRef(None, topic_id) for topic_id in doubles)
    return [ref for ref in once if ref not in both], refused


def _find(metadata: ClusterMetadata, ref: TopicRef) -> Topic:
    """The topic to delete. Raises AdminError if it may not be deleted."""
    if ref.name is not None and ref.topic_id != ZERO_UUID:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if ref.name is None and ref.topic_id == ZERO_UUID:
        raise AdminError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    name = ref.name if ref.name is not None else metadata.topic_name(ref.topic_id)
    topic = None if name is None else metadata.topics.get(name)
    if topic is None:
        if ref.name is None:
            raise AdminError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        raise AdminError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    if topic.is_internal:
        raise AdminError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic.name} is the broker's own topic and cannot be deleted.",
        )
    return topic
