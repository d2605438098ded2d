"""`odradek share list|describe|offsets|consume|dead-letters|redeliver|reset-offsets|delete-offsets|
delete`: the work of kafka-share-groups and kafka-console-share-consumer, and dead letters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.commands import fail
from odradek_cli.common import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientSettings,
    cell,
    end_with,
    open_admin,
    print_rows,
    print_table,
    run,
    tell,
)
from odradek_cli.completion import group_names, topic_names
from odradek_cli.groups.share_reset import reset_offsets
from odradek_cli.options import argument, option
from odradek_cli.records.share_consume import consume
from odradek_cli.records.share_letters import dead_letters, redeliver
from odradek_cli.say import say

if TYPE_CHECKING:
    from odradek_client.admin.groups import GroupDescription
    from odradek_client.errors import OdradekError

app = typer.Typer(help="List, describe, consume, reset, delete share groups.", no_args_is_help=True)
app.command("consume")(consume)
app.command("dead-letters")(dead_letters)
app.command("redeliver")(redeliver)
app.command("reset-offsets")(reset_offsets)

Groups = Annotated[list[str], argument("GROUP", "Group ids.", group_names)]


# --- list -----------------------------------------------------------------------------------------


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    state: Annotated[
        list[str] | None,
        option("--state STATE", "Only groups in this state, such as Stable; repeatable."),
    ] = None,
    verbose: Annotated[bool, option("--verbose -v", "Show state and coordinator too.")] = False,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """Print the ids of all share groups, one in each line."""

    async def main() -> list[dict[str, Any]]:
        async with open_admin(bootstrap, setting) as admin:
            return [
                {
                    "group": each.group_id,
                    "state": each.state,
                    "coordinator_id": each.coordinator,
                }
                for each in await admin.list_groups(states=state or (), types=["share"])
            ]

    rows = run(main())
    if as_json:
        for row in rows:
            say(json.dumps(row))
    elif verbose:
        print_table(
            ["GROUP", "STATE", "COORDINATOR-ID"],
            [[cell(value) for value in row.values()] for row in rows],
        )
    else:
        for row in rows:
            say(row["group"])


# --- describe, offsets ----------------------------------------------------------------------------

_Named = Annotated[
    list[str] | None, argument("NAME", "Group ids. [default: all groups]", group_names)
]


@app.command()
def describe(
    groups: _Named = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """State and members of share groups, with the partitions of each member."""
    rows, errors = run(_describe(bootstrap, groups, setting))
    if as_json:
        for row in rows:
            say(json.dumps(row))
    elif rows:
        _print_members(rows)
    end_with(errors)


async def _describe(
    bootstrap: str, groups: list[str] | None, setting: list[str] | None
) -> tuple[list[dict[str, Any]], list[OdradekError]]:
    async with open_admin(bootstrap, setting) as admin:
        names = groups or [each.group_id for each in await admin.list_groups(types=["share"])]
        described = await admin.describe_share_groups(names, raise_errors=False)
        # If all groups are described, a group that was deleted after they were listed is no error.
        errors = list(described.errors.values()) if groups else []
        return [
            _group_row(described[name]) for name in dict.fromkeys(names) if name in described
        ], errors


def _group_row(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "epoch": group.epoch,
        "assignor": group.assignor,
        "coordinator_id": group.coordinator,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "topics": member.topics,
                "assignment": [
                    {"topic": topic, "partition": index} for topic, index in member.assignment
                ],
            }
            for member in group.members
        ],
    }


def _print_members(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        about = [row["group"], row["state"], str(row["coordinator_id"])]
        if not row["members"]:
            lines.append([*about, "-", "-", "-", "-"])
        for member in row["members"]:
            partitions = ",".join(f"{p['topic']}-{p['partition']}" for p in member["assignment"])
            lines.append(
                [
                    *about,
                    member["member_id"],
                    cell(member["host"]),
                    cell(member["client_id"]),
                    partitions or "-",
                ]
            )
    print_table(
        ["GROUP", "STATE", "COORDINATOR-ID", "CONSUMER-ID", "HOST", "CLIENT-ID", "ASSIGNMENT"],
        lines,
    )


@app.command()
def offsets(
    groups: _Named = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """Show the first offset that each share group has not finished, and its lag.

    LAG is the number of records that the group has not finished: they are available, acquired by a
    member, or not read yet.
    """

    async def main() -> tuple[list[dict[str, Any]], list[Exception]]:
        from odradek_client.errors import OdradekError

        rows: list[dict[str, Any]] = []
        errors: list[Exception] = []
        async with open_admin(bootstrap, setting) as admin:
            names = groups or [each.group_id for each in await admin.list_groups(types=["share"])]
            for name in dict.fromkeys(names):
                try:
                    found = await admin.list_share_group_offsets(name)
                except OdradekError as error:
                    errors.append(error)
                    continue
                rows += [
                    {
                        "group": name,
                        "topic": topic,
                        "partition": partition,
                        "start_offset": None if at is None else at.start_offset,
                        "lag": None if at is None else at.lag,
                    }
                    for (topic, partition), at in found.items()
                ]
        return rows, errors

    rows, errors = run(main())
    print_rows(["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"], rows, as_json=as_json)
    end_with(errors)


# --- delete ---------------------------------------------------------------------------------------


@app.command("delete-offsets")
def delete_offsets(
    group: Annotated[str, argument("GROUP", "Group id.", group_names)],
    topic: Annotated[
        list[str] | None,
        option("--topic -t TOPIC", "The name of a topic; repeatable.", topic_names),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: ClientSettings = None,
) -> None:
    """Delete the state of topics in a share group that has no members."""
    if not topic:
        fail("say which topics: --topic TOPIC", 2)

    async def main() -> tuple[list[str], list[OdradekError]]:
        async with open_admin(bootstrap, setting) as admin:
            done = await admin.delete_share_group_offsets(group, topic, raise_errors=False)
            return list(done), list(done.errors.values())

    deleted, errors = run(main())
    for name in deleted:
        tell(f"deleted the offsets of {group} for {name}")
    end_with(errors)


@app.command()
def delete(
    groups: Groups, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, setting: ClientSettings = None
) -> None:
    """Delete share groups that have no members, and all of their state."""

    async def main() -> tuple[list[str], list[OdradekError]]:
        async with open_admin(bootstrap, setting) as admin:
            # DeleteGroups deletes groups of any type, so it is checked that these are share groups.
            described = await admin.describe_share_groups(groups, raise_errors=False)
            done = await admin.delete_groups(list(described), raise_errors=False)
            return list(done), [*described.errors.values(), *done.errors.values()]

    deleted, errors = run(main())
    for name in deleted:
        tell(f"deleted {name}")
    end_with(errors)
