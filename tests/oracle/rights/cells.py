"""The cells of a case: one scenario for each user."""

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

#: The connection of the tested user; all other connections belong to the super user.
USER = "user"
#: Stands for the user's principal in values.
PRINCIPAL = "$principal"


@dataclass(frozen=True)
class Right:
    """A right; with `deny`, the denial of a right. `name` may be a name of the scenario, such as
    `@t`."""

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
    """A request, and all rights that it needs.

    `before`: preparing steps. `after`: requests that show the effect. The super user sends both.
    `versions`: the versions for the user without rights and the one with all rights; by default all
    versions. `extra`: name of a further user -> the user's rights. `ignore`: paths in the user's
    answer that are not compared. `only`: the users to try, by default all.
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
    """A case played as one user. `who`: the kind of user."""

    case: Case
    who: str
    scenario: Scenario

    @property
    def name(self) -> str:
        return self.scenario.name


def cells(case: Case) -> list[Cell]:
    """The cells of all users of a case.

    The user without rights and the one with all rights send the request in every version, the
    others only in the newest one.
    """
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
    """A right as an element of a CreateAcls request."""
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
    """Preparing steps: create these ACLs, and wait until the broker applies them."""
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
