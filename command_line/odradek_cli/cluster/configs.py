"""`odradek config describe|set|delete`: settings of topics, brokers and groups, and levels of
loggers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    BrokerOptions,
    ValidateOnly,
    assignments,
    cell,
    end_with,
    print_json,
    print_table,
    tell,
)
from odradek_cli.completion import names_of_kind
from odradek_cli.layout import wrap
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say

if TYPE_CHECKING:
    from odradek_client.admin import Admin, ConfigEntry, ConfigResource
    from odradek_client.errors import OdradekError

app = Commands(help="Describe, set, delete settings of topics, brokers, groups.")


class ConfigResourceType(StrEnum):
    """The kinds of resources that have settings."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKER_LOGGER = "broker-logger"
    GROUP = "group"


#: The name that stands for all brokers together.
_DEFAULT = "default"

KindArgument = Annotated[
    ConfigResourceType,
    argument("topic|broker|group|broker-logger", "The type of resource that has the settings."),
]
Name = Annotated[
    str,
    argument(
        "NAME",
        "A topic; a broker's node id, or `default` for all brokers; a group; for loggers a node id.",
        names_of_kind,
    ),
]


@app.command()
def describe(
    brokers: BrokerOptions,
    kind: KindArgument,
    names: Annotated[
        list[str] | None,
        argument(
            "NAME", "Topics, node ids (or `default`), groups; all, if none is named.", names_of_kind
        ),
    ] = None,
    all_of_them: Annotated[
        bool, option("--all -a", "Also settings that have their default value.")
    ] = False,
    keys: Annotated[
        list[str] | None, option("--key -k KEY", "Only this setting; repeatable.")
    ] = None,
    documentation: Annotated[
        bool, option("--doc", "Show the broker's description of each setting.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The settings, and where each comes from.

    SOURCE: dynamic-topic, dynamic-broker, dynamic-default-broker and group are set with `odradek
    config set`; static-broker is in the broker's file or command line; default is Kafka's. Levels
    of loggers are dynamic-broker-logger, and are lost when the broker stops.

    \b
    odradek config describe topic orders
    odradek config describe broker 1 --all
    odradek config describe topic orders --key retention.ms --json
    odradek config describe broker-logger 1
    """
    rows, errors = brokers.ask(
        lambda admin: _describe(admin, kind, names or [], keys, documentation)
    )
    if not all_of_them and not keys:
        rows = [row for row in rows if not row["default"]]
    if as_json:
        print_json(rows)
    elif rows and documentation:
        _print_documented(kind, rows)
    elif rows:
        print_table(
            [kind.upper(), "NAME", "VALUE", "SOURCE"],
            [
                [_shown(row, name) for name in ("resource", "name", "value", "source")]
                for row in rows
            ],
            folds="VALUE",
        )
    elif not errors:
        tell("nothing is set; --all shows the defaults")
    end_with(errors)


@app.command("set")
def set_(
    kind: KindArgument,
    name: Name,
    settings: Annotated[list[str], argument("KEY=VALUE", "Settings and their values.")],
    brokers: BrokerOptions,
    validate_only: ValidateOnly = False,
) -> None:
    """Change settings while the brokers run.

    \b
    odradek config set topic orders retention.ms=86400000 cleanup.policy=delete
    odradek config set broker default log.retention.ms=86400000
    odradek config set group readers consumer.session.timeout.ms=10000
    odradek config set broker-logger 1 odradek.groups=DEBUG
    """
    changes: dict[str, str | None] = dict(assignments(settings, ""))
    _alter(brokers, kind, name, changes, validate_only)


@app.command()
def delete(
    kind: KindArgument,
    name: Name,
    keys: Annotated[list[str], argument("KEY", "Settings.")],
    brokers: BrokerOptions,
) -> None:
    """Remove settings, so that their defaults hold again.

    \b
    odradek config delete topic orders retention.ms
    """
    for key in keys:
        if "=" in key:
            fail(f"{key!r} must be the name of a setting, without a value", 2)
    _alter(brokers, kind, name, dict.fromkeys(keys))


# --- Asking ---------------------------------------------------------------------------------------


async def _resource(admin: Admin, kind: ConfigResourceType, name: str) -> ConfigResource:
    from odradek_client.admin import ConfigResource
    from odradek_client.errors import Refused

    if kind is ConfigResourceType.TOPIC:
        return ConfigResource.topic(name)
    if kind is ConfigResourceType.GROUP:
        return ConfigResource.group(name)
    if name == _DEFAULT and kind is ConfigResourceType.BROKER:
        return ConfigResource.broker(None)
    there = [str(broker.node_id) for broker in (await admin.describe_cluster()).brokers]
    if name not in there:
        or_all = ", or `default` for all" if kind is ConfigResourceType.BROKER else ""
        raise Refused(f"there is no broker {name!r}; give one of {', '.join(there)}{or_all}")
    if kind is ConfigResourceType.BROKER_LOGGER:
        return ConfigResource.broker_logger(int(name))
    return ConfigResource.broker(int(name))


async def _all_names(admin: Admin, kind: ConfigResourceType) -> list[str]:
    if kind is ConfigResourceType.TOPIC:
        return await admin.list_topics()
    if kind is ConfigResourceType.GROUP:
        return [each.group_id for each in await admin.list_groups()]
    return [str(broker.node_id) for broker in (await admin.describe_cluster()).brokers]


async def _describe(
    admin: Admin,
    kind: ConfigResourceType,
    names: list[str],
    keys: list[str] | None,
    documentation: bool,
) -> tuple[list[dict[str, Any]], list[OdradekError]]:
    names = names or await _all_names(admin, kind)
    resources = {name: await _resource(admin, kind, name) for name in names}
    if not resources:
        return [], []
    found = await admin.describe_configs(
        resources.values(), names=keys, documentation=documentation, raise_errors=False
    )
    return [
        _row(kind, name, entry)
        for name, resource in resources.items()
        for entry in sorted(found.get(resource, {}).values(), key=lambda each: each.name)
    ], list(found.errors.values())


def _row(kind: ConfigResourceType, name: str, entry: ConfigEntry) -> dict[str, Any]:
    source = entry.source.name.lower().replace("_", "-")
    return {
        "type": kind.value,
        "resource": name,
        "name": entry.name,
        "value": entry.value,
        "source": "dynamic-topic" if source == "topic" else source,
        "default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        **({} if entry.documentation is None else {"documentation": entry.documentation}),
    }


def _shown(row: dict[str, Any], name: str) -> str:
    if name == "value" and row["sensitive"]:
        return "(hidden)"
    return cell(row.get(name))


def _print_documented(kind: ConfigResourceType, rows: list[dict[str, Any]]) -> None:
    resource = None
    for row in rows:
        if row["resource"] != resource:
            resource = row["resource"]
            say(f"{kind.value} {resource}")
        lines = wrap(f"{row['name']}={_shown(row, 'value')}  ({row['source']})", "  ", " " * 6)
        if row.get("documentation"):
            lines += wrap(row["documentation"], " " * 4)
        say(*lines)


def _alter(
    brokers: BrokerOptions,
    kind: ConfigResourceType,
    name: str,
    changes: dict[str, str | None],
    validate_only: bool = False,
) -> None:
    async def main(admin: Admin) -> None:
        resource = await _resource(admin, kind, name)
        await admin.alter_configs({resource: changes}, validate_only=validate_only)

    brokers.ask(main)
    for key, value in changes.items():
        done = "would set" if validate_only else "set" if value is not None else "took back"
        tell(f"{done} {key}{'' if value is None else f'={value}'} of {kind.value} {name}")
