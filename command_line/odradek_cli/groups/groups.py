"""`odradek group list|describe|reset-offsets|delete-offsets|delete`: the work of
kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    BrokerOptions,
    cell,
    end_each,
    end_with,
    errors_but,
    print_json,
    print_table,
    tell,
)
from odradek_cli.completion import group_names
from odradek_cli.groups.group_reset import AllTopics, Groups, TopicSpecs, reset_offsets
from odradek_cli.layout import is_terminal, wrap
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say
from odradek_records.offset_grammar import OffsetError
from odradek_records.reset_plan import Partition, parse_topics

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.admin.groups import GroupDescription, GroupMember
    from odradek_client.admin.history import CurrentState
    from odradek_client.errors import OdradekError
    from odradek_client.network.cluster import BrokerAddress
    from odradek_client.structs import OffsetAndMetadata, TopicPartition

    Offsets: TypeAlias = dict[TopicPartition, OffsetAndMetadata | None]

app = Commands(help="List, describe, reset, delete consumer groups.")

_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


# --- list -----------------------------------------------------------------------------------------


@app.command("list")
def list_(
    brokers: BrokerOptions,
    state: Annotated[
        list[str] | None,
        option("--state STATE", "Only groups in this state, such as Stable; repeatable."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        option("--type TYPE", "Only groups of this type, classic or consumer; repeatable."),
    ] = None,
    verbose: Annotated[
        bool, option("--verbose -v", "Show type, protocol, state and coordinator too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the ids of all groups, one in each line."""

    rows: list[dict[str, Any]] = [
        {
            "group": each.group_id,
            "type": each.type,
            "protocol_type": each.protocol_type,
            "state": each.state,
            "coordinator_id": each.coordinator,
        }
        for each in brokers.ask(
            lambda admin: admin.list_groups(states=state or (), types=kind or ())
        )
    ]
    if as_json:
        print_json(rows)
    elif verbose:
        print_table(
            ["GROUP", "TYPE", "PROTOCOL", "STATE", "COORDINATOR-ID"],
            [[cell(value) for value in row.values()] for row in rows],
            drop="COORDINATOR-ID PROTOCOL",
        )
    else:
        for row in rows:
            say(row["group"])


# --- describe -------------------------------------------------------------------------------------


@app.command()
def describe(
    brokers: BrokerOptions,
    groups: Annotated[
        list[str] | None, argument("NAME", "Group ids. [default: all groups]", group_names)
    ] = None,
    members: Annotated[
        bool, option("--members", "Show the members instead of the offsets.")
    ] = False,
    state: Annotated[
        bool, option("--state", "Show state, assignor and coordinator instead.")
    ] = False,
    verbose: Annotated[
        bool,
        option(
            "--verbose -v", "Show leader epochs too; with --members the assignment of each member."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show committed offsets, lag and members of groups.

    With --json, one line for each group has its committed offsets, lag and members. LAG is the
    number of records after the committed offset.
    """
    if members and state:
        fail("--members and --state are two tables; choose one", 2)
    rows, errors = brokers.ask(lambda admin: group_rows(admin, groups))
    if as_json:
        print_json(rows)
    elif state:
        _print_states(rows)
    else:
        _print_groups(rows, members, verbose)
    end_with(errors)


async def group_rows(
    admin: Admin, groups: list[str] | None
) -> tuple[list[dict[str, Any]], list[OdradekError]]:
    """A row for each group, with positions, lag and members; and the errors of groups that cannot
    be described."""
    from odradek_client.admin import LATEST
    from odradek_protocol.errors import ErrorCode
    from odradek_records.lag import states_of_each

    names = groups or [each.group_id for each in await admin.list_groups()]
    described = await admin.describe_groups(names, raise_errors=False)
    errors = list(described.errors.values())
    if not groups:
        errors = errors_but(ErrorCode.GROUP_ID_NOT_FOUND, described)
    found = [described[name] for name in dict.fromkeys(names) if name in described]
    committed = {each.group_id: await admin.list_group_offsets(each.group_id) for each in found}
    partitions = {tp for offsets in committed.values() for tp in offsets}
    partitions |= {tp for group in found for member in group.members for tp in member.assignment}
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST), raise_errors=False)
    end_offsets = {tp: None if end is None else end.offset for tp, end in ends.items()}
    brokers = {each.node_id: each for each in (await admin.describe_cluster()).brokers}
    states = await states_of_each(admin, committed)
    return [
        {
            **_group_row(each, committed[each.group_id], end_offsets),
            "verdict": _verdict(states.get(each.group_id, {})),
            "coordinator": _address(brokers.get(each.coordinator)),
        }
        for each in found
    ], errors


def _verdict(states: Mapping[str, CurrentState]) -> dict[str, str | None] | None:
    """The broker's verdict about a group, with a sentence. None for a broker without verdicts, such
    as Apache Kafka. The command makes no verdict of its own, because one description of a group
    does not show whether the group makes progress."""
    found = states.get("now_verdict")
    if found is None:
        return None
    details = found.details
    return {"status": details["verdict"], "cause": details.get("cause"), "text": found.text}


def _address(broker: BrokerAddress | None) -> str | None:
    return None if broker is None else f"{broker.host}:{broker.port}"


def _group_row(
    group: GroupDescription, committed: Offsets, ends: Mapping[TopicPartition, int | None]
) -> dict[str, Any]:
    owners = {tp: member for member in group.members for tp in member.assignment}
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator_id": group.coordinator,
        "members": [_member_row(member) for member in group.members],
        "partitions": [
            _partition_row(tp, committed.get(tp), ends.get(tp), owners.get(tp))
            for tp in sorted({*committed, *owners})
        ],
    }


def _member_row(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "topics": member.topics,
        "assignment": [{"topic": topic, "partition": index} for topic, index in member.assignment],
    }


def _partition_row(
    place: TopicPartition,
    committed: OffsetAndMetadata | None,
    end: int | None,
    owner: GroupMember | None,
) -> dict[str, Any]:
    current = None if committed is None else committed.offset
    epoch = None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch
    return {
        "topic": place.topic,
        "partition": place.partition,
        "leader_epoch": epoch,
        "current_offset": current,
        "log_end_offset": end,
        # A position after the end, from before a truncation, has no records left to read.
        "lag": None if current is None or end is None else max(end - current, 0),
        "metadata": None if committed is None else committed.metadata,
        "member_id": None if owner is None else owner.member_id,
        "host": None if owner is None else owner.host,
        "client_id": None if owner is None else owner.client_id,
    }


def _print_groups(rows: list[dict[str, Any]], members: bool, verbose: bool) -> None:
    """Print a table for each group that has rows."""
    first = True
    for row in rows:
        name, state = row["group"], row["state"]
        shown = bool(row["members"] or (row["partitions"] and not members))
        if shown and not first:
            say()
        if state in _REBALANCING:
            tell(f"group {name!r} is rebalancing")
        elif not row["members"]:
            tell(f"group {name!r} has no active members")
        if row["verdict"] is not None and not members:
            text = f"group {name!r} is {row['verdict']['text']}"
            tell("\n".join(wrap(text, rest="  ")) if is_terminal() else text)
        if not shown:
            continue
        first = False
        if members:
            _print_members(row, verbose)
        else:
            _print_offsets(row, verbose)


def _print_offsets(row: dict[str, Any], verbose: bool) -> None:
    columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        **({"LEADER-EPOCH": "leader_epoch"} if verbose else {}),
        "CURRENT-OFFSET": "current_offset",
        "LOG-END-OFFSET": "log_end_offset",
        "LAG": "lag",
        "CONSUMER-ID": "member_id",
        "HOST": "host",
        "CLIENT-ID": "client_id",
    }
    idle = [member for member in row["members"] if not member["assignment"]]
    print_table(
        ["GROUP", *columns],
        [
            [row["group"], *(cell(each.get(name)) for name in columns.values())]
            for each in [*row["partitions"], *idle]
        ],
        drop="HOST LEADER-EPOCH CLIENT-ID GROUP CONSUMER-ID LOG-END-OFFSET",
    )


def _print_members(row: dict[str, Any], verbose: bool) -> None:
    columns = {
        "CONSUMER-ID": "member_id",
        **(
            {"GROUP-INSTANCE-ID": "instance_id"}
            if any(member["instance_id"] for member in row["members"])
            else {}
        ),
        "HOST": "host",
        "CLIENT-ID": "client_id",
    }
    more = ["ASSIGNMENT"] if verbose else []
    lines = []
    for member in row["members"]:
        assignment = member["assignment"]
        line = [row["group"], *(cell(member[name]) for name in columns.values())]
        line.append(str(len(assignment)))
        if verbose:
            line.append(_assignment(assignment))
        lines.append(line)
    print_table(
        ["GROUP", *columns, "#PARTITIONS", *more],
        lines,
        drop="HOST CLIENT-ID GROUP",
        folds="ASSIGNMENT",
    )


def _assignment(partitions: Iterable[dict[str, Any]]) -> str:
    """`orders(0,1), users(3)`, as Kafka writes it."""
    topics: dict[str, list[str]] = {}
    for partition in partitions:
        topics.setdefault(partition["topic"], []).append(str(partition["partition"]))
    return ", ".join(f"{topic}({','.join(held)})" for topic, held in topics.items()) or "-"


def _print_states(rows: list[dict[str, Any]]) -> None:
    print_table(
        ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        [
            [
                row["group"],
                f"{row['coordinator']} ({row['coordinator_id']})",
                cell(row["assignor"]),
                row["state"],
                str(len(row["members"])),
            ]
            for row in rows
        ],
    )


app.command("reset-offsets")(reset_offsets)


# --- delete ---------------------------------------------------------------------------------------


@app.command("delete-offsets")
def delete_offsets(
    group: Annotated[str, argument("GROUP", "Group id.", group_names)],
    brokers: BrokerOptions,
    topic: TopicSpecs = None,
    all_topics: AllTopics = False,
) -> None:
    """Delete committed offsets of a group in topics that it does not consume now."""
    try:
        topics = parse_topics(topic or [])
    except OffsetError as error:
        fail(str(error), 2)
    if bool(topics) == all_topics:
        fail("say which: --topic TOPIC[:P,...] or --all-topics", 2)

    async def main(admin: Admin) -> tuple[list[Partition], list[str]]:
        held = list(await admin.list_group_offsets(group))
        if not held:
            await admin.describe_groups(group)  # raises if there is no such group
        wanted, missing = _chosen(held, topics, all_topics)
        deleted = await admin.delete_group_offsets(group, wanted, raise_errors=False)
        problems = [f"group {group!r} has no position in {place}" for place in missing]
        return sorted(deleted), [*problems, *map(str, deleted.errors.values())]

    deleted, problems = brokers.ask(main)
    for name, index in deleted:
        tell(f"deleted the offset of {group} for {name}-{index}")
    if not deleted and not problems:
        tell(f"group {group!r} has no positions")
    end_with(problems)


def _chosen(
    held: Sequence[Partition], topics: Mapping[str, list[int] | None], all_topics: bool
) -> tuple[list[Partition], list[str]]:
    """The positions to delete, and the names that no position matches."""
    if all_topics:
        return list(held), []
    wanted: list[Partition] = []
    missing: list[str] = []
    for topic, indexes in topics.items():
        there = [(name, index) for name, index in held if name == topic]
        if indexes is None:
            wanted += there
            missing += [] if there else [topic]
        else:
            wanted += [place for place in there if place[1] in indexes]
            missing += [f"{topic}-{index}" for index in indexes if (topic, index) not in there]
    return wanted, missing


@app.command()
def delete(
    groups: Groups,
    brokers: BrokerOptions,
    if_exists: Annotated[
        bool, option("--if-exists", "Do not fail if a group does not exist.")
    ] = False,
) -> None:
    """Delete groups that have no members, and all of their committed offsets."""
    from odradek_protocol.errors import ErrorCode

    done = brokers.ask(lambda admin: admin.delete_groups(groups, raise_errors=False))
    harmless = ErrorCode.GROUP_ID_NOT_FOUND if if_exists else None
    end_each("deleted", dict.fromkeys(groups), done.errors, harmless)
