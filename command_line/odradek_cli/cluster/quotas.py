"""`odradek quota describe|set|delete`: quotas of users, client ids and IP addresses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.commands import fail
from odradek_cli.common import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientSettings,
    ValidateOnly,
    assignments,
    open_admin,
    print_table,
    run,
    tell,
)
from odradek_cli.options import argument, option
from odradek_cli.say import say

if TYPE_CHECKING:
    from odradek_client.admin.quotas import QuotaEntity, QuotaName

app = typer.Typer(
    help="Describe, set, delete quotas of users, client ids, addresses.", no_args_is_help=True
)

#: The name of a default entity in tables. Its quota applies to users, client ids or addresses
#: without a quota of their own.
_DEFAULT = "(default)"

User = Annotated[str | None, option("--user NAME", "A user.")]
UserDefaults = Annotated[bool, option("--user-defaults", "Users without a quota of their own.")]
ClientId = Annotated[str | None, option("--client-id ID", "A client id.")]
ClientDefaults = Annotated[
    bool, option("--client-defaults", "Client ids without a quota of their own.")
]
Ip = Annotated[str | None, option("--ip ADDRESS", "An IP address.")]
IpDefaults = Annotated[bool, option("--ip-defaults", "Addresses without a quota of their own.")]


@app.command()
def describe(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    strict: Annotated[
        bool,
        option(
            "--strict",
            "Only quotas of exactly these entities, for example not those of a user's clients.",
        ),
    ] = False,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """Show the quotas that are set: all of them, or those of a user, client id or address.

    \b
    odradek quota describe
    odradek quota describe --user alice --strict --json
    """
    wanted = _entity(user, user_defaults, client_id, client_defaults, ip, ip_defaults)

    async def main() -> dict[QuotaEntity, dict[str, float]]:
        async with open_admin(bootstrap, setting) as admin:
            return await admin.describe_client_quotas(wanted, strict=strict)

    rows = [
        {
            "user": _shown(entity.user),
            "client_id": _shown(entity.client_id),
            "ip": _shown(entity.ip),
            "quota": key,
            "value": value,
        }
        for entity, quotas in run(main()).items()
        for key, value in quotas.items()
    ]
    rows.sort(key=lambda row: [str(cell) for cell in row.values()])
    if as_json:
        for row in rows:
            say(json.dumps(row))
    elif rows:
        columns = ["user", "client_id", "ip", "quota", "value"]
        print_table(
            [name.upper().replace("_", "-") for name in columns],
            [[_cell(row[name]) for name in columns] for row in rows],
        )
    else:
        tell("no quota is set")


@app.command("set")
def set_(
    quotas: Annotated[
        list[str],
        argument(
            "KEY=VALUE",
            "producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage,"
            " controller_mutation_rate (partitions per second); of addresses"
            " connection_creation_rate (per second).",
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    validate_only: ValidateOnly = False,
    setting: ClientSettings = None,
) -> None:
    """Set quotas, which take effect immediately.

    \b
    odradek quota set --client-id loader producer_byte_rate=1048576
    odradek quota set --user alice --client-defaults request_percentage=25
    odradek quota set --ip-defaults connection_creation_rate=10
    """
    changes: dict[str, float | None] = {}
    for key, text in assignments(quotas, "").items():
        try:
            changes[key] = float(text)
        except ValueError:
            fail(f"{key} is {text!r}; it must be a number", 2)
    entity = _entity(user, user_defaults, client_id, client_defaults, ip, ip_defaults)
    _alter(entity, changes, bootstrap, validate_only, setting)


@app.command()
def delete(
    keys: Annotated[list[str], argument("KEY", "Quotas.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    setting: ClientSettings = None,
) -> None:
    """Remove quotas.

    \b
    odradek quota delete --client-id loader producer_byte_rate
    """
    for key in keys:
        if "=" in key:
            fail(f"{key!r} must be the name of a quota, without a value", 2)
    entity = _entity(user, user_defaults, client_id, client_defaults, ip, ip_defaults)
    _alter(entity, dict.fromkeys(keys), bootstrap, False, setting)


def _entity(
    user: str | None,
    user_defaults: bool,
    client_id: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> QuotaEntity | None:
    """The quota entity that the options name; None if they name none."""
    from odradek_client.admin.quotas import QuotaEntity

    entity = QuotaEntity(
        _name("user", user, user_defaults),
        _name("client-id", client_id, client_defaults),
        _name("ip", ip, ip_defaults),
    )
    return None if entity == QuotaEntity() else entity


def _name(option: str, name: str | None, default: bool) -> str | QuotaName | None:
    from odradek_client.admin.quotas import QuotaName

    if name is not None and default:
        fail(f"--{option} names one and its default means the others; give one of them", 2)
    return QuotaName.DEFAULT if default else name


def _shown(name: str | QuotaName | None) -> str | None:
    return name if name is None or isinstance(name, str) else _DEFAULT


def _cell(value: str | float | None) -> str:
    return f"{value:.15g}" if isinstance(value, float) else value or "-"


def _alter(
    entity: QuotaEntity | None,
    changes: dict[str, float | None],
    bootstrap: str,
    validate_only: bool,
    setting: list[str] | None,
) -> None:
    if entity is None:
        fail("say whose quota it is: --user, --client-id, --ip or their defaults", 2)

    async def main() -> None:
        async with open_admin(bootstrap, setting) as admin:
            await admin.alter_client_quotas({entity: changes}, validate_only=validate_only)

    run(main())
    for key, limit in changes.items():
        done = "would set" if validate_only else "set" if limit is not None else "removed"
        tell(f"{done} {key}{'' if limit is None else f'={limit:.15g}'} of {entity}")
