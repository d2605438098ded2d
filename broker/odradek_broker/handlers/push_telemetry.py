"""PushTelemetry (key 72): take the metrics of a client (KIP-714)."""

from __future__ import annotations

from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.telemetry.instances import Pushed
from odradek_protocol.schemas.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


async def handle(
    node: Node, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Answer when the metrics are taken. The client needs no right, as in Kafka."""
    pushed = Pushed(
        request.subscription_id,
        request.compression_type,
        request.terminating,
        len(request.metrics),
    )
    error = await node.telemetry.push(context, request.client_instance_id, pushed, request.metrics)
    return PushTelemetryResponse(error_code=error)
