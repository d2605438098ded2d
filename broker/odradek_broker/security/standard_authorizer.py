"""Kafka's StandardAuthorizer: rights by the ACLs in the cluster's metadata (rules A-60 to A-66),
and the audit log of its decisions.

Clients can cause any number of denials, so the audit log is limited in two ways: a repeated line is
written only at intervals, with the number of repetitions, and the number of all lines per minute is
limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from odradek_broker.request import RequestContext
from odradek_broker.security.acls import (
    Acl,
    AclIndex,
    Bucket,
    acl_host,
    plain_host,
    prefix_keys,
)
from odradek_broker.security.authorizer import Operation, Resource, ResourceType
from odradek_broker.slices import paced
from odradek_protocol.acls import (
    EVERYBODY,
    USER_PREFIX,
    WILDCARD,
    AclPermission,
    PatternType,
)
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.repeated_lines import RepeatedLines

#: For each operation, the other operations whose permission includes this operation (A-20). The
#: table is not used for denials.
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_DENIED_BY = {each: frozenset({each, Operation.ALL}) for each in Operation}
_ALLOWED_BY = {each: _DENIED_BY[each] | _IMPLIED_BY.get(each, frozenset()) for each in Operation}

#: The maximum number of decisions that are kept until an ACL changes. A decision about a name that
#: is too long for a topic is not kept.
_DECISIONS_MAX = 20_000
_NAME_MAX = 249

#: The resource name with which Kafka checks whether a user has a right on resources of any name.
_ANY_NAME = "hardcode"


class AuthorizationDecision(NamedTuple):
    """A decision, and the ACL or setting that it follows from."""

    allowed: bool
    rule: str


_SUPER_USER = AuthorizationDecision(True, "super user")
_NO_ACL_FITS = AuthorizationDecision(False, "no ACL allows it")
_NO_ACLS_DENIED = AuthorizationDecision(False, "the resource has no ACLs")
_NO_ACLS_ALLOWED = AuthorizationDecision(
    True, "the resource has no ACLs (allow.everyone.if.no.acl.found)"
)


class StandardAuthorizer:
    """Decides by ACLs. `super_users`: principals that may do everything. `open_without_acls`: true
    if every user may use resources that have no ACLs."""

    def __init__(
        self,
        acls: AclIndex,
        super_users: Iterable[str],
        audit: AuditLog,
        *,
        open_without_acls: bool = False,
    ) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._no_acls = _NO_ACLS_ALLOWED if open_without_acls else _NO_ACLS_DENIED
        self._audit = audit
        #: The cached decisions. They are valid for one version of the ACLs.
        self._decisions: dict[tuple[str, str, int, int, str], AuthorizationDecision] = {}
        self._version = acls.version

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        """Decide, with a line in the audit log."""
        decision = self._decide(context, operation, resource)
        if not decision.allowed:
            self._tell(self._audit.denied, context, operation, resource, decision)
        elif self._audit.tells_allowed:
            self._tell(self._audit.allowed, context, operation, resource, decision)
        return decision.allowed

    def would_allow(
        self, context: RequestContext, operation: Operation, resource: Resource, /
    ) -> bool:
        """Decide, but write no line about a denial."""
        decision = self._decide(context, operation, resource)
        if decision.allowed and self._audit.tells_allowed:
            self._tell(self._audit.allowed, context, operation, resource, decision)
        return decision.allowed

    async def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        """True if the sender may do the operation on at least one resource of this type (A-64)."""
        whole = Resource(kind, _ANY_NAME)
        if self.would_allow(context, operation, whole):
            return True
        if await self._allows_some(context, operation, kind):
            return True
        decision = AuthorizationDecision(False, f"no ACL allows it for any {kind.name}")
        self._tell(self._audit.denied, context, operation, Resource(kind, WILDCARD), decision)
        return False

    def _tell(
        self,
        tell: Callable[[str, str, str, str, str, str], None],
        context: RequestContext,
        operation: Operation,
        resource: Resource,
        decision: AuthorizationDecision,
    ) -> None:
        tell(
            USER_PREFIX + context.user,
            context.host,
            operation.name,
            f"{resource.type.name}:{resource.name}",
            decision.rule,
            context.api_name,
        )

    def _decide(
        self, context: RequestContext, operation: Operation, resource: Resource
    ) -> AuthorizationDecision:
        decisions = self._decisions
        if self._version != self._acls.version:
            decisions.clear()
            self._version = self._acls.version
        key = (context.user, context.host, operation, *resource)
        found = decisions.get(key)
        if found is None:
            found = self._look_up(context.user, plain_host(context.host), operation, resource)
            if len(resource.name) <= _NAME_MAX:
                if len(decisions) >= _DECISIONS_MAX:
                    decisions.clear()
                decisions[key] = found
        return found

    def _look_up(
        self, user: str, host: str, operation: Operation, resource: Resource
    ) -> AuthorizationDecision:
        principal = USER_PREFIX + user
        if principal in self._super_users:
            return _SUPER_USER
        allowed_by: Acl | None = None
        has_acls = False
        for bucket in self._acls.buckets(resource.type, resource.name):
            has_acls = True
            for acl in _for(bucket, principal, host):
                if acl.permission is AclPermission.DENY:
                    if acl.operation in _DENIED_BY[operation]:
                        return AuthorizationDecision(False, str(acl))
                elif acl.operation in _ALLOWED_BY[operation]:
                    allowed_by = acl
        if allowed_by is not None:
            return AuthorizationDecision(True, str(allowed_by))
        return _NO_ACL_FITS if has_acls else self._no_acls

    async def _allows_some(
        self, context: RequestContext, operation: Operation, kind: ResourceType
    ) -> bool:
        """True if an ACL allows the operation on a name or prefix that no other ACL denies, as in
        Kafka."""
        hosts = (plain_host(context.host), WILDCARD)
        allowed: set[tuple[PatternType, str]] = set()
        denied: set[str] = set()
        denied_prefixes: set[str | bytes] = set()
        lengths: set[int] = set()
        for principal in (USER_PREFIX + context.user, EVERYBODY):
            async for acl in paced(self._acls.of_principal(kind, principal)):
                if acl_host(acl.host) not in hosts or acl.operation not in _DENIED_BY[operation]:
                    continue
                if acl.permission is not AclPermission.DENY:
                    allowed.add((acl.pattern_type, acl.name))
                elif acl.pattern_type is PatternType.LITERAL:
                    denied.add(acl.name)
                else:
                    lengths.add(len(acl.name))
                    denied_prefixes.update(prefix_keys(acl.name, [len(acl.name)]))
        if WILDCARD in denied:
            return False
        if (PatternType.LITERAL, WILDCARD) in allowed:
            return True
        async for pattern, name in paced(allowed):
            fitting = [length for length in lengths if length <= len(name)]
            taken_away = pattern is PatternType.LITERAL and name in denied
            if not taken_away and denied_prefixes.isdisjoint(prefix_keys(name, fitting)):
                return True
        return False


def _for(bucket: Bucket, principal: str, host: str) -> Iterable[Acl]:
    for who in (principal, EVERYBODY):
        for where in (host, WILDCARD):
            yield from bucket.get((who, where), ())


log = structlog.get_logger("odradek.authorizer")

#: The maximum number of log lines per minute that report denials; all clients share it.
_DENIED_LINES_MAX = 200
#: The maximum number of log lines per minute that report permissions; all clients share it.
_ALLOWED_LINES_MAX = 6_000
#: The maximum number of resources whose last denial is kept.
_DENIALS_MAX = 1_000


class AuditLog:
    """The log of denials, and with `logs_allowed` also of permissions. `now_ms`: a monotonic
    clock."""

    def __init__(self, now_ms: Callable[[], float], logs_allowed: Callable[[], bool]) -> None:
        # Half of the lines are for others than a user who asks for ever more names.
        self._denied = RepeatedLines(
            log, _DENIED_LINES_MAX, lambda: now_ms() / 1000, _DENIED_LINES_MAX // 2
        )
        self._allowed = RepeatedLines(log, _ALLOWED_LINES_MAX, lambda: now_ms() / 1000)
        self._logs_allowed = logs_allowed
        self._now_ms = now_ms
        #: The last denial for each resource, such as GROUP:billing, with a long name cut:
        #: (monotonic ms, principal, operation, request).
        self.denials: dict[str, tuple[float, str, str, str]] = {}

    @property
    def tells_allowed(self) -> bool:
        return self._logs_allowed()

    def denied(
        self, principal: str, host: str, operation: str, resource: str, rule: str, request: str
    ) -> None:
        shown = _cut(resource)
        decision = (principal, host, operation, shown, rule)
        self.denials.pop(shown, None)
        if len(self.denials) >= _DENIALS_MAX:
            del self.denials[next(iter(self.denials))]
        self.denials[shown] = self._now_ms(), principal, operation, request
        self._denied.say("info", "denied", decision, _details(*decision, request), principal)

    def allowed(
        self, principal: str, host: str, operation: str, resource: str, rule: str, request: str
    ) -> None:
        decision = (principal, host, operation, _cut(resource), rule)
        self._allowed.say("info", "allowed", decision, _details(*decision, request))


def _details(
    principal: str, host: str, operation: str, resource: str, rule: str, request: str
) -> dict[str, str]:
    return {
        "principal": principal,
        "host": host,
        "operation": operation,
        "resource": resource,
        "request": request,
        "rule": rule,
    }


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[:_NAME_MAX]}..."
