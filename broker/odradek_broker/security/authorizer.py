"""Authorization (rules A-01 to A-20): the protocol of an authorizer, and the one that allows everything.

Handlers ask before they look a resource up, so that its existence does not leak (A-20). What
implements `Authorizer` knows principals, patterns and implied rights; handlers name only the right
that an operation needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol

from odradek_broker.request import RequestContext
from odradek_protocol.errors import ErrorCode


class ResourceType(Enum):
    """Kafka's ResourceType."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"


class Operation(Enum):
    """Kafka's AclOperation."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"
    TWO_PHASE_COMMIT = "TwoPhaseCommit"


class Resource(NamedTuple):
    """A resource; the cluster has the name that Kafka gives it."""

    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


def topic(name: str) -> Resource:
    """A topic."""
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """A consumer group."""
    return Resource(ResourceType.GROUP, name)


def transactional_id(name: str) -> Resource:
    """A transactional id."""
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


class Authorizer(Protocol):
    """Decides on requests. It is asked once per right and request, and must answer at once."""

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        """Whether the sender of this request may do the operation."""
        ...

    def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        """Whether the sender may do it on at least one resource of this type (A-04)."""
        ...


class AllowEverything:
    """The authorizer where none is configured (A-19)."""

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        """Always true."""
        return True

    def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        """Always true."""
        return True


ALLOW_EVERYTHING = AllowEverything()


# --- Questions of several handlers --------------------------------------------------------------

_NO_TOPICS: frozenset[str] = frozenset()


def denied_topics(
    authorizer: Authorizer, context: RequestContext, operation: Operation, names: Iterable[str]
) -> frozenset[str]:
    """The topics that this client may not do the operation on, each asked for once.

    `names` is not even looked at where everything is allowed: requests with many partitions, Fetch
    above all, pay nothing for an authorizer that is not there.
    """
    if authorizer is ALLOW_EVERYTHING:
        return _NO_TOPICS
    return frozenset(
        name
        for name in dict.fromkeys(names)
        if not authorizer.allows(context, operation, topic(name))
    )


_CONFIGS_DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def may_use_configs(
    authorizer: Authorizer, context: RequestContext, operation: Operation, resource: Resource
) -> ErrorCode:
    """The error for a client without DESCRIBE_CONFIGS or ALTER_CONFIGS on the resource (A-18)."""
    if authorizer.allows(context, operation, resource):
        return ErrorCode.NONE
    return _CONFIGS_DENIED[resource.type]


#: Operations on each kind of resource, with Kafka's AclOperation codes (KIP-430).
_OPERATION_CODES: dict[ResourceType, dict[Operation, int]] = {
    ResourceType.TOPIC: {
        Operation.READ: 3,
        Operation.WRITE: 4,
        Operation.CREATE: 5,
        Operation.DELETE: 6,
        Operation.ALTER: 7,
        Operation.DESCRIBE: 8,
        Operation.DESCRIBE_CONFIGS: 10,
        Operation.ALTER_CONFIGS: 11,
    },
    ResourceType.GROUP: {
        Operation.READ: 3,
        Operation.DELETE: 6,
        Operation.DESCRIBE: 8,
        Operation.DESCRIBE_CONFIGS: 10,
        Operation.ALTER_CONFIGS: 11,
    },
    ResourceType.CLUSTER: {
        Operation.CREATE: 5,
        Operation.ALTER: 7,
        Operation.DESCRIBE: 8,
        Operation.CLUSTER_ACTION: 9,
        Operation.DESCRIBE_CONFIGS: 10,
        Operation.ALTER_CONFIGS: 11,
        Operation.IDEMPOTENT_WRITE: 12,
    },
}
#: The answer to a client that did not ask for its operations.
UNKNOWN_OPERATIONS = -(2**31)


def authorized_operations(
    authorizer: Authorizer, context: RequestContext, resource: Resource
) -> int:
    """This client's operations on a topic, a group or the cluster: bit n for Kafka's operation n."""
    return sum(
        1 << code
        for operation, code in _OPERATION_CODES[resource.type].items()
        if authorizer.allows(context, operation, resource)
    )


def cluster_operations(authorizer: Authorizer, context: RequestContext) -> int:
    """`authorized_operations` on the cluster; none for a client that may not describe it."""
    if not authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return 0
    return authorized_operations(authorizer, context, CLUSTER)


def may_create_topic(authorizer: Authorizer, context: RequestContext, name: str) -> bool:
    """CREATE on the cluster, or on a topic of this name (A-11, A-17)."""
    return authorizer.allows(context, Operation.CREATE, CLUSTER) or authorizer.allows(
        context, Operation.CREATE, topic(name)
    )


def may_fetch_as(authorizer: Authorizer, context: RequestContext, replica_id: int) -> bool:
    """CLUSTER_ACTION for fetches of followers; consumers have replica id -1 (A-09)."""
    return replica_id < 0 or authorizer.allows(context, Operation.CLUSTER_ACTION, CLUSTER)


def may_write_idempotently(authorizer: Authorizer, context: RequestContext) -> bool:
    """IDEMPOTENT_WRITE, or WRITE on any topic: for a producer id without a transactional id (A-04)."""
    return authorizer.allows(context, Operation.IDEMPOTENT_WRITE, CLUSTER) or authorizer.allows_any(
        context, Operation.WRITE, ResourceType.TOPIC
    )


def may_write_markers(authorizer: Authorizer, context: RequestContext) -> bool:
    """ALTER, for tools that end a hanging transaction, or CLUSTER_ACTION, for brokers (A-08)."""
    return authorizer.allows(context, Operation.ALTER, CLUSTER) or authorizer.allows(
        context, Operation.CLUSTER_ACTION, CLUSTER
    )
