"""Filters of DescribeAcls and DeleteAcls, and the records that CreateAcls and DeleteAcls write
(KIP-140; A-70 to A-73). Error codes are those of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.security.acls import Acl, AclFilter, AclIndex
from odradek_protocol.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    of_code,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.schemas.create_acls import AclCreation
from odradek_protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    MetadataRecord,
)


class FilterData(Protocol):
    """A filter in the form of the request."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def is_unknown(data: FilterData) -> bool:
    """True if a filter has a number without a meaning."""
    return 0 in (
        *(data.resource_type_filter, data.pattern_type_filter),
        *(data.operation, data.permission_type),
    )


def filter_of(data: FilterData) -> AclFilter:
    """The filter of a request. A number without a meaning becomes UNKNOWN, so the filter matches no
    ACL.
    """
    return AclFilter(
        of_code(AclResourceType, data.resource_type_filter),
        data.resource_name_filter,
        of_code(PatternType, data.pattern_type_filter),
        data.principal_filter,
        data.host_filter,
        of_code(AclOperation, data.operation),
        of_code(AclPermission, data.permission_type),
    )


#: The maximum number of ACLs. An ACL need not refer to an existing resource, so nothing else limits
#: the number.
_ACLS_MAX = 100_000

#: The maximum number of different lengths of the prefixes of one type: the start of a name is
#: looked up in each length. A topic's name has 249 characters at most.
_PREFIX_LENGTHS_MAX = 500

#: The maximum number of ACLs that one request creates. A request with more ACLs is refused as a
#: whole.
NEW_MAX = 10_000


@dataclass
class CreationResult:
    """The answer for one creation."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def create_acls(
    metadata: ClusterMetadata, wanted: Sequence[AclCreation]
) -> tuple[list[MetadataRecord], list[CreationResult]]:
    """The records of the valid ACLs that do not exist yet, and an answer for each creation, in the
    order of `wanted`."""
    records: list[MetadataRecord] = []
    results = []
    made: set[Acl] = set()
    for data in wanted:
        try:
            acl = _checked(data)
            if acl not in made and acl not in metadata.acls:
                if len(metadata.acls) + len(made) >= _ACLS_MAX:
                    raise AdminError(
                        ErrorCode.POLICY_VIOLATION,
                        f"There are {_ACLS_MAX} ACLs already; remove some of them first.",
                    )
                _check_prefix(acl, metadata.acls, made)
                made.add(acl)
                records.append(_record(metadata.new_acl_id(), acl))
        except AdminError as refusal:
            results.append(CreationResult(refusal.error, refusal.message))
        else:
            results.append(CreationResult())
    return records, results


def _check_prefix(acl: Acl, present: AclIndex, made: set[Acl]) -> None:
    """Raise AdminError if the prefix of a new ACL has one length too many."""
    lengths = present.prefix_lengths(acl.resource_type)
    if acl.pattern_type is not PatternType.PREFIXED or len(acl.name) in lengths:
        return
    more = {
        len(each.name)
        for each in made
        if each.pattern_type is PatternType.PREFIXED and each.resource_type is acl.resource_type
    }
    if len(more.union(lengths, (len(acl.name),))) > _PREFIX_LENGTHS_MAX:
        raise AdminError(
            ErrorCode.POLICY_VIOLATION,
            f"The prefixes of type {acl.resource_type.name} have {_PREFIX_LENGTHS_MAX} different"
            " lengths already.",
        )


def _checked(data: AclCreation) -> Acl:
    """The requested ACL. Raises AdminError."""
    acl = Acl(
        of_code(AclResourceType, data.resource_type),
        data.resource_name,
        of_code(PatternType, data.resource_pattern_type),
        data.principal,
        data.host,
        of_code(AclOperation, data.operation),
        of_code(AclPermission, data.permission_type),
    )
    if acl.resource_type is AclResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise _refused(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise _refused("Invalid empty resource name")
    if acl.resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise _refused(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _refused(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _refused(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        raise _refused(f"Invalid permissionType {acl.permission.name}")
    if ":" not in acl.principal:
        raise _refused(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the"
            " principal type from the principal name)"
        )
    return acl


def _refused(message: str) -> AdminError:
    return AdminError(ErrorCode.INVALID_REQUEST, message)


def _record(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


#: The maximum number of ACLs that one request removes. A request that would remove more is refused
#: as a whole.
GONE_MAX = 10_000


@dataclass
class FilterResult:
    """The answer for one filter: the ACLs that it removes, or the error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    acls: list[Acl] = field(default_factory=list)


class FoundAcls(NamedTuple):
    """The answer for a filter, and the ids of the ACLs that match it."""

    result: FilterResult
    ids: list[bytes]


async def filter_result(metadata: ClusterMetadata, data: FilterData) -> FoundAcls:
    """The ACLs that match a filter, or the reason why the filter is refused."""
    wanted = filter_of(data)
    if wanted.resource_type is AclResourceType.UNKNOWN or (
        wanted.pattern_type is PatternType.UNKNOWN
    ):
        unknown = FilterResult(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        return FoundAcls(unknown, [])
    if wanted.operation is AclOperation.UNKNOWN or wanted.permission is AclPermission.UNKNOWN:
        return FoundAcls(FilterResult(ErrorCode.INVALID_REQUEST, "Unknown entryFilter."), [])
    found = await metadata.acls.matching(wanted)
    return FoundAcls(FilterResult(acls=[acl for _, acl in found]), [acl_id for acl_id, _ in found])
