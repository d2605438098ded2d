"""PushTelemetry (key 72): the metrics of a client (KIP-714).

Versions: only 0.
"""

from __future__ import annotations

from odradek_protocol.message import Message, field, message
from odradek_protocol.primitives import BOOL, BYTES, INT8, INT16, INT32, UUID, ZERO_UUID


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest(Message):
    """The request. `metrics`: a MetricsData of OpenTelemetry's protocol, compressed with
    `compression_type`. `terminating`: the client ends, and this is its last push."""

    client_instance_id: bytes = field(UUID, default=ZERO_UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOL)
    compression_type: int = field(INT8)
    metrics: bytes = field(BYTES)


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse(Message):
    """The response."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
