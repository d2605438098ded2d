"""Who may do what (rules A-01 to A-20): the seam, and the broker's own answer, which is "everyone".

Handlers ask before they look whether a thing exists, so that its name does not leak (A-20). What
implements `Authorizer` knows principals, patterns and implied rights; handlers name only the right
that an operation needs.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from odradek_broker.context import RequestContext


class ResourceType(Enum):
    """Kinds of things that rights are given on, by Kafka's names."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"


class Operation(Enum):
    """What is done to a resource, by Kafka's names."""

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
    """One thing. The cluster is named as Kafka names it."""

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
    """Asked once per right and request; it must answer at once."""

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        """May whoever sent this request do that?"""
        ...

    def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        """May they do it to at least one resource of this type, whichever it is (A-04)?"""
        ...


class AllowEverything:
    """No authorizer is configured (A-19)."""

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        """Yes."""
        return True

    def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        """Yes."""
        return True


ALLOW_EVERYTHING = AllowEverything()


#: Kafka's AclOperation codes of what may be done to a group, as bits of `authorized_operations`.
_GROUP_OPERATIONS = {
    Operation.READ: 3,
    Operation.DELETE: 6,
    Operation.DESCRIBE: 8,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
}


def group_operations(authorizer: Authorizer, context: RequestContext, name: str) -> int:
    """What this client may do to a group: one bit for each operation (KIP-430)."""
    return sum(
        1 << code
        for operation, code in _GROUP_OPERATIONS.items()
        if authorizer.allows(context, operation, group(name))
    )


def may_write_idempotently(authorizer: Authorizer, context: RequestContext) -> bool:
    """A-04: the right to a producer id without a transactional id."""
    return authorizer.allows(context, Operation.IDEMPOTENT_WRITE, CLUSTER) or authorizer.allows_any(
        context, Operation.WRITE, ResourceType.TOPIC
    )


def may_write_markers(authorizer: Authorizer, context: RequestContext) -> bool:
    """A-08: ALTER for tools that end a hanging transaction, CLUSTER_ACTION for other brokers."""
    return authorizer.allows(context, Operation.ALTER, CLUSTER) or authorizer.allows(
        context, Operation.CLUSTER_ACTION, CLUSTER
    )
