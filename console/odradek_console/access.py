"""Settings with their sources, ACLs, users and quotas; and changes of settings, ACLs and users."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from enum import IntEnum
from operator import itemgetter
from typing import TypeVar

from odradek_client.admin import Admin, ConfigEntry, ConfigResource, QuotaEntity, QuotaName
from odradek_client.admin.acls import AclBinding, AclBindingFilter
from odradek_client.admin.users import (
    SCRAM_MECHANISMS,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek_client.errors import OdradekError
from odradek_client.words import counted
from odradek_console.answers import Column, HttpProblem, Json, page_of
from odradek_console.asked import Asked, View
from odradek_console.changes import PageChange, text_of, whole_of
from odradek_console.sessions import ConsoleSession
from odradek_protocol.acls import (
    CLUSTER_NAME,
    USER_PREFIX,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN
from odradek_protocol.settings import INT32_MAX

T = TypeVar("T")

_KEEP_MS = 3_000
_CHANGES_MAX = 50
#: The maximum lengths of a user's name, of a password and of the texts of an ACL, in characters.
_USER_MAX = 256
_PASSWORD_MAX = 4_096
_ACL_TEXT_MAX = 1_000
#: The maximum number of ACLs that one change deletes.
_DELETED_ACLS_MAX = 500
#: The fields of an ACL that have few values: the part of AclBinding and its type.
_ACL_CODES: dict[str, tuple[str, type[IntEnum]]] = {
    "type": ("resource_type", AclResourceType),
    "pattern": ("pattern_type", PatternType),
    "operation": ("operation", AclOperation),
    "permission": ("permission", AclPermission),
}
_ONLY_IN_FILTERS = ("UNKNOWN", "ANY", "MATCH")
_MECHANISM = "SCRAM-SHA-512"
_NODE = re.compile(r"[0-9]{1,10}")


def _resource(kind: str, name: str) -> ConfigResource:
    """The resource of a kind. A broker is named by its node id; "" means the default of all
    brokers."""
    if kind == "topic":
        return ConfigResource.topic(name)
    if kind == "group":
        return ConfigResource.group(name)
    if kind == "broker" and name == "":
        return ConfigResource.broker(None)
    if kind == "broker" and _NODE.fullmatch(name) and int(name) <= INT32_MAX:
        return ConfigResource.broker(int(name))
    raise HttpProblem(
        400,
        "There are settings of topics, groups and brokers",
        f"not of {kind[:100]!r} {name[:100]!r}",
    )


# --- Settings -------------------------------------------------------------------------------------


async def settings(asked: Asked) -> Json:
    """The settings of a topic, a group or a broker, with the source of each value."""
    kind = asked.query.text("type")
    name = asked.query.text("name", "")
    resource = _resource(kind, name)

    async def ask(admin: Admin) -> dict[str, ConfigEntry]:
        return (await admin.describe_configs(resource, documentation=True))[resource]

    found = await asked.session.cached(("settings", resource), _KEEP_MS, ask)
    return {
        "type": kind,
        "name": name,
        "rows": [_setting(entry) for _, entry in sorted(found.items())],
    }


def _setting(entry: ConfigEntry) -> Json:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower(),
        "is_default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "documentation": entry.documentation,
    }


async def _nodes(asked: Asked) -> Json:
    """The node ids of all brokers, each of which has its own settings."""

    async def ask(admin: Admin) -> list[int]:
        return [broker.node_id for broker in (await admin.describe_cluster()).brokers]

    return {"nodes": await asked.session.cached("nodes", _KEEP_MS, ask)}


def _changes(sent: Json) -> dict[str, str | None]:
    """The requested new values by name of the setting; None restores the default."""
    changes = sent.get("changes")
    if (
        not isinstance(changes, dict)
        or not 1 <= len(changes) <= _CHANGES_MAX
        or not all(value is None or isinstance(value, str) for value in changes.values())
    ):
        raise HttpProblem(400, f"The field changes must have 1 to {_CHANGES_MAX} names with texts")
    return changes


async def _plan_settings(session: ConsoleSession, sent: Json) -> Json:
    kind, name = text_of(sent, "type"), sent.get("name") or ""
    resource, changes = _resource(kind, str(name)), _changes(sent)
    admin = await session.admin()
    await admin.alter_configs({resource: changes}, validate_only=True)
    now = (await admin.describe_configs(resource, names=list(changes)))[resource]
    return {
        "rows": [
            {
                "name": each,
                "from": now[each].value if each in now else None,
                "source": now[each].source.name.lower() if each in now else None,
                "to": value,
            }
            for each, value in sorted(changes.items())
        ]
    }


async def _act_settings(session: ConsoleSession, sent: Json, _plan: Json) -> Json:
    resource = _resource(text_of(sent, "type"), str(sent.get("name") or ""))
    changes = _changes(sent)
    await (await session.admin()).alter_configs({resource: changes})
    return {"text": f"{counted(len(changes), 'setting')} changed"}


# --- Users ----------------------------------------------------------------------------------------


async def _credentials(session: ConsoleSession, user: str) -> dict[str, int]:
    """The iterations of a user's SCRAM credentials, by mechanism; empty if the user has none."""
    admin = await session.admin()
    found = await admin.describe_user_scram_credentials(user, raise_errors=False)
    error = found.errors.get(user)
    if error is not None and error.code is not ErrorCode.RESOURCE_NOT_FOUND:
        raise error
    return {each.mechanism: each.iterations for each in found.get(user, ())}


def _user(sent: Json) -> tuple[str, str]:
    """The user of a change, and the mechanism, or "" if the page has sent none."""
    mechanism = sent.get("mechanism") or ""
    if mechanism not in ("", *SCRAM_MECHANISMS):
        one = f"The field mechanism must be one of {', '.join(SCRAM_MECHANISMS)}"
        raise HttpProblem(400, one)
    return text_of(sent, "user", most=_USER_MAX), mechanism


async def _plan_password(session: ConsoleSession, sent: Json) -> Json:
    user, mechanism = _user(sent)
    text_of(sent, "password", most=_PASSWORD_MAX)
    wanted = whole_of(sent, "iterations")
    there = await _credentials(session, user)
    mechanism = mechanism or _MECHANISM
    iterations = there.get(mechanism, ITERATIONS_MIN) if wanted is None else wanted
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        detail = f"{ITERATIONS_MIN:,} to {ITERATIONS_MAX:,} are allowed"
        raise HttpProblem(400, "The number of iterations is wrong", detail)
    return {
        "user": user,
        "mechanism": mechanism,
        "iterations": iterations,
        "replaces": there.get(mechanism),
        "others": sorted(there.keys() - {mechanism}),
        "own": user == session.user,
    }


async def _act_password(session: ConsoleSession, sent: Json, planned: Json) -> Json:
    user, mechanism = planned["user"], planned["mechanism"]
    password = text_of(sent, "password", most=_PASSWORD_MAX)
    change = UserScramCredentialUpsertion(user, password, mechanism, planned["iterations"])
    await (await session.admin()).alter_user_scram_credentials(change)
    done = "Changed" if planned["replaces"] else "Stored"
    return {"text": f"{done} the password of {user} for {mechanism}"}


async def _plan_user_deletion(session: ConsoleSession, sent: Json) -> Json:
    user, mechanism = _user(sent)
    there = await _credentials(session, user)
    gone = [each for each in there if each == mechanism or not mechanism]
    if not gone:
        detail = f"for {mechanism}" if mechanism else ""
        raise HttpProblem(422, "The user has no password in the cluster", detail)
    return {
        "user": user,
        "mechanisms": gone,
        "others": sorted(there.keys() - set(gone)),
        "own": user == session.user,
    }


async def _act_user_deletion(session: ConsoleSession, _sent: Json, planned: Json) -> Json:
    user, mechanisms = planned["user"], planned["mechanisms"]
    # Brokers accept one change of a user in a request.
    for each in mechanisms:
        await (await session.admin()).alter_user_scram_credentials(
            UserScramCredentialDeletion(user, each)
        )
    return {"text": f"Deleted the password of {user} for {' and '.join(mechanisms)}"}


# --- ACLs -----------------------------------------------------------------------------------------


def _acl_row(acl: AclBinding) -> Json:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "name": acl.name,
        "permission": acl.permission.name.lower(),
        "operation": acl.operation.name.lower(),
        "type": acl.resource_type.name.lower(),
        "pattern": acl.pattern_type.name.lower(),
    }


def _acl_parts(sent: Json) -> Json:
    """The parts of an ACL that a page has sent, by their names in AclBinding."""
    given = {name: value for name, value in sent.items() if value is not None}
    parts: Json = {
        name: text_of(given, name, most=_ACL_TEXT_MAX)
        for name in ("principal", "name", "host")
        if name in given
    }
    if ":" not in parts.get("principal", ":"):
        parts["principal"] = USER_PREFIX + parts["principal"]
    for name, (part, kind) in _ACL_CODES.items():
        if name in given:
            legal = {each.name.lower(): each for each in kind if each.name not in _ONLY_IN_FILTERS}
            if not isinstance(given[name], str) or given[name] not in legal:
                raise HttpProblem(400, f"The field {name} must be one of {', '.join(legal)}")
            parts[part] = legal[given[name]]
    if parts.get("resource_type") is AclResourceType.CLUSTER:
        parts |= {"name": CLUSTER_NAME, "pattern_type": PatternType.LITERAL}
    return parts


def _new_acl(sent: Json) -> AclBinding:
    """The ACL of the fields: literal without a pattern, about all hosts without a host."""
    parts = _acl_parts(sent)
    missing = {"principal", "permission", "operation", "resource_type", "name"} - parts.keys()
    if missing:
        raise HttpProblem(400, f"The ACL lacks its {min(missing).replace('_', ' ')}")
    return AclBinding(**parts)


async def _plan_acl(session: ConsoleSession, sent: Json) -> Json:
    acl = _new_acl(sent)
    if await (await session.admin()).describe_acls(AclBindingFilter(**asdict(acl))):
        raise HttpProblem(422, "There is this ACL already", str(acl))
    return {"acl": _acl_row(acl)}


async def _act_acl(session: ConsoleSession, sent: Json, _planned: Json) -> Json:
    acl = _new_acl(sent)
    await (await session.admin()).create_acls(acl)
    return {"text": f"Added: {acl}"}


async def _acls_to_delete(session: ConsoleSession, sent: Json) -> list[AclBinding]:
    parts = _acl_parts(sent)
    if not parts:
        raise HttpProblem(400, "Say which ACLs", "A field must select some of them.")
    found = await (await session.admin()).describe_acls(AclBindingFilter(**parts))
    if not found:
        raise HttpProblem(422, "There is no such ACL")
    if len(found) > _DELETED_ACLS_MAX:
        detail = f"{len(found):,}, and {_DELETED_ACLS_MAX:,} can be deleted"
        raise HttpProblem(422, "These are too many ACLs at once", detail)
    return found


async def _plan_acl_deletion(session: ConsoleSession, sent: Json) -> Json:
    return {"rows": [_acl_row(acl) for acl in await _acls_to_delete(session, sent)]}


async def _act_acl_deletion(session: ConsoleSession, sent: Json, planned: Json) -> Json:
    # An ACL that was added since the plan stays.
    shown = {tuple(row.values()) for row in planned["rows"]}
    gone = [
        AclBindingFilter(**asdict(acl))
        for acl in await _acls_to_delete(session, sent)
        if tuple(_acl_row(acl).values()) in shown
    ]
    await (await session.admin()).delete_acls(gone)
    return {"text": f"Deleted {counted(len(gone), 'ACL')}"}


# --- Lists ----------------------------------------------------------------------------------------


async def _kept(session: ConsoleSession, key: str, ask: Callable[[Admin], Awaitable[T]]) -> T:
    return await session.cached(key, _KEEP_MS, ask)


_ACL_COLUMNS = {
    name: Column(itemgetter(name))
    for name in ("principal", "permission", "operation", "type", "name", "host")
}


async def _acls(asked: Asked) -> Json:
    try:
        found = await _kept(asked.session, "acls", lambda admin: admin.describe_acls())
    except OdradekError as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        return {"offset": 0, "total": 0, "rows": [], "enforced": False}
    page, about = page_of(
        map(_acl_row, found),
        asked.query,
        _ACL_COLUMNS,
        name=lambda row: f"{row['principal']} {row['type']} {row['name']} {row['operation']}",
        sort="principal",
    )
    return {**about, "rows": list(page), "enforced": True}


async def _users(asked: Asked) -> Json:
    """The users with a password in the cluster; no part of the password is shown."""
    found = await _kept(
        asked.session, "users", lambda admin: admin.describe_user_scram_credentials()
    )
    return {
        "rows": [
            {
                "name": user,
                "credentials": [
                    {"mechanism": each.mechanism, "iterations": each.iterations} for each in infos
                ],
            }
            for user, infos in sorted(found.items())
        ]
    }


async def _quotas(asked: Asked) -> Json:
    found = await _kept(asked.session, "quotas", lambda admin: admin.describe_client_quotas())
    rows = [
        {**_entity(entity), "quotas": dict(sorted(values.items()))}
        for entity, values in found.items()
    ]
    return {
        "rows": sorted(
            rows, key=lambda row: tuple(str(row[k]) for k in ("user", "client_id", "ip"))
        )
    }


def _entity(entity: QuotaEntity) -> Json:
    """The parts of a quota entity: a name, "" for the default, None if the entity lacks the
    part."""
    return {
        part: "" if value is QuotaName.DEFAULT else value
        for part, value in (
            ("user", entity.user),
            ("client_id", entity.client_id),
            ("ip", entity.ip),
        )
    }


VIEWS: dict[str, View] = {
    "/settings": settings,
    "/nodes": _nodes,
    "/acls": _acls,
    "/users": _users,
    "/quotas": _quotas,
}
CHANGES = {
    "/change/settings": PageChange(_plan_settings, _act_settings, frozenset({"changes"})),
    "/change/password": PageChange(_plan_password, _act_password, frozenset({"password"})),
    "/change/user-deletion": PageChange(_plan_user_deletion, _act_user_deletion),
    "/change/acl-creation": PageChange(_plan_acl, _act_acl),
    "/change/acl-deletion": PageChange(_plan_acl_deletion, _act_acl_deletion),
}
