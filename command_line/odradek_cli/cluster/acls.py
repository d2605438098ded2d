"""`odradek acl list|add|delete`: who may do what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odradek_cli.cluster.acl_options import (
    WantedOperations,
    Who,
    acls_to_add,
    filters_to_delete,
    filters_to_list,
    named_principals,
    pattern_type_of,
    wanted_operations,
)
from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, print_rows, tell
from odradek_cli.completion import group_names, topic_names
from odradek_cli.options import Commands, option
from odradek_protocol.acls import CLUSTER_NAME, AclResourceType, PatternType

if TYPE_CHECKING:
    from odradek_client.admin import AclBinding, Admin

app = Commands(
    help="List, add, delete ACLs: who may do what. The broker needs an authorizer"
    " (authorizer.class.name)."
)

_ANY_NAMES = "; * for all. Repeatable."
Topics = Annotated[list[str] | None, option("--topic NAME", "A topic" + _ANY_NAMES, topic_names)]
Groups = Annotated[
    list[str] | None, option("--group NAME", "A consumer group" + _ANY_NAMES, group_names)
]
Consumer = Annotated[
    bool, option("--consumer", "What a consumer needs: read, describe on topics; read on groups.")
]


@dataclass(frozen=True)
class ResourceOptions:
    """The options that name resources."""

    topic: Topics = None
    group: Groups = None
    transactional_id: Annotated[
        list[str] | None, option("--transactional-id ID", "A transactional id" + _ANY_NAMES)
    ] = None
    user_principal: Annotated[
        list[str] | None, option("--user-principal NAME", "A user, as a resource" + _ANY_NAMES)
    ] = None
    delegation_token: Annotated[
        list[str] | None, option("--delegation-token ID", "A delegation token" + _ANY_NAMES)
    ] = None
    cluster: Annotated[bool, option("--cluster", "The cluster.")] = False
    pattern_type: Annotated[
        str | None,
        option(
            "--resource-pattern-type TYPE",
            "literal: the exact name; prefixed: names that begin with it; for list and delete also "
            "any, and match: every ACL that applies to the name.",
        ),
    ] = None

    def named(self) -> list[tuple[AclResourceType, str]]:
        """The named resources, by type."""
        named = {
            AclResourceType.TOPIC: self.topic,
            AclResourceType.GROUP: self.group,
            AclResourceType.TRANSACTIONAL_ID: self.transactional_id,
            AclResourceType.USER: self.user_principal,
            AclResourceType.DELEGATION_TOKEN: self.delegation_token,
            AclResourceType.CLUSTER: [CLUSTER_NAME] if self.cluster else None,
        }
        return [(kind, name) for kind, names in named.items() for name in names or ()]


@dataclass(frozen=True)
class RightsOptions:
    """The options that name principals and operations."""

    allow_principal: Annotated[
        list[str] | None,
        option(
            "--allow-principal NAME",
            "The principal to allow: User:alice, or alice; * for everybody.",
        ),
    ] = None
    deny_principal: Annotated[
        list[str] | None, option("--deny-principal NAME", "The principal to deny.")
    ] = None
    allow_host: Annotated[
        list[str] | None, option("--allow-host ADDRESS", "The host to allow. [default: all hosts]")
    ] = None
    deny_host: Annotated[
        list[str] | None, option("--deny-host ADDRESS", "The host to deny. [default: all hosts]")
    ] = None
    operation: Annotated[
        list[str] | None,
        option("--operation NAME", "read, write, describe, ...; repeatable. [default: all]"),
    ] = None
    producer: Annotated[
        bool,
        option(
            "--producer",
            "What a producer needs: write, describe, create on topics; write, describe on transactional ids.",
        ),
    ] = False
    consumer: Consumer = False
    idempotent: Annotated[
        bool, option("--idempotent", "With --producer: idempotent-write on the cluster.")
    ] = False

    def principals(self) -> list[Who]:
        """The allowed and denied principals."""
        return named_principals(
            self.allow_principal, self.allow_host, self.deny_principal, self.deny_host
        )

    def operations(self) -> WantedOperations:
        """The requested operations."""
        return wanted_operations(self.operation, self.producer, self.consumer, self.idempotent)


@app.command("list")
def list_(
    brokers: BrokerOptions,
    *,
    resources: ResourceOptions,
    principal: Annotated[
        list[str] | None, option("--principal NAME", "Only ACLs of this principal; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List ACLs: all of them, or those that apply to a topic, group or other resource.

    \b
    odradek acl list
    odradek acl list --topic orders --principal alice --json
    """
    pattern = pattern_type_of(resources.pattern_type, PatternType.MATCH)
    filters = list(filters_to_list(resources.named(), pattern, principal))

    async def main(admin: Admin) -> list[AclBinding]:
        found: dict[AclBinding, None] = {}
        for each in filters:
            found |= dict.fromkeys(await admin.describe_acls(each))
        return list(found)

    _show(brokers.ask(main), as_json)


@app.command()
def add(brokers: BrokerOptions, *, rights: RightsOptions, resources: ResourceOptions) -> None:
    """Allow or deny. A denial overrides every permission.

    \b
    odradek acl add --allow-principal alice --operation read --topic orders
    odradek acl add --allow-principal loader --producer --topic raw. \\
        --resource-pattern-type prefixed
    odradek acl add --allow-principal reports --consumer --topic orders --group reports
    odradek acl add --deny-principal '*' --deny-host 192.0.2.7 --topic '*'
    """
    acls = acls_to_add(
        rights.principals(),
        resources.named(),
        pattern_type_of(resources.pattern_type, PatternType.LITERAL, for_new=True),
        rights.operations(),
    )

    brokers.ask(lambda admin: admin.create_acls(acls))
    for acl in acls:
        tell(f"added: {acl}")


@app.command()
def delete(
    brokers: BrokerOptions,
    *,
    rights: RightsOptions,
    resources: ResourceOptions,
    every: Annotated[
        bool, option("--all", "Delete every ACL; only without options that select some.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the ACLs that match the options. Fewer options match more ACLs.

    \b
    odradek acl delete --allow-principal alice --operation read --topic orders
    odradek acl delete --allow-principal alice
    odradek acl delete --topic raw. --resource-pattern-type prefixed
    """
    named, whos = resources.named(), rights.principals()
    if not (every or named or whos or rights.operation or rights.producer or rights.consumer):
        fail("say which ACLs: a resource, a principal or an operation; --all for every one", 2)
    pattern = pattern_type_of(resources.pattern_type, PatternType.LITERAL)
    filters = filters_to_delete(whos, named, pattern, rights.operations())

    async def main(admin: Admin) -> list[AclBinding]:
        deleted = await admin.delete_acls(filters)
        return list(dict.fromkeys(acl for acls in deleted.values() for acl in acls))

    gone = brokers.ask(main)
    if as_json:
        _show(gone, as_json)
        return
    for acl in gone:
        tell(f"deleted: {acl}")
    if not gone:
        tell("there is no such ACL")


# --- What is printed ---


def _show(acls: list[AclBinding], as_json: bool) -> None:
    rows = [
        {
            "principal": acl.principal,
            "permission": acl.permission.name.lower(),
            "operation": acl.operation.name.lower(),
            "resource": acl.resource_type.name.lower(),
            "name": acl.name,
            "pattern": acl.pattern_type.name.lower(),
            "host": acl.host,
        }
        for acl in acls
    ]
    headings = "PRINCIPAL PERMISSION OPERATION RESOURCE NAME PATTERN HOST"
    print_rows(headings, rows, as_json=as_json, nothing="there are no ACLs", drop="HOST")
