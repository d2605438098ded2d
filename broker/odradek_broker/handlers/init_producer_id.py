"""InitProducerId (key 22): an identity for an idempotent producer (rules P-29, P-30).

A transactional id needs the transaction coordinator, which is not served yet: none of the keys that
clients look for is advertised, and a request that comes anyway is told that this version is not
supported.
"""

from __future__ import annotations

from odradek_broker.context import RequestContext
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    node: Node, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Later[InitProducerIdResponse]:
    """A new producer id with epoch 0, once its block is durable."""
    if request.transactional_id is not None:
        error = (
            ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return _failed(error)
    later: Later[InitProducerIdResponse] = Later()

    def answer(producer_id: int | None) -> None:
        if producer_id is None:
            later.resolve(_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            later.resolve(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    node.next_producer_id().then(answer)
    return later


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
