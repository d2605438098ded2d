"""EndTxn (key 26): commits or aborts a transaction (rules T-30 to T-33, T-63 to T-67, A-07).

In versions below 2 the error of a fenced producer is INVALID_PRODUCER_EPOCH. A request in version 5
or later ends a transaction of version 2: the epoch is raised, and the answer has the producer id
and epoch that the producer has to use next.
"""

from __future__ import annotations

from odradek_broker.coordinator.transactions.decisions import VERSION_2, EndAnswer, EndCall
from odradek_broker.deferred import Deferred
from odradek_broker.explain.sentences import describe_client
from odradek_broker.handlers._parts import TransactionParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, transactional_id
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.end_txn import (
    PRODUCER_FENCED_SINCE,
    TRANSACTIONS_V2_SINCE,
    EndTxnRequest,
    EndTxnResponse,
)


def handle(
    node: TransactionParts, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Deferred[EndTxnResponse]:
    """Answer when the decision is durable, before the markers are written (T-31)."""
    name = request.transactional_id
    if not node.authorizer.allows(context, Operation.WRITE, transactional_id(name)):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not name:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    version = context.api_version
    call = EndCall(
        name,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        VERSION_2 if version >= TRANSACTIONS_V2_SINCE else 1,
        describe_client(context.client_id, context.host),
    )
    return node.transactions.end(call).map(lambda answer: _response(answer, version))


def _response(answer: EndAnswer, version: int) -> EndTxnResponse:
    """The response, with producer id and epoch only in version 5 and only without an error
    (T-67)."""
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error is not ErrorCode.NONE or version < TRANSACTIONS_V2_SINCE:
        return EndTxnResponse(error_code=error)
    return EndTxnResponse(
        error_code=error, producer_id=answer.producer_id, producer_epoch=answer.epoch
    )
