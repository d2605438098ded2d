"""Authorization (rules A-01 to A-20): the protocol of an authorizer, and the authorizer that allows
everything.

Handlers call the authorizer before they look up a resource, so that its existence is not disclosed
(A-20). Implementations of `Authorizer` know principals, patterns and implied rights; handlers name
only the right that an operation needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from odradek_broker.request import RequestContext
from odradek_broker.slices import each_once, paced
from odradek_protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple

#: The types and operations of Kafka's ACLs.
ResourceType = AclResourceType
Operation = AclOperation


class Resource(NamedTuple):
    """A resource. The whole cluster is the resource of type CLUSTER with Kafka's name,
    kafka-cluster."""

    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


def topic(name: str) -> Resource:
    """A topic."""
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """A consumer group."""
    return Resource(ResourceType.GROUP, name)


def transactional_id(name: str) -> Resource:
    """A transactional id."""
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


def denial(operation: Operation, resource: Resource) -> str:
    """The error message for a client without the right."""
    what = resource.type.name.lower().replace("_", " ")
    name = "" if resource == CLUSTER else f" {resource.name!r}"
    return f"You do not have the right {operation.name} on the {what}{name}."


class Authorizer(Protocol):
    """The protocol of an authorizer, which is called once for each right that a request needs, and
    must answer at once, apart from `allows_any`.
    """

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        """True if the sender of this request may do the operation. Denials go to the audit log."""
        ...

    def would_allow(
        self, context: RequestContext, operation: Operation, resource: Resource, /
    ) -> bool:
        """The same decision as `allows`, but without a line about a denial in the audit log. Used
        for answers that leave out what the client may not see, and for operations that another
        right would also allow.
        """
        ...

    async def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        """True if the sender may do the operation on at least one resource of this type (A-04)."""
        ...


class AllowEverything:
    """The authorizer that is used if none is configured (A-19)."""

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        return True

    def would_allow(
        self, context: RequestContext, operation: Operation, resource: Resource, /
    ) -> bool:
        return True

    async def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        return True


ALLOW_EVERYTHING = AllowEverything()
#: The error message of the ACL APIs without an authorizer.
_NO_AUTHORIZER = "No Authorizer is configured. (authorizer.class.name)"


# --- Questions of several handlers --------------------------------------------------------------


def acls_refused(
    authorizer: Authorizer, context: RequestContext, operation: Operation
) -> tuple[ErrorCode, str] | None:
    """The error of a request that does this operation on the ACLs; None if the client has the
    right, and there is an authorizer."""
    if not authorizer.allows(context, operation, CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, denial(operation, CLUSTER)
    if authorizer is ALLOW_EVERYTHING:
        return ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER
    return None


_NO_TOPICS: frozenset[str] = frozenset()


async def hidden_topics(
    authorizer: Authorizer, context: RequestContext, names: Iterable[str]
) -> frozenset[str]:
    """The topics that an answer about all topics leaves out, because this client may not describe
    them."""
    if authorizer is ALLOW_EVERYTHING:
        return _NO_TOPICS
    return frozenset(
        [
            name
            async for name in paced(dict.fromkeys(names))
            if not authorizer.would_allow(context, Operation.DESCRIBE, topic(name))
        ]
    )


def visible_topics(
    authorizer: Authorizer, context: RequestContext
) -> Callable[[frozenset[str]], frozenset[str]]:
    """A function that returns, of a set of topics, the topics that this client may describe."""
    if authorizer is ALLOW_EVERYTHING:
        return lambda names: names
    return lambda names: frozenset(
        name for name in names if authorizer.would_allow(context, Operation.DESCRIBE, topic(name))
    )


async def denied_topics(
    authorizer: Authorizer, context: RequestContext, operation: Operation, names: Iterable[str]
) -> frozenset[str]:
    """The topics on which this client may not do the operation, each checked once.

    `names` is not read if no authorizer is configured, so that a request with many partitions, such
    as Fetch, has no additional cost.
    """
    if authorizer is ALLOW_EVERYTHING:
        return _NO_TOPICS
    return frozenset(
        [
            name
            async for name in paced(await each_once(names))
            if not authorizer.allows(context, operation, topic(name))
        ]
    )


_CONFIGS_DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def may_use_configs(
    authorizer: Authorizer, context: RequestContext, operation: Operation, resource: Resource
) -> ErrorCode:
    """The error for a client that does not have the right DESCRIBE_CONFIGS or ALTER_CONFIGS on the
    resource; NONE if it has (A-18)."""
    if authorizer.allows(context, operation, resource):
        return ErrorCode.NONE
    return _CONFIGS_DENIED[resource.type]


#: The operations on each kind of resource that answers can report to clients (KIP-430).
_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
        *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (
        *(Operation.READ, Operation.DELETE, Operation.DESCRIBE),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.CLUSTER: (
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
    ),
}
#: The answer to a client that did not request its operations.
UNKNOWN_OPERATIONS = -(2**31)


def authorized_operations(
    authorizer: Authorizer, context: RequestContext, resource: Resource
) -> int:
    """This client's operations on a topic, a group or the cluster: bit n for Kafka's operation
    n."""
    return sum(
        1 << operation
        for operation in _OPERATIONS[resource.type]
        if authorizer.would_allow(context, operation, resource)
    )


def cluster_operations(authorizer: Authorizer, context: RequestContext) -> int:
    """`authorized_operations` on the cluster; none for a client that may not describe the
    cluster."""
    if not authorizer.would_allow(context, Operation.DESCRIBE, CLUSTER):
        return 0
    return authorized_operations(authorizer, context, CLUSTER)


def may_create_topic(authorizer: Authorizer, context: RequestContext, name: str) -> bool:
    """True if the client has CREATE on the cluster or on the topic `name` (A-11, A-17)."""
    return authorizer.would_allow(context, Operation.CREATE, CLUSTER) or authorizer.allows(
        context, Operation.CREATE, topic(name)
    )


def may_fetch_as(authorizer: Authorizer, context: RequestContext, replica_id: int) -> bool:
    """True if the client is a consumer (replica id -1), or has CLUSTER_ACTION, the right that
    followers need (A-09).
    """
    return replica_id < 0 or authorizer.allows(context, Operation.CLUSTER_ACTION, CLUSTER)


async def may_write_idempotently(authorizer: Authorizer, context: RequestContext) -> bool:
    """True if the client has IDEMPOTENT_WRITE, or WRITE on at least one topic. One of the two
    rights is needed to get a producer id without a transactional id (A-04)."""
    return authorizer.would_allow(
        context, Operation.IDEMPOTENT_WRITE, CLUSTER
    ) or await authorizer.allows_any(context, Operation.WRITE, ResourceType.TOPIC)


def may_write_markers(authorizer: Authorizer, context: RequestContext) -> bool:
    """True if the client has ALTER (tools that end a hanging transaction) or CLUSTER_ACTION
    (brokers) on the cluster (A-08)."""
    return authorizer.would_allow(context, Operation.ALTER, CLUSTER) or authorizer.allows(
        context, Operation.CLUSTER_ACTION, CLUSTER
    )
