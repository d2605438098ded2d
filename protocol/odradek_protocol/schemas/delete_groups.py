"""DeleteGroups (key 42): deletes groups that have no members.

Versions: 2 is flexible.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, STRING


@api_message(ApiKey.DELETE_GROUPS)
class DeleteGroupsRequest(Message):
    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)


@api_message(ApiKey.DELETE_GROUPS)
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
