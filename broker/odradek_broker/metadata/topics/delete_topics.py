"""The topics that a DeleteTopics request removes.

An error of one topic leaves the others alone. Error codes and their order are those of Kafka's
controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from odradek_broker.metadata.cluster import ClusterMetadata, Topic
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics.checks import check_quota
from odradek_broker.quotas.managers import TakeQuota, unlimited
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.stored.cluster_metadata import MetadataRecord, RemoveTopicRecord


@dataclass(frozen=True)
class TopicRef:
    """A topic by name, or by id where the name is None."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID


@dataclass
class DeleteResult:
    """The answer for one topic; `name` is None where it is not known."""

    name: str | None
    topic_id: bytes
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def delete_topics(
    metadata: ClusterMetadata, wanted: Sequence[TopicRef], quota: TakeQuota = unlimited
) -> tuple[list[MetadataRecord], list[DeleteResult]]:
    """The records that remove topics, and an answer for each. `quota`: what the client has left.

    One that is given more than once stays, and is refused once.
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
    """The references to topics that are named once, and the refusals of all others."""
    times = Counter(wanted)
    once = [ref for ref, count in times.items() if count == 1]
    ids = {ref.topic_id for ref in wanted if ref.name is None}
    # Given by their name and by their id too.
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
    """The topic that may be deleted."""
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
