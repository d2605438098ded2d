"""Cells of a case: one scenario for each user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracle.script import APIS_BY_NAME, Ask, Scenario, Step

from odradek_protocol.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

#: The connection of the tested user; all others are the super user's.
USER = "user"
#: The placeholder for the user's principal in values.
PRINCIPAL = "$principal"


@dataclass(frozen=True)
class Right:
    """One right, or with `deny` its denial; `name` as in a scenario."""

    kind: AclResourceType
    operation: AclOperation
    name: str = CLUSTER_NAME
    pattern: PatternType = PatternType.LITERAL
    deny: bool = False
    host: str = "*"
    principal: str = PRINCIPAL


def topic_right(operation: str, name: str = "@t") -> Right:
    return Right(AclResourceType.TOPIC, AclOperation[operation], name)


def group_right(operation: str, name: str = "@g") -> Right:
    return Right(AclResourceType.GROUP, AclOperation[operation], name)


def id_right(operation: str, name: str = "@id") -> Right:
    return Right(AclResourceType.TRANSACTIONAL_ID, AclOperation[operation], name)


def cluster_right(operation: str) -> Right:
    return Right(AclResourceType.CLUSTER, AclOperation[operation])


@dataclass(frozen=True)
class Case:
    """A request, and the rights that it needs together.

    `before`: preparation; `after`: requests that show the effect. Both are the super user's.
    `versions`: those for the user without rights, and for the one with all; all versions by
    default. `extra`: further users, by name: their rights. `ignore`: paths in the user's answer
    that are not compared. `only`: only these users.
    """

    name: str
    api: str
    body: Mapping[str, Any]
    rights: Sequence[Right] = ()
    before: Sequence[Step] = ()
    after: Sequence[Step] = ()
    versions: str = ""
    extra: Mapping[str, Sequence[Right]] = field(default_factory=dict)
    ignore: Sequence[str] = ()
    mine: bool = False
    only: Sequence[str] = ()

    @property
    def request(self) -> Ask:
        return Ask(self.api, self.body, on=USER, ignore=self.ignore, mine=self.mine)


@dataclass(frozen=True)
class Cell:
    """One user's turn. `who`: the kind of user."""

    case: Case
    who: str
    scenario: Scenario

    @property
    def name(self) -> str:
        return self.scenario.name


def cells(case: Case) -> list[Cell]:
    """All users of a case: without rights and with all of them in every version, the others in the
    newest."""
    return [cell for cell in _cells(case) if not case.only or cell.who in case.only]


def _cells(case: Case) -> Iterator[Cell]:
    newest = APIS_BY_NAME[case.api].versions.last
    if case.versions:
        newest = int(case.versions.rpartition("-")[2])
    versions = case.versions
    yield _cell(case, "nobody", [], versions)
    yield _cell(case, "granted", _acls(case.rights), versions)
    newest_only = str(newest)
    for index, right in enumerate(case.rights):
        if len(case.rights) > 1:
            others = [*case.rights[:index], *case.rights[index + 1 :]]
            yield _cell(case, f"lacks-{_short(right)}", _acls(others), newest_only)
        denied = _acls([*case.rights, replace(right, deny=True)])
        yield _cell(case, f"denied-{_short(right)}", denied, newest_only)
    for name, rights in case.extra.items():
        yield _cell(case, name, _acls(rights), newest_only)
    yield _cell(case, "super", [], newest_only)
    yield _cell(case, "anonymous", [], newest_only)


def _short(right: Right) -> str:
    name = right.name.lstrip("@$").replace("kafka-cluster", "cluster")
    return f"{right.operation.name.lower()}-{name}".replace("_", "-")


def acl(right: Right) -> dict[str, Any]:
    """A right as a CreateAcls element."""
    return {
        "resource_type": int(right.kind),
        "resource_name": right.name,
        "resource_pattern_type": int(right.pattern),
        "principal": right.principal,
        "host": right.host,
        "operation": int(right.operation),
        "permission_type": int(AclPermission.DENY if right.deny else AclPermission.ALLOW),
    }


def _acls(rights: Sequence[Right]) -> list[dict[str, Any]]:
    return [acl(right) for right in rights]


def created(acls: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Preparation: create these ACLs, and wait until the broker applies them."""
    if not acls:
        return []
    last = acls[-1]
    seen = {
        "resource_type_filter": last["resource_type"],
        "resource_name_filter": last["resource_name"],
        "pattern_type_filter": last["resource_pattern_type"],
        "principal_filter": last["principal"],
        "host_filter": last["host"],
        "operation": last["operation"],
        "permission_type": last["permission_type"],
    }
    return [
        Ask("CreateAcls", {"creations": list(acls)}, quiet=True, version=3),
        Ask(
            "DescribeAcls",
            seen,
            quiet=True,
            version=3,
            until={"resources.0.acls.0.operation": last["operation"]},
        ),
    ]


def _cell(case: Case, who: str, acls: Sequence[Mapping[str, Any]], versions: str) -> Cell:
    steps = [*case.before, *created(acls), case.request, *case.after]
    return Cell(case, who, Scenario(f"{case.name}-{who}", case.api, steps, versions))
