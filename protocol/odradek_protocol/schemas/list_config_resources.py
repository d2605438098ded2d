"""ListConfigResources (key 74): the names of resources that have settings (KIP-1142).

Versions: 0 lists only subscriptions to client metrics; in 1 the request has the wanted types.
"""

from __future__ import annotations

from odradek_protocol.constants import RESOURCE_CLIENT_METRICS
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, STRING

#: From this version on the request names the types; earlier versions list only subscriptions to
#: client metrics.
RESOURCE_TYPES_SINCE = 1


@api_message(ApiKey.LIST_CONFIG_RESOURCES)
class ListConfigResourcesRequest(Message):
    """The request. `resource_types` empty: all types."""

    resource_types: list[int] = field(array(INT8), "1+")


class ConfigResource(Struct):
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, "1+", default=RESOURCE_CLIENT_METRICS, ignorable=True)


@api_message(ApiKey.LIST_CONFIG_RESOURCES)
class ListConfigResourcesResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
