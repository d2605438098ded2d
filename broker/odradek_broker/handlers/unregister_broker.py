"""UnregisterBroker (key 64): the cluster has only this broker, which cannot be unregistered while
it runs (A-75)."""

from __future__ import annotations

from odradek_broker.handlers._parts import ClusterParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


def handle(
    node: ClusterParts, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """The refusal: there are no other brokers."""
    broker_id = request.broker_id
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        error, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, denial(Operation.ALTER, CLUSTER)
    elif broker_id != node.node_id:
        error = ErrorCode.BROKER_ID_NOT_REGISTERED
        text = f"There is no broker {broker_id}: the cluster has only broker {node.node_id}."
    else:
        error = ErrorCode.INVALID_REQUEST
        text = f"Broker {broker_id} is running, and the cluster has no other: it cannot be unregistered."
    return UnregisterBrokerResponse(error_code=error, error_message=text)
