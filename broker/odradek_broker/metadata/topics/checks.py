"""Results of requests on topics, and the checks that they share: names, assignments, limits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.quotas.managers import TakeQuota
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID

_NAME_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
#: Kafka's limit for one request: more would hold up everybody else for too long.
PARTITIONS_PER_REQUEST_MAX = 10_000


@dataclass
class TopicResult:
    """The answer for one topic; there may be a `message` without an error."""

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
    """AdminError for an illegal topic name."""
    problem = None
    if not name:
        problem = "the name is empty"
    elif name in (".", ".."):
        problem = "it cannot be '.' or '..'"
    elif len(name) > _NAME_MAX:
        problem = f"it is longer than {_NAME_MAX} characters"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = "only ASCII letters, digits, '.', '_' and '-' may be used"
    if problem:
        shown = name if len(name) <= _NAME_MAX else name[:_NAME_MAX] + "..."
        raise AdminError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {shown!r} is illegal: {problem}"
        )


def check_assignment(metadata: ClusterMetadata, brokers: Sequence[int]) -> None:
    """AdminError unless a partition may lie on these brokers."""
    problem = None
    strangers = [broker for broker in brokers if broker != metadata.node_id]
    if not brokers:
        problem = "The manual partition assignment includes an empty replica list."
    elif strangers:
        problem = (
            f"The manual partition assignment includes broker {strangers[0]},"
            " but no such broker is registered."
        )
    elif len(brokers) > 1:
        problem = "The manual partition assignment includes the same broker twice."
    if problem:
        raise AdminError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def too_many_partitions() -> AdminError:
    """The refusal of a request that is over PARTITIONS_PER_REQUEST_MAX."""
    return AdminError(
        ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
    )


def check_quota(take: TakeQuota, partitions: int) -> None:
    """Take partitions from a quota. AdminError if it is used up."""
    if not take(partitions):
        raise AdminError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            "The quota of created and deleted partitions (controller_mutation_rate) is used up.",
        )


class PartitionLimit:
    """Counts partitions against the limits of the broker and of one request."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._most = metadata.config.max_partitions
        self._on_broker = self._most - metadata.total_partitions
        self._in_request = PARTITIONS_PER_REQUEST_MAX

    def check(self, count: int) -> None:
        """AdminError if so many more are too many."""
        if count > self._in_request:
            raise too_many_partitions()
        if count > self._on_broker:
            raise AdminError(
                ErrorCode.POLICY_VIOLATION,
                f"{count} more partitions would be more than max.partitions ({self._most}) allows.",
            )

    def take(self, count: int) -> None:
        self._on_broker -= count
        self._in_request -= count
