"""Settings with their sources, ACLs, users and quotas."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import TypeVar

from odradek_client.admin import Admin, ConfigEntry, ConfigResource, QuotaEntity, QuotaName
from odradek_client.errors import OdradekError
from odradek_client.words import counted
from odradek_console.answers import Column, HttpProblem, Json, page_of
from odradek_console.asked import Asked, View
from odradek_console.changes import PageChange, text_of
from odradek_console.sessions import ConsoleSession
from odradek_protocol.errors import ErrorCode
from odradek_protocol.settings import INT32_MAX

T = TypeVar("T")

_KEEP_MS = 3_000
_CHANGES_MAX = 50
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


# --- ACLs, users, quotas --------------------------------------------------------------------------


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
    rows = [
        {
            "principal": acl.principal,
            "permission": acl.permission.name.lower(),
            "operation": acl.operation.name.lower(),
            "type": acl.resource_type.name.lower(),
            "name": acl.name,
            "pattern": acl.pattern_type.name.lower(),
            "host": acl.host,
        }
        for acl in found
    ]
    page, about = page_of(
        rows,
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
CHANGES = {"/change/settings": PageChange(_plan_settings, _act_settings, frozenset({"changes"}))}
