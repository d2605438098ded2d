"""PushTelemetry (key 72): the metrics of a client (KIP-714).

Versions: only 0.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import BOOL, BYTES, INT8, INT16, INT32, UUID, ZERO_UUID


@api_message(ApiKey.PUSH_TELEMETRY)
class PushTelemetryRequest(Message):
    """The request. `metrics`: a MetricsData of OpenTelemetry's protocol, compressed with
    `compression_type`. `terminating`: true if the client is closing, so that this is its last
    push."""

    client_instance_id: bytes = field(UUID, default=ZERO_UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOL)
    compression_type: int = field(INT8)
    metrics: bytes = field(BYTES)


@api_message(ApiKey.PUSH_TELEMETRY)
class PushTelemetryResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
