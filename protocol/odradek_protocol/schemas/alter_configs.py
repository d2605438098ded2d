"""AlterConfigs (key 33): replaces all settings of a resource by those of the request.

Versions: 1 is the same as 0; 2 is flexible. Clients since 2.3 prefer IncrementalAlterConfigs
(KIP-339).
"""

from __future__ import annotations

from odradek_protocol.common_structs import AlterConfigsResourceResponse
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT32, STRING


class AlterableConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@api_message(ApiKey.ALTER_CONFIGS)
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@api_message(ApiKey.ALTER_CONFIGS)
class AlterConfigsResponse(Message):
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
