"""InitProducerId (key 22): assigns a producer id and epoch (rules P-29, P-30, T-10 to T-16, A-04).

From version 3 on the request has the producer's present id and epoch. In versions below 4 the error
of a fenced producer is INVALID_PRODUCER_EPOCH (T-15). A request in version 6 can ask for two-phase
commit (T-70 to T-77).
"""

from __future__ import annotations

from odradek_broker.coordinator.transactions.decisions import InitAnswer, InitCall
from odradek_broker.deferred import Deferred
from odradek_broker.explain.sentences import EventKind, describe_client
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, may_write_idempotently, transactional_id
from odradek_broker.slices import soon
from odradek_protocol.constants import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.init_producer_id import (
    PRODUCER_FENCED_SINCE,
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def handle(
    node: Node, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Deferred[InitProducerIdResponse]:
    """Answer a request without a transactional id with a new producer id, and any other request
    with the coordinator's answer."""
    name = request.transactional_id
    if name is None:
        return node.slices.run(_idempotent(node, context, request), context)
    resource = transactional_id(name)
    if not node.authorizer.allows(context, Operation.WRITE, resource):
        return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not name:
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc or request.keep_prepared_txn:
        allowed = node.config.transaction_two_phase_commit_enable
        if not allowed or not node.authorizer.allows(context, Operation.TWO_PHASE_COMMIT, resource):
            return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not request.enable2_pc:
            return _failed(ErrorCode.INVALID_REQUEST)
    if _is_half_given(request):
        return _failed(ErrorCode.INVALID_REQUEST)
    call = InitCall(
        name,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        request.enable2_pc,
        request.keep_prepared_txn,
        describe_client(context.client_id, context.host),
    )
    return node.transactions.init_producer_id(call).map(
        lambda answer: _response(answer, context.api_version)
    )


async def _idempotent(
    node: Node, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A new producer id with epoch 0, once its block of ids is durable (P-30)."""
    if not await may_write_idempotently(node.authorizer, context):
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if _is_half_given(request):
        return _failed(ErrorCode.INVALID_REQUEST)
    producer_id = await soon(node.producer_ids.next())
    if producer_id is None:
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    client = describe_client(context.client_id, context.host)
    node.producer_history.record(str(producer_id), EventKind.PRODUCER_GIVEN, client=client, epoch=0)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _is_half_given(request: InitProducerIdRequest) -> bool:
    """True for a producer id without an epoch, or an epoch without a producer id (T-10)."""
    return (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)


def _response(answer: InitAnswer, version: int) -> InitProducerIdResponse:
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error,
        producer_id=answer.producer_id,
        producer_epoch=answer.epoch,
        ongoing_txn_producer_id=answer.ongoing_producer_id,
        ongoing_txn_producer_epoch=answer.ongoing_epoch,
    )


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
