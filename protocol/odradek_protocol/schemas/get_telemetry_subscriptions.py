"""GetTelemetrySubscriptions (key 71): the metrics that a client is asked to push (KIP-714).

Versions: only 0.

Of note: Apache Kafka advertises this API and PushTelemetry only if it has a plugin that takes
the metrics. Odradek itself takes the metrics, so it always advertises both APIs.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, STRING, UUID, ZERO_UUID


@api_message(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
class GetTelemetrySubscriptionsRequest(Message):
    """The request. `client_instance_id`: zero in the first request of a client."""

    client_instance_id: bytes = field(UUID, default=ZERO_UUID)


@api_message(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
class GetTelemetrySubscriptionsResponse(Message):
    """The response.

    `requested_metrics`: prefixes of the names of metrics; `*` alone for all metrics, empty for
    none. `delta_temporality`: true if counters are pushed as the change since the last push.
    """

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    client_instance_id: bytes = field(UUID, default=ZERO_UUID)
    subscription_id: int = field(INT32)
    accepted_compression_types: list[int] = field(array(INT8))
    push_interval_ms: int = field(INT32)
    telemetry_max_bytes: int = field(INT32)
    delta_temporality: bool = field(BOOL)
    requested_metrics: list[str] = field(array(STRING))
