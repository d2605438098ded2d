"""DescribeAcls (key 29): the ACLs that match a filter (KIP-140).

Versions: 1 brings the pattern type (KIP-290), 2 is flexible, 3 brings resources of the type user.
"""

from __future__ import annotations

from odradek_protocol.acls import PatternType
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, STRING


@api_message(ApiKey.DESCRIBE_ACLS)
class DescribeAclsRequest(Message):
    """The filter of the ACLs to list. Null matches every name, principal or host."""

    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable="0+")
    pattern_type_filter: int = field(INT8, default=PatternType.LITERAL)
    principal_filter: str | None = field(STRING, nullable="0+")
    host_filter: str | None = field(STRING, nullable="0+")
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class AclDescription(Struct):
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, default=PatternType.LITERAL)
    acls: list[AclDescription] = field(array(AclDescription))


@api_message(ApiKey.DESCRIBE_ACLS)
class DescribeAclsResponse(Message):
    """The matching ACLs, by resource."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource))
