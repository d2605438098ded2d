"""GetTelemetrySubscriptions (key 71): the metrics that a client is asked to push (KIP-714)."""

from __future__ import annotations

from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_protocol.compression import Codec
from odradek_protocol.schemas.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

#: The accepted compression types, in the order of preference. A push without compression is
#: also accepted.
_ACCEPTED = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


async def handle(
    node: Node, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """The subscription of the client. The client needs no right, as in Kafka."""
    error, instance = await node.telemetry.get(context, request.client_instance_id)
    if error:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(_ACCEPTED),
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=node.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.wanted.metrics),
    )
