"""`odradek client-metrics list|describe|alter|delete|show`: the metrics that brokers request from
clients, and the metrics that clients push."""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, print_json, print_rows, print_table, tell
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say
from odradek_protocol.primitives import uuid_text

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.admin.telemetry import PushingClient

app = Commands(help="Subscribe to metrics of clients, and show them.")


@app.command("list")
def list_(brokers: BrokerOptions, as_json: AsJson = False) -> None:
    """The names of the subscriptions.

    \b
    odradek client-metrics list
    """

    names = brokers.ask(lambda admin: admin.list_client_metrics())
    for name in names:
        say(json.dumps({"name": name}) if as_json else name)
    if not names and not as_json:
        tell("there is no subscription; odradek client-metrics alter makes one")


@app.command()
def describe(
    brokers: BrokerOptions,
    name: Annotated[
        str | None, argument("NAME", "The name of a subscription. [default: all]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The settings of subscriptions: which metrics, from which clients, how often.

    \b
    odradek client-metrics describe
    odradek client-metrics describe producers --json
    """

    async def main(admin: Admin) -> list[dict[str, Any]]:
        from odradek_client.admin import ConfigResource

        names = await admin.list_client_metrics()
        if name is not None:
            if name not in names:
                fail(f"there is no subscription {name!r}; odradek client-metrics list has all")
            names = [name]
        if not names:
            return []
        resources = {each: ConfigResource.client_metrics(each) for each in names}
        found = await admin.describe_configs(resources.values())
        return [
            {"name": each, **{entry.name: entry.value or "" for entry in found[resource].values()}}
            for each, resource in resources.items()
        ]

    rows = brokers.ask(main)
    nothing = "there is no subscription; odradek client-metrics alter makes one"
    print_rows(
        "NAME METRICS INTERVAL.MS MATCH",
        rows,
        as_json=as_json,
        nothing=nothing,
        folds="METRICS MATCH",
    )


@app.command()
def alter(
    brokers: BrokerOptions,
    name: Annotated[
        str | None, argument("NAME", "The name of a new or existing subscription.")
    ] = None,
    generate_name: Annotated[
        bool, option("--generate-name", "Generate a name, and print it.")
    ] = False,
    metrics: Annotated[
        str | None,
        option(
            "--metrics M1,M2", "Prefixes of the metrics that clients push; * for all; empty: none."
        ),
    ] = None,
    interval: Annotated[
        str | None,
        option(
            "--interval MS",
            "Time between two pushes in milliseconds: 100 to 3600000; empty: 300000.",
        ),
    ] = None,
    match: Annotated[
        str | None,
        option(
            "--match K1=P1,K2=P2",
            "The clients: patterns of client_id, client_instance_id, client_software_name,"
            " client_software_version, client_source_address, client_source_port; empty: all.",
        ),
    ] = None,
) -> None:
    """Create or change a subscription. Settings that are not given stay as they are.

    \b
    odradek client-metrics alter producers --metrics org.apache.kafka.producer. --interval 30000
    odradek client-metrics alter slow-ones --metrics '*' --match 'client_id=loader-.*'
    odradek client-metrics alter producers --interval ''
    """
    if (name is None) != generate_name:
        fail("give either NAME or --generate-name", 2)
    if name is None:
        name = uuid_text(uuid.uuid4().bytes)
    given = {"metrics": metrics, "interval.ms": interval, "match": match}
    changes = {key: value or None for key, value in given.items() if value is not None}
    if not changes:
        fail("nothing to change: give --metrics, --interval or --match", 2)
    _alter(name, changes, brokers)
    if generate_name:
        say(name)
    tell(f"altered the subscription {name}")


@app.command()
def delete(
    name: Annotated[str, argument("NAME", "The name of a subscription.")], brokers: BrokerOptions
) -> None:
    """Delete a subscription; its clients stop pushing at their next interval.

    \b
    odradek client-metrics delete producers
    """
    _alter(name, dict.fromkeys(("interval.ms", "match", "metrics")), brokers, known=True)
    tell(f"deleted the subscription {name}")


def _alter(
    name: str, changes: dict[str, str | None], brokers: BrokerOptions, *, known: bool = False
) -> None:
    """Change a subscription. With `known`, the program ends if the subscription does not exist."""

    async def main(admin: Admin) -> None:
        from odradek_client.admin import ConfigResource

        if known and name not in await admin.list_client_metrics():
            fail(f"there is no subscription {name!r}; odradek client-metrics list has all")
        await admin.alter_configs({ConfigResource.client_metrics(name): changes})

    brokers.ask(main)


@app.command()
def show(
    brokers: BrokerOptions,
    client_instance_id: Annotated[
        str | None, argument("CLIENT_INSTANCE_ID", "The id of a client instance. [default: all]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The clients that push metrics, or the metrics of one client.

    Only brokers of Odradek have this list. With --json each client and each metric is one object.

    \b
    odradek client-metrics show
    odradek client-metrics show mcWZLyBFQLaDCSRTR2Jn6A
    """
    if client_instance_id is None:
        _show_clients(brokers, as_json)
    else:
        _show_metrics(client_instance_id, brokers, as_json)


def _show_clients(brokers: BrokerOptions, as_json: bool) -> None:
    clients = brokers.ask(lambda admin: admin.list_pushing_clients())
    if as_json:
        print_json(map(dataclasses.asdict, clients))
    elif clients:
        print_table(
            ["CLIENT-INSTANCE-ID", "CLIENT-ID", "SOFTWARE", "HOST", "PUSHES", "LAST", "METRICS"],
            [
                [
                    client.client_instance_id,
                    client.client_id or "-",
                    f"{client.software_name} {client.software_version}",
                    client.host,
                    str(client.pushes),
                    _last(client),
                    str(client.series),
                ]
                for client in clients
            ],
            drop="HOST SOFTWARE",
        )
    else:
        tell("no client pushes metrics; odradek client-metrics alter subscribes to them")


def _last(client: PushingClient) -> str:
    """The age of the last push, with a note if the client has ended."""
    age_ms = client.last_push_age_ms
    text = "-" if age_ms is None else f"{age_ms / 1000:.1f}s ago"
    return f"{text} (gone)" if client.gone else text


def _show_metrics(client_instance_id: str, brokers: BrokerOptions, as_json: bool) -> None:
    client, metrics = brokers.ask(lambda admin: admin.describe_pushing_client(client_instance_id))
    if as_json:
        print_json([dataclasses.asdict(client), *map(dataclasses.asdict, metrics)])
        return
    tell(
        f"{client.client_id or 'a client'} ({client.software_name} {client.software_version}) at"
        f" {client.host}:{client.port}: {client.pushes} pushes, the last {_last(client)},"
        f" {client.last_push_bytes} bytes"
    )
    if client.left_out:
        tell(f"{client.left_out} metrics of the last push are not kept: there are limits")
    print_table(
        ["METRIC", "LABELS", "VALUE"],
        [
            [
                metric.source,
                ", ".join(f"{name}={value}" for name, value in metric.labels.items()) or "-",
                f"{metric.value:g}",
            ]
            for metric in metrics
        ],
        folds="LABELS",
    )
