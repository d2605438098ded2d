"""AlterClientQuotas (key 49): sets and removes quotas of users, client ids and IP addresses
(KIP-546).

Versions: 1 is flexible.

Of note: an entity is one or several pairs of type and name; a null name means the default
entity of the type.
"""

from __future__ import annotations

from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, FLOAT64, INT16, INT32, STRING


class OpData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


class EntryData(Struct):
    entity: list[QuotaEntityPart] = field(array(QuotaEntityPart))
    ops: list[OpData] = field(array(OpData))


@api_message(ApiKey.ALTER_CLIENT_QUOTAS)
class AlterClientQuotasRequest(Message):
    """The quotas to set and remove, by entity."""

    entries: list[EntryData] = field(array(EntryData))
    validate_only: bool = field(BOOL)


class EntryResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    entity: list[QuotaEntityPart] = field(array(QuotaEntityPart))


@api_message(ApiKey.ALTER_CLIENT_QUOTAS)
class AlterClientQuotasResponse(Message):
    """A result for each entity."""

    throttle_time_ms: int = field(INT32)
    entries: list[EntryResult] = field(array(EntryResult))
