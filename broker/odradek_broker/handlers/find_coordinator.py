"""FindCoordinator (key 10): the broker that coordinates a group, a transactional id or the state of
a share partition (G-06, T-01, H-32, D8).

A request has one key up to version 3, and a list of keys from version 4 on. `TOPIC_OF_KEY_TYPE`
has, for each type of key, the internal topic over whose partitions the keys are distributed.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.coordinator.shards import partition_for
from odradek_broker.coordinator.share.coordinator import (
    coordinator_key,
    decode_coordinator_key,
)
from odradek_broker.metadata.cluster import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, Resource, group, transactional_id
from odradek_broker.slices import paced
from odradek_broker.storage.errors import StorageError
from odradek_protocol.constants import (
    GROUP_COORDINATOR,
    NO_NODE_ID,
    SHARE_COORDINATOR,
    TRANSACTION_COORDINATOR,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.find_coordinator import (
    SEVERAL_KEYS_SINCE,
    SHARES_SINCE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

#: The internal topic of each type of key: the leader of a key's partition is its coordinator.
TOPIC_OF_KEY_TYPE: dict[int, str] = {
    GROUP_COORDINATOR: OFFSETS_TOPIC,
    TRANSACTION_COORDINATOR: TRANSACTIONS_TOPIC,
    SHARE_COORDINATOR: SHARE_STATE_TOPIC,
}

#: The right that each type of key needs: operation, resource of a key, and error without the right
#
_DENIED: dict[int, tuple[Operation, Callable[[str], Resource], ErrorCode]] = {
    GROUP_COORDINATOR: (Operation.DESCRIBE, group, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION_COORDINATOR: (
        Operation.DESCRIBE,
        transactional_id,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    SHARE_COORDINATOR: (
        Operation.CLUSTER_ACTION,
        lambda _: CLUSTER,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
}


async def handle(
    node: Node, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """The coordinator of each key; the internal topic is created if it does not exist yet."""
    many = context.api_version >= SEVERAL_KEYS_SINCE
    keys = request.coordinator_keys if many else [request.key]
    topic = TOPIC_OF_KEY_TYPE.get(request.key_type)
    if topic is None:
        message = f"This broker coordinates nothing with the key type {request.key_type}."
        return await _refused(many, keys, ErrorCode.INVALID_REQUEST, message)
    is_share = request.key_type == SHARE_COORDINATOR
    if is_share and context.api_version < SHARES_SINCE:
        message = f"Version {context.api_version} does not support share partitions."
        return await _refused(many, keys, ErrorCode.INVALID_REQUEST, message)
    operation, resource, denied = _DENIED[request.key_type]
    allows = node.authorizer.allows
    allowed = {key async for key in paced(keys) if allows(context, operation, resource(key))}

    def found(key: str) -> Coordinator:
        if key not in allowed:
            return _refusal(key, denied, f"You may not describe {key!r}.")
        if is_share and decode_coordinator_key(key) is None:
            message = f"{key!r} is not of the form group:topic id:partition."
            return _refusal(key, ErrorCode.INVALID_REQUEST, message)
        return _find(node, context, topic, key)

    if allowed:
        try:
            await node.ensure_internal_topic(topic)
        except StorageError as problem:
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return await _refused(many, keys, unavailable, problem.message)
    return _response(many, [found(key) async for key in paced(keys)])


async def _refused(
    many: bool, keys: list[str], error: ErrorCode, message: str
) -> FindCoordinatorResponse:
    return _response(many, [_refusal(key, error, message) async for key in paced(keys)])


def _find(node: Node, context: RequestContext, topic: str, key: str) -> Coordinator:
    index = _partition_of(node, topic, key)
    leader = None if index is None else node.metadata.leader_of(topic, index)
    if (
        index is None
        or leader != node.node_id
        or node.replicas.internal_partition(topic, index) is None
    ):
        # This broker knows no addresses of other brokers, and after an error of the disk there is
        # no leader.
        message = f"No coordinator is available for the key {key!r}."
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    host, port = node.advertised(context.listener)
    return Coordinator(
        key=key, node_id=leader, host=host, port=port, error_code=ErrorCode.NONE, error_message=""
    )


def _partition_of(node: Node, topic: str, key: str) -> int | None:
    """The partition of the key; None if the topic does not exist."""
    if topic == OFFSETS_TOPIC:
        return node.groups.shards.partition_of(key)
    if topic == TRANSACTIONS_TOPIC:
        return node.transactions.shards.partition_of(key)
    named = decode_coordinator_key(key)
    assert named is not None
    count = node.metadata.partition_count(topic)
    return partition_for(coordinator_key(named), count) if count else None


def _refusal(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=NO_NODE_ID,
        host="",
        port=NO_NODE_ID,
        error_code=error,
        error_message=message,
    )


def _response(many: bool, found: list[Coordinator]) -> FindCoordinatorResponse:
    if many:
        return FindCoordinatorResponse(coordinators=found, error_message=None)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # In Kafka the message for success is "NONE" if the request has one key, and empty if it has
        # a list.
        error_message=only.error_message or ErrorCode.of(only.error_code).name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
