"""`odradek share list|describe|offsets|consume|dead-letters|redeliver|reset-offsets|delete-offsets|
delete`: the work of kafka-share-groups and kafka-console-share-consumer, and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    BrokerOptions,
    cell,
    end_with,
    print_json,
    print_rows,
    print_table,
    tell,
)
from odradek_cli.completion import group_names, topic_names
from odradek_cli.groups.share_reset import reset_offsets
from odradek_cli.options import Commands, argument, option
from odradek_cli.records.share_consume import consume
from odradek_cli.records.share_letters import dead_letters, redeliver
from odradek_cli.say import say

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.admin.groups import GroupDescription
    from odradek_client.errors import OdradekError

app = Commands(help="List, describe, consume, reset, delete share groups.")
app.command("consume")(consume)
app.command("dead-letters")(dead_letters)
app.command("redeliver")(redeliver)
app.command("reset-offsets")(reset_offsets)


# --- list -----------------------------------------------------------------------------------------


@app.command("list")
def list_(
    brokers: BrokerOptions,
    state: Annotated[
        list[str] | None,
        option("--state STATE", "Only groups in this state, such as Stable; repeatable."),
    ] = None,
    verbose: Annotated[bool, option("--verbose -v", "Show state and coordinator too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the ids of all share groups, one in each line."""

    found = brokers.ask(lambda admin: admin.list_groups(states=state or (), types=["share"]))
    rows: list[dict[str, Any]] = [
        {"group": each.group_id, "state": each.state, "coordinator_id": each.coordinator}
        for each in found
    ]
    if verbose or as_json:
        print_rows("GROUP STATE COORDINATOR-ID", rows, as_json=as_json, nothing=None)
    else:
        for row in rows:
            say(row["group"])


# --- describe, offsets ----------------------------------------------------------------------------

_Named = Annotated[
    list[str] | None, argument("NAME", "Group ids. [default: all groups]", group_names)
]


@app.command()
def describe(brokers: BrokerOptions, groups: _Named = None, as_json: AsJson = False) -> None:
    """State and members of share groups, with the partitions of each member."""
    rows, errors = brokers.ask(lambda admin: _describe(admin, groups))
    if as_json:
        print_json(rows)
    elif rows:
        _print_members(rows)
    end_with(errors)


async def _describe(
    admin: Admin, groups: list[str] | None
) -> tuple[list[dict[str, Any]], list[OdradekError]]:
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
        drop="COORDINATOR-ID HOST CLIENT-ID",
        folds="ASSIGNMENT",
    )


@app.command()
def offsets(brokers: BrokerOptions, groups: _Named = None, as_json: AsJson = False) -> None:
    """Show the first offset that each share group has not finished, and its lag.

    LAG is the number of records that the group has not finished: they are available, acquired by a
    member, or not read yet.
    """

    async def main(admin: Admin) -> tuple[list[dict[str, Any]], list[Exception]]:
        from odradek_client.errors import OdradekError

        rows: list[dict[str, Any]] = []
        errors: list[Exception] = []
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

    rows, errors = brokers.ask(main)
    print_rows("GROUP TOPIC PARTITION START-OFFSET LAG", rows, as_json=as_json)
    end_with(errors)


# --- delete ---------------------------------------------------------------------------------------


@app.command("delete-offsets")
def delete_offsets(
    group: Annotated[str, argument("GROUP", "Group id.", group_names)],
    topic: Annotated[
        list[str] | None,
        option("--topic -t TOPIC", "The name of a topic; repeatable.", topic_names),
    ] = None,
    *,
    brokers: BrokerOptions,
) -> None:
    """Delete the state of topics in a share group that has no members."""
    if not topic:
        fail("say which topics: --topic TOPIC", 2)

    deleted = brokers.ask(
        lambda admin: admin.delete_share_group_offsets(group, topic, raise_errors=False)
    )
    for name in deleted:
        tell(f"deleted the offsets of {group} for {name}")
    end_with(deleted.errors.values())


@app.command()
def delete(
    groups: Annotated[list[str], argument("GROUP", "Group ids.", group_names)],
    brokers: BrokerOptions,
) -> None:
    """Delete share groups that have no members, and all of their state."""

    async def main(admin: Admin) -> tuple[list[str], list[OdradekError]]:
        # DeleteGroups deletes groups of any type, so it is checked that these are share groups.
        described = await admin.describe_share_groups(groups, raise_errors=False)
        done = await admin.delete_groups(list(described), raise_errors=False)
        return list(done), [*described.errors.values(), *done.errors.values()]

    deleted, errors = brokers.ask(main)
    for name in deleted:
        tell(f"deleted {name}")
    end_with(errors)
