"""AddOffsetsToTxn (key 25): adds the offsets of a group to a transaction (rules T-23, A-06).

In versions below 2 the error of a fenced producer is INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from odradek_broker.coordinator.transactions.decisions import AddCall
from odradek_broker.deferred import Deferred
from odradek_broker.explain.sentences import describe_client
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group, transactional_id
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.add_offsets_to_txn import (
    PRODUCER_FENCED_SINCE,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

_CLIENT_VERSION = 1


def handle(
    node: Node, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Deferred[AddOffsetsToTxnResponse]:
    """Add the group's partition of `__consumer_offsets` to the transaction."""
    name = request.transactional_id
    if not node.authorizer.allows(context, Operation.WRITE, transactional_id(name)):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not name:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    deferred: Deferred[AddOffsetsToTxnResponse] = Deferred()

    def answer(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and context.api_version < PRODUCER_FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        deferred.resolve(AddOffsetsToTxnResponse(error_code=error))

    def ready(_: None) -> None:
        index = node.groups.shards.partition_of(request.group_id)
        assert index is not None, "the topic exists"
        call = AddCall(
            name,
            request.producer_id,
            request.producer_epoch,
            frozenset({(OFFSETS_TOPIC, index)}),
            _CLIENT_VERSION,
            describe_client(context.client_id, context.host),
            request.group_id,
        )
        node.transactions.add_partitions(call).then(answer)

    try:
        node.ensure_internal_topic(OFFSETS_TOPIC).then(ready)
    except StorageError:
        answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return deferred
