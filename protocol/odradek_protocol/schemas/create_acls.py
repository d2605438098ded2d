"""CreateAcls (key 30): adds ACLs (KIP-140).

Versions: 1 brings the pattern type (KIP-290), 2 is flexible, 3 brings resources of the type user.
"""

from __future__ import annotations

from odradek_protocol.acls import PatternType
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, STRING


class AclCreation(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, default=PatternType.LITERAL)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@api_message(ApiKey.CREATE_ACLS)
class CreateAclsRequest(Message):
    """The ACLs to create."""

    creations: list[AclCreation] = field(array(AclCreation))


class AclCreationResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


@api_message(ApiKey.CREATE_ACLS)
class CreateAclsResponse(Message):
    """A result for each creation, in the order of the request."""

    throttle_time_ms: int = field(INT32)
    results: list[AclCreationResult] = field(array(AclCreationResult))
