"""Parsing of the options of `odradek acl` into ACLs and filters of ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek_cli.commands import fail
from odradek_protocol.acls import (
    CLUSTER_NAME,
    USER_PREFIX,
    WILDCARD,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

if TYPE_CHECKING:
    from odradek_client.admin import AclBinding, AclBindingFilter


_ANYWHERE: list[str | None] = [None]


@dataclass(frozen=True)
class Who:
    """Principals, the hosts from which they connect, and the permission that the options give
    them."""

    permission: AclPermission
    principals: list[str]
    hosts: list[str]


def pattern_type_of(
    text: str | None, default: PatternType, *, for_new: bool = False
) -> PatternType:
    """The pattern type that a text names. Ends the program if it names none."""
    legal = [PatternType.LITERAL, PatternType.PREFIXED]
    if not for_new:
        legal += [PatternType.ANY, PatternType.MATCH]
    if text is None:
        return default
    for each in legal:
        if each.name == text.strip().upper():
            return each
    names = ", ".join(each.name.lower() for each in legal)
    return fail(f"--resource-pattern-type is {text!r}; it must be one of {names}", 2)


def full_name(name: str) -> str:
    """A principal with its type: User:alice for alice."""
    return name if ":" in name else USER_PREFIX + name


def named_principals(
    allowed: list[str] | None,
    allowed_hosts: list[str] | None,
    denied: list[str] | None,
    denied_hosts: list[str] | None,
) -> list[Who]:
    """The principals that the options allow and deny. Ends the program if hosts are given without a
    principal."""
    found = []
    for permission, principals, hosts in (
        (AclPermission.ALLOW, allowed, allowed_hosts),
        (AclPermission.DENY, denied, denied_hosts),
    ):
        if hosts and not principals:
            word = permission.name.lower()
            fail(f"--{word}-host is for a --{word}-principal, and there is none", 2)
        if principals:
            found.append(Who(permission, [full_name(each) for each in principals], hosts or []))
    return found


#: The operations of --producer and --consumer, by type of resource.
_PRODUCER = {
    AclResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMER = {
    AclResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    AclResourceType.GROUP: (AclOperation.READ,),
}


@dataclass(frozen=True)
class WantedOperations:
    """The requested operations. `by_type`: the operations of --producer or --consumer, by type of
    resource. `given`: the operations of --operation, for every type of resource, if `by_type` is
    empty."""

    given: list[AclOperation]
    by_type: dict[AclResourceType, list[AclOperation]]
    idempotent: bool

    def of(self, kind: AclResourceType) -> list[AclOperation]:
        """The requested operations on a type of resource."""
        return self.by_type.get(kind, []) if self.by_type else self.given


def wanted_operations(
    operations: list[str] | None, producer: bool, consumer: bool, idempotent: bool
) -> WantedOperations:
    """The operations that the options request. Ends the program if the given options exclude each
    other."""
    if idempotent and not producer:
        fail("--idempotent goes with --producer", 2)
    if operations and (producer or consumer):
        fail("--producer and --consumer say the operations; leave --operation out", 2)
    by_type: dict[AclResourceType, list[AclOperation]] = {}
    for chosen, rights in ((producer, _PRODUCER), (consumer, _CONSUMER)):
        for kind, needed in rights.items() if chosen else ():
            held = by_type.setdefault(kind, [])
            held += [each for each in needed if each not in held]
    return WantedOperations([one_operation(text) for text in operations or ()], by_type, idempotent)


def one_operation(text: str) -> AclOperation:
    """The operation with this name in any spelling. Ends the program if there is none."""
    name = text.strip().upper().replace("-", "_")
    # Kafka's tools write the names without underscores, for example DescribeConfigs.
    for each in AclOperation:
        if each > AclOperation.ANY and each.name.replace("_", "") == name.replace("_", ""):
            return each
    legal = ", ".join(each.name.lower() for each in AclOperation if each > AclOperation.ANY)
    return fail(f"--operation is {text!r}; it must be one of {legal}", 2)


def acls_to_add(
    whos: list[Who],
    resources: list[tuple[AclResourceType, str]],
    pattern: PatternType,
    wanted: WantedOperations,
) -> list[AclBinding]:
    """The ACLs to add. Ends the program if a part of an ACL is missing in the options."""
    from odradek_client.admin import AclBinding

    if not whos:
        fail("say who: --allow-principal or --deny-principal", 2)
    if not resources:
        fail("say what: --topic, --group, --transactional-id, --cluster, ...", 2)
    rights = [
        (kind, name, operation)
        for kind, name in resources
        for operation in wanted.of(kind) or ([] if wanted.by_type else [AclOperation.ALL])
    ]
    if wanted.idempotent:
        rights.append((AclResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE))
    for kind in wanted.by_type:
        if kind is not AclResourceType.TRANSACTIONAL_ID and kind not in dict(resources):
            fail(f"--producer and --consumer need a --{kind.name.lower()}", 2)
    return [
        AclBinding(
            principal,
            operation,
            kind,
            name,
            PatternType.LITERAL if kind is AclResourceType.CLUSTER else pattern,
            host,
            who.permission,
        )
        for who in whos
        for principal in who.principals
        for host in who.hosts or [WILDCARD]
        for kind, name, operation in rights
    ]


def filters_to_list(
    resources: list[tuple[AclResourceType, str]],
    pattern: PatternType,
    principals: Iterable[str] | None,
) -> Iterator[AclBindingFilter]:
    """Filters that select the ACLs of the named resources and principals. Without resources they
    select the ACLs of all resources, and without principals those of all principals."""
    from odradek_client.admin import AclBindingFilter

    who: list[str | None] = [full_name(each) for each in principals or ()]
    who = who or [None]
    for principal in who:
        if not resources:
            anything = PatternType.ANY if pattern is PatternType.MATCH else pattern
            yield AclBindingFilter(pattern_type=anything, principal=principal)
        for kind, name in resources:
            yield AclBindingFilter(kind, name, pattern, principal)


def filters_to_delete(
    whos: list[Who],
    resources: list[tuple[AclResourceType, str]],
    pattern: PatternType,
    wanted: WantedOperations,
) -> list[AclBindingFilter]:
    """Filters for the ACLs to delete. Ends the program if the options select none."""
    from odradek_client.admin import AclBindingFilter

    rights: list[tuple[AclResourceType, str | None, PatternType, AclOperation]] = []
    for kind, name in resources:
        own = PatternType.LITERAL if kind is AclResourceType.CLUSTER else pattern
        operations = wanted.of(kind) or ([] if wanted.by_type else [AclOperation.ANY])
        rights += [(kind, name, own, operation) for operation in operations]
    if not resources:
        for operation in wanted.given or [AclOperation.ANY]:
            rights.append((AclResourceType.ANY, None, PatternType.ANY, operation))
    if wanted.by_type and not resources:
        fail("--producer and --consumer need the resources that they are about", 2)
    if wanted.idempotent:
        idempotent = AclOperation.IDEMPOTENT_WRITE
        rights.append((AclResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, idempotent))
    anybody: list[tuple[AclPermission, str | None, str | None]] = [
        (who.permission, principal, host)
        for who in whos
        for principal in who.principals
        for host in who.hosts or _ANYWHERE
    ]
    return [
        AclBindingFilter(kind, name, own, principal, host, operation, permission)
        for permission, principal, host in anybody or [(AclPermission.ANY, None, None)]
        for kind, name, own, operation in rights
    ]
