"""DescribeClientQuotas (key 48): the quotas of users, client ids and IP addresses (KIP-546).

Versions: 1 is flexible.

Of note: an entity is one or several pairs of type and name; a null name means the default
entity of the type.
"""

from __future__ import annotations

from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, FLOAT64, INT8, INT16, INT32, STRING


class ComponentData(Struct):
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(STRING, nullable="0+")


@api_message(ApiKey.DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasRequest(Message):
    """The filter of the quotas to list. With `strict`, an entity is left out if one of its types is
    in no component of the filter."""

    components: list[ComponentData] = field(array(ComponentData))
    strict: bool = field(BOOL)


class ValueData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Struct):
    entity: list[QuotaEntityPart] = field(array(QuotaEntityPart))
    values: list[ValueData] = field(array(ValueData))


@api_message(ApiKey.DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasResponse(Message):
    """The matching quotas, by entity. If there is an error, `entries` is null."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    entries: list[EntryData] | None = field(array(EntryData), nullable="0+")
