"""UnregisterBroker (key 64): removes a broker that has left the cluster.

Versions: only 0.

Of note: the cluster's only broker cannot be unregistered (INVALID_REQUEST); in Kafka it can.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import INT16, INT32, STRING


@api_message(ApiKey.UNREGISTER_BROKER)
class UnregisterBrokerRequest(Message):
    broker_id: int = field(INT32)


@api_message(ApiKey.UNREGISTER_BROKER)
class UnregisterBrokerResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
