"""An authorizer for tests: a list of rules. DENY overrides ALLOW; what no rule allows is denied."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, Resource, ResourceType

_IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


@dataclass(frozen=True)
class Rule:
    """A rule for a kind of resource.

    `name` is literal; or `*`; or a prefix, if it ends with `*`. `client_id`: None if the rule is
    for every client. Real authorizers check the principal, but a test can choose a client id more
    easily.
    """

    operation: Operation
    type: ResourceType
    name: str = "*"
    client_id: str | None = None
    deny: bool = False

    def matches(self, resource: Resource, client_id: str | None) -> bool:
        if self.type is not resource.type or self.client_id not in (None, client_id):
            return False
        if self.name.endswith("*"):
            return resource.name.startswith(self.name[:-1])
        return resource.name == self.name


class RuleList:
    """An authorizer with rules: some operations imply others, and DENY overrides ALLOW (A-20).

    `asked`: all questions in order.
    """

    def __init__(self, *rules: Rule) -> None:
        self.rules = list(rules)
        self.asked: list[tuple[Operation, Resource]] = []

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        self.asked.append((operation, resource))
        found = [rule for rule in self.rules if rule.matches(resource, context.client_id)]
        if any(rule.deny and rule.operation is operation for rule in found):
            return False
        enough = {operation} | _IMPLIED_BY.get(operation, set())
        return any(not rule.deny and rule.operation in enough for rule in found)

    def would_allow(
        self, context: RequestContext, operation: Operation, resource: Resource, /
    ) -> bool:
        return self.allows(context, operation, resource)

    async def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        return any(
            not rule.deny
            and rule.operation is operation
            and rule.type is kind
            and rule.client_id in (None, context.client_id)
            for rule in self.rules
        )
