"""The filters of DescribeAcls and DeleteAcls, from the numbers of a request (KIP-140)."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

from odradek_broker.security.acls import AclFilter
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType

Code = TypeVar("Code", bound=IntEnum)


class FilterData(Protocol):
    """A filter as it is sent."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def of_code(kind: type[Code], code: int) -> Code:
    """The member of `kind` with this number; UNKNOWN, which is 0, if there is none."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def is_unknown(data: FilterData) -> bool:
    """True if a filter has a number that stands for something unknown."""
    return 0 in (
        *(data.resource_type_filter, data.pattern_type_filter),
        *(data.operation, data.permission_type),
    )


def filter_of(data: FilterData) -> AclFilter:
    """The filter; numbers that mean nothing are UNKNOWN, which fits no ACL."""
    return AclFilter(
        of_code(AclResourceType, data.resource_type_filter),
        data.resource_name_filter,
        of_code(PatternType, data.pattern_type_filter),
        data.principal_filter,
        data.host_filter,
        of_code(AclOperation, data.operation),
        of_code(AclPermission, data.permission_type),
    )
