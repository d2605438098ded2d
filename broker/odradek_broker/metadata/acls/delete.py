"""The records that DeleteAcls writes (KIP-140; A-73). Error codes are those of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek_broker.metadata.acls.filters import FilterData, filter_of
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.security.acls import Acl
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import (
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)

#: More in one request are refused, all of them.
_GONE_MAX = 10_000


@dataclass
class FilterResult:
    """The answer for one filter: what it removes, or why it does not."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    acls: list[Acl] = field(default_factory=list)


def delete_acls(
    metadata: ClusterMetadata, filters: Sequence[FilterData]
) -> tuple[list[MetadataRecord], list[FilterResult]]:
    """The records that remove what the filters mean, and an answer for each, in their order.

    What two filters mean is told with both.
    """
    records: dict[bytes, MetadataRecord] = {}
    results = []
    for data in filters:
        wanted = filter_of(data)
        if wanted.resource_type is AclResourceType.UNKNOWN or (
            wanted.pattern_type is PatternType.UNKNOWN
        ):
            results.append(FilterResult(ErrorCode.INVALID_REQUEST, "Unknown patternFilter."))
        elif wanted.operation is AclOperation.UNKNOWN or (
            wanted.permission is AclPermission.UNKNOWN
        ):
            results.append(FilterResult(ErrorCode.INVALID_REQUEST, "Unknown entryFilter."))
        else:
            found = metadata.acls.matching(wanted)
            for acl_id, _ in found:
                records[acl_id] = RemoveAccessControlEntryRecord(id=acl_id)
            results.append(FilterResult(acls=[acl for _, acl in found]))
    if len(records) > _GONE_MAX:
        message = f"At most {_GONE_MAX} ACLs are deleted by one request; use narrower filters."
        return [], [FilterResult(ErrorCode.INVALID_REQUEST, message) for _ in filters]
    return list(records.values()), results
