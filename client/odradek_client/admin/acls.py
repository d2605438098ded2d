"""The calls of the admin client about ACLs: create, describe and delete (KIP-140)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from odradek_client.admin.arguments import each_of
from odradek_client.admin.requests import AdminPart
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import error_for
from odradek_protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    of_code,
)
from odradek_protocol.schemas.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek_protocol.schemas.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek_protocol.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@dataclass(frozen=True)
class AclBinding:
    """An ACL that allows (or, with DENY, forbids) an operation on a resource. The ACL applies to
    `principal` ("User:alice" or "User:*") connecting from the address `host` (`*`: any).

    `name`: the name of the resource, or `*` for all names; with PatternType.PREFIXED, all names
    that begin with it.
    """

    principal: str
    operation: AclOperation
    resource_type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL
    host: str = WILDCARD
    permission: AclPermission = AclPermission.ALLOW

    def __str__(self) -> str:
        pattern = "prefixed " if self.pattern_type is PatternType.PREFIXED else ""
        return (
            f"{self.permission.name} {self.operation.name} on {pattern}{_words(self.resource_type)}"
            f" {self.name!r} to {self.principal} from {self.host}"
        )

    @classmethod
    def topic(cls, name: str, principal: str, operation: AclOperation) -> AclBinding:
        """An ACL that allows `operation` on a topic."""
        return cls(principal, operation, AclResourceType.TOPIC, name)

    @classmethod
    def group(cls, name: str, principal: str, operation: AclOperation) -> AclBinding:
        """An ACL that allows `operation` on a consumer group."""
        return cls(principal, operation, AclResourceType.GROUP, name)

    @classmethod
    def cluster(cls, principal: str, operation: AclOperation) -> AclBinding:
        """An ACL that allows `operation` on the cluster."""
        return cls(principal, operation, AclResourceType.CLUSTER, CLUSTER_NAME)


@dataclass(frozen=True)
class AclBindingFilter:
    """A filter of ACLs, in which None and ANY match all values.

    `pattern_type`: MATCH selects all ACLs that apply to `name`, including those with a prefix or
    `*`.
    """

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


class AclAdmin(AdminPart):
    """The calls about ACLs."""

    async def create_acls(
        self, acls: AclBinding | Iterable[AclBinding], *, raise_errors: bool = True
    ) -> Results[AclBinding, None]:
        """Create ACLs; returns results by ACL. An existing ACL is no error.

        Raises ClusterAuthorizationFailed, InvalidRequest for an invalid ACL, and Refused if the
        cluster has no authorizer.
        """
        wanted = each_of(acls, AclBinding, "acls", "AclBinding")

        async def ask(asked: list[AclBinding]) -> Outcomes[AclBinding, None]:
            request = CreateAclsRequest(creations=[_creation(acl) for acl in asked])
            response: CreateAclsResponse = await self.requests.to_controller(request)
            return {
                acl: error_for(result.error_code, result.error_message, about=f"ACL {acl}")
                if result.error_code
                else None
                for acl, result in zip(asked, response.results, strict=False)
            }

        return await self.requests.for_each(dict.fromkeys(wanted), ask, raise_errors)

    async def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The ACLs that match a filter (None: all ACLs).

        Raises ClusterAuthorizationFailed, and Refused if the cluster has no authorizer.
        """
        request = DescribeAclsRequest(**_filter(wanted or AclBindingFilter()))

        async def ask() -> DescribeAclsResponse:
            node_id = await self.network.least_loaded_node()
            response: DescribeAclsResponse = await self.network.send(node_id, request)
            if response.error_code:
                raise error_for(response.error_code, response.error_message, about="ACLs")
            return response

        response = await self.requests.retrying(ask)
        return sorted(
            (
                AclBinding(
                    acl.principal,
                    of_code(AclOperation, acl.operation),
                    of_code(AclResourceType, resource.resource_type),
                    resource.resource_name,
                    of_code(PatternType, resource.pattern_type),
                    acl.host,
                    of_code(AclPermission, acl.permission_type),
                )
                for resource in response.resources
                for acl in resource.acls
            ),
            key=_order,
        )

    async def delete_acls(
        self,
        filters: AclBindingFilter | Iterable[AclBindingFilter],
        *,
        raise_errors: bool = True,
    ) -> Results[AclBindingFilter, list[AclBinding]]:
        """Delete the ACLs that match filters; returns the deleted ACLs by filter.

        Raises ClusterAuthorizationFailed, and Refused if the cluster has no authorizer.
        """
        wanted = each_of(filters, AclBindingFilter, "filters", "AclBindingFilter")

        async def ask(
            asked: list[AclBindingFilter],
        ) -> Outcomes[AclBindingFilter, list[AclBinding]]:
            request = DeleteAclsRequest(
                filters=[DeleteAclsFilter(**_filter(each)) for each in asked]
            )
            response: DeleteAclsResponse = await self.requests.to_controller(request)
            outcomes: Outcomes[AclBindingFilter, list[AclBinding]] = {}
            for each, result in zip(asked, response.filter_results, strict=False):
                code, message = result.error_code, result.error_message
                for matching in result.matching_acls:
                    if matching.error_code and not code:
                        code, message = matching.error_code, matching.error_message
                if code:
                    outcomes[each] = error_for(code, message, about="ACLs")
                else:
                    outcomes[each] = sorted(map(_deleted, result.matching_acls), key=_order)
            return outcomes

        return await self.requests.for_each(dict.fromkeys(wanted), ask, raise_errors)


def _words(kind: AclResourceType) -> str:
    return kind.name.lower().replace("_", " ")


def _order(acl: AclBinding) -> tuple[object, ...]:
    return acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.operation, acl.host


def _creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _deleted(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        acl.principal,
        of_code(AclOperation, acl.operation),
        of_code(AclResourceType, acl.resource_type),
        acl.resource_name,
        of_code(PatternType, acl.pattern_type),
        acl.host,
        of_code(AclPermission, acl.permission_type),
    )
