"""PushTelemetry (key 72): take the metrics of a client (KIP-714)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.telemetry.instances import Pushed
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def handle(
    node: Node, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse | Deferred[PushTelemetryResponse]:
    """Answer when the metrics are taken. The client needs no right, as in Kafka."""
    pushed = Pushed(
        request.subscription_id,
        request.compression_type,
        request.terminating,
        len(request.metrics),
    )
    error = node.telemetry.push(context, request.client_instance_id, pushed, request.metrics)
    return error.map(_response) if isinstance(error, Deferred) else _response(error)


def _response(error: ErrorCode) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=error)
