"""`odradek quota describe|set|delete`: quotas of users, client ids and IP addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, ValidateOnly, assignments, print_rows, tell
from odradek_cli.options import Commands, argument, option

if TYPE_CHECKING:
    from odradek_client.admin.quotas import QuotaEntity, QuotaName

app = Commands(help="Describe, set, delete quotas of users, client ids, addresses.")

#: The name of a default entity in tables. Its quota applies to users, client ids or addresses
#: without a quota of their own.
_DEFAULT = "(default)"


@dataclass(frozen=True)
class QuotaOwner:
    """The options that name a user, a client id or an address."""

    user: Annotated[str | None, option("--user NAME", "A user.")] = None
    user_defaults: Annotated[
        bool, option("--user-defaults", "Users without a quota of their own.")
    ] = False
    client_id: Annotated[str | None, option("--client-id ID", "A client id.")] = None
    client_defaults: Annotated[
        bool, option("--client-defaults", "Client ids without a quota of their own.")
    ] = False
    ip: Annotated[str | None, option("--ip ADDRESS", "An IP address.")] = None
    ip_defaults: Annotated[
        bool, option("--ip-defaults", "Addresses without a quota of their own.")
    ] = False

    def entity(self) -> QuotaEntity | None:
        """The quota entity; None if the options name none."""
        from odradek_client.admin.quotas import QuotaEntity

        entity = QuotaEntity(
            _name("user", self.user, self.user_defaults),
            _name("client-id", self.client_id, self.client_defaults),
            _name("ip", self.ip, self.ip_defaults),
        )
        return None if entity == QuotaEntity() else entity


@app.command()
def describe(
    brokers: BrokerOptions,
    *,
    owner: QuotaOwner,
    strict: Annotated[
        bool,
        option(
            "--strict",
            "Only quotas of exactly these entities, for example not those of a user's clients.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the quotas that are set: all of them, or those of a user, client id or address.

    \b
    odradek quota describe
    odradek quota describe --user alice --strict --json
    """
    wanted = owner.entity()
    found = brokers.ask(lambda admin: admin.describe_client_quotas(wanted, strict=strict))
    rows = [
        {
            "user": _shown(entity.user),
            "client_id": _shown(entity.client_id),
            "ip": _shown(entity.ip),
            "quota": key,
            "value": value,
        }
        for entity, quotas in found.items()
        for key, value in quotas.items()
    ]
    rows.sort(key=lambda row: [str(cell) for cell in row.values()])
    if not as_json:
        rows = [{**row, "value": f"{row['value']:.15g}"} for row in rows]
    print_rows("USER CLIENT-ID IP QUOTA VALUE", rows, as_json=as_json, nothing="no quota is set")


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
    brokers: BrokerOptions,
    *,
    owner: QuotaOwner,
    validate_only: ValidateOnly = False,
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
    _alter(brokers, owner.entity(), changes, validate_only)


@app.command()
def delete(
    keys: Annotated[list[str], argument("KEY", "Quotas.")],
    brokers: BrokerOptions,
    *,
    owner: QuotaOwner,
) -> None:
    """Remove quotas.

    \b
    odradek quota delete --client-id loader producer_byte_rate
    """
    for key in keys:
        if "=" in key:
            fail(f"{key!r} must be the name of a quota, without a value", 2)
    _alter(brokers, owner.entity(), dict.fromkeys(keys))


def _name(option: str, name: str | None, default: bool) -> str | QuotaName | None:
    from odradek_client.admin.quotas import QuotaName

    if name is not None and default:
        fail(f"--{option} names one and its default means the others; give one of them", 2)
    return QuotaName.DEFAULT if default else name


def _shown(name: str | QuotaName | None) -> str | None:
    return name if name is None or isinstance(name, str) else _DEFAULT


def _alter(
    brokers: BrokerOptions,
    entity: QuotaEntity | None,
    changes: dict[str, float | None],
    validate_only: bool = False,
) -> None:
    if entity is None:
        fail("say whose quota it is: --user, --client-id, --ip or their defaults", 2)

    brokers.ask(
        lambda admin: admin.alter_client_quotas({entity: changes}, validate_only=validate_only)
    )
    for key, limit in changes.items():
        done = "would set" if validate_only else "set" if limit is not None else "removed"
        tell(f"{done} {key}{'' if limit is None else f'={limit:.15g}'} of {entity}")
