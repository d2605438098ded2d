"""The records that CreateAcls writes (KIP-140; A-70 to A-72). Error codes are those of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odradek_broker.metadata.acls.filters import of_code
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.security.acls import Acl
from odradek_protocol.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_acls import AclCreation
from odradek_protocol.stored.cluster_metadata import AccessControlEntryRecord, MetadataRecord

#: ACLs need not be of anything that exists, so that nothing else limits their number.
_ACLS_MAX = 100_000
#: More in one request are refused, all of them.
_NEW_MAX = 10_000


@dataclass
class CreationResult:
    """The answer for one creation."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def create_acls(
    metadata: ClusterMetadata, wanted: Sequence[AclCreation]
) -> tuple[list[MetadataRecord], list[CreationResult]]:
    """The records of the valid ones that are not there yet, and an answer for each, in their
    order."""
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
                made.add(acl)
                records.append(_record(metadata.new_acl_id(), acl))
        except AdminError as refusal:
            results.append(CreationResult(refusal.error, refusal.message))
        else:
            results.append(CreationResult())
    if len(records) > _NEW_MAX:
        message = f"At most {_NEW_MAX} ACLs are created by one request; send several."
        return [], [CreationResult(ErrorCode.POLICY_VIOLATION, message) for _ in wanted]
    return records, results


def _checked(data: AclCreation) -> Acl:
    """The ACL that is wanted. AdminError."""
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
