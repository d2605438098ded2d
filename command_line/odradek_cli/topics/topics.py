"""`odradek topic create|list|describe|alter|trim|delete`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    BrokerOptions,
    assignments,
    end_each,
    offset_of,
    print_rows,
    print_table,
    tell,
)
from odradek_cli.completion import topic_names
from odradek_cli.layout import columns, wrap
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say
from odradek_cli.topic_patterns import is_pattern, matching, nothing_matches
from odradek_cli.topics.topic_trim import trim
from odradek_protocol.primitives import uuid_text

if TYPE_CHECKING:
    from odradek_client.admin import Admin, TopicDescription
    from odradek_client.errors import OdradekError

Errors: TypeAlias = "dict[str, OdradekError]"

app = Commands(help="List, create, alter, trim, delete topics.")

Topics = Annotated[list[str], argument("TOPIC", "Topic names.", topic_names)]
Configs = Annotated[list[str] | None, option("--config KEY=VALUE", "A topic setting; repeatable.")]


@app.command()
def create(
    topics: Annotated[list[str], argument("TOPIC", "Topic names.")],
    brokers: BrokerOptions,
    partitions: Annotated[int, option("--partitions -n N", "-1: the broker's default.")] = -1,
    replication_factor: Annotated[
        int, option("--replication-factor -r N", "-1: the broker's default.")
    ] = -1,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, option("--if-not-exists", "Do not fail if a topic exists already.")
    ] = False,
    validate_only: Annotated[bool, option("--validate-only", "Check, and create nothing.")] = False,
) -> None:
    """Create topics.

    \b
    odradek topic create orders --partitions 3
    odradek topic create sessions --config cleanup.policy=compact --if-not-exists
    odradek topic create a b c --config retention.ms=86400000
    """
    from odradek_client.admin import NewTopic
    from odradek_protocol.errors import ErrorCode

    configs = assignments(config, "--config")

    new = [NewTopic(name, partitions, replication_factor, configs) for name in topics]
    created = brokers.ask(
        lambda admin: admin.create_topics(new, validate_only=validate_only, raise_errors=False)
    )
    done = "would create" if validate_only else "created"
    harmless = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None
    end_each(done, topics, created.errors, harmless)


@app.command("list")
def list_(
    brokers: BrokerOptions,
    internal: Annotated[bool, option("--internal", "Also internal topics.")] = False,
    names_only: Annotated[
        bool, option("--names", "Print only the names, one in each line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List all topics, with the number of their partitions and replicas."""

    async def main(admin: Admin) -> list[dict[str, Any]]:
        names = await admin.list_topics(internal=internal)
        # A topic that was deleted after the names were listed is left out.
        found = await admin.describe_topics(names, raise_errors=False)
        return [
            {
                "topic": name,
                "partitions": len(found[name].partitions),
                "replication_factor": _replicas(found[name]),
                "internal": found[name].is_internal,
            }
            for name in names
            if name in found
        ]

    rows = brokers.ask(main)
    if names_only and not as_json:
        for row in rows:
            say(row["topic"])
        return
    nothing = "there are no topics that you may see; `odradek topic create NAME` makes one"
    print_rows("TOPIC PARTITIONS REPLICATION-FACTOR", rows, as_json=as_json, nothing=nothing)


def _replicas(topic: TopicDescription) -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)


@app.command()
def describe(
    brokers: BrokerOptions,
    topics: Annotated[
        list[str] | None,
        argument(
            "NAME|REGEX",
            "Names, or regular expressions for whole names. [default: all topics]",
            topic_names,
        ),
    ] = None,
    all_configs: Annotated[
        bool, option("--all-configs", "Also settings that have their default value.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show partitions, leaders, offsets and settings of topics.

    \b
    odradek topic describe orders
    odradek topic describe 'orders.*' --all-configs
    """
    failed = False
    for name, row in brokers.ask(lambda admin: _describe(admin, topics)).items():
        if isinstance(row, Exception):
            tell(f"odradek: {row}")
            failed = True
            continue
        if not all_configs:
            row["configs"] = [each for each in row["configs"] if not each["default"]]
        if as_json:
            say(json.dumps(row))
        else:
            _print_topic(name, row)
    if failed:
        raise typer.Exit(1)


async def _describe(admin: Admin, topics: list[str] | None) -> dict[str, Any]:
    from odradek_client.admin import ConfigResource

    names, unmatched = await _names_of(admin, topics)
    found = await admin.describe_topics(names, raise_errors=False)
    configs = await admin.describe_configs([ConfigResource.topic(name) for name in found])
    rows: dict[str, Any] = {**found.errors, **unmatched}
    for name, topic in found.items():
        rows[name] = await _row(admin, topic, configs[ConfigResource.topic(name)])
    return {name: rows[name] for name in [*names, *unmatched]}


async def _names_of(
    admin: Admin, words: list[str] | None
) -> tuple[list[str], dict[str, OdradekError]]:
    """The topics that match these words, each once, and an error for each expression without a
    match."""
    from odradek_client.errors import Refused

    if words and not any(map(is_pattern, words)):
        return words, {}
    there = await admin.list_topics()
    if not words:
        return there, {}
    found: dict[str, None] = {}
    unmatched: dict[str, OdradekError] = {}
    for word in words:
        names = matching([word], there) if is_pattern(word) else [word]
        found |= dict.fromkeys(names)
        if not names:
            unmatched[word] = Refused(nothing_matches([word]))
    return list(found), unmatched


async def _row(admin: Admin, topic: TopicDescription, configs: Any) -> dict[str, Any]:
    from odradek_client.admin import EARLIEST, LATEST
    from odradek_client.structs import TopicPartition

    partitions = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "configs": [
            {"name": each.name, "value": each.value, "default": each.is_default}
            for each in configs.values()
        ],
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": each.replicas,
                "isr": each.in_sync,
                "log_start_offset": offset_of(starts[place]),
                "log_end_offset": offset_of(ends[place]),
            }
            for each, place in zip(topic.partitions, partitions, strict=True)
        ],
    }


def _print_topic(name: str, row: dict[str, Any]) -> None:
    replicas = row["partitions"][0]["replicas"] if row["partitions"] else []
    configs = [f"{each['name']}={each['value']}" for each in row["configs"]]
    head = (
        f"Topic: {name}  TopicId: {row['topic_id']}  PartitionCount: {len(row['partitions'])}  "
        f"ReplicationFactor: {len(replicas)}"
    )
    in_line = f"  Configs: {','.join(configs)}"
    lines = [head + in_line]
    if len(lines[0]) > columns():
        lines = [*wrap(head, rest="  "), in_line]
    if len(in_line) > columns():
        lines[-1] = "  Configs:"
        lines += [part for each in configs for part in wrap(each, " " * 4, " " * 8)]
    say(*lines)
    print_table(
        ["PARTITION", "LEADER", "REPLICAS", "ISR", "LOG-START-OFFSET", "LOG-END-OFFSET"],
        [
            [
                str(each["partition"]),
                "none" if each["leader"] is None else str(each["leader"]),
                ",".join(map(str, each["replicas"])),
                ",".join(map(str, each["isr"])),
                str(each["log_start_offset"]),
                str(each["log_end_offset"]),
            ]
            for each in row["partitions"]
        ],
        drop="REPLICAS ISR",
    )


@app.command()
def alter(
    topics: Topics,
    brokers: BrokerOptions,
    partitions: Annotated[
        int | None,
        option("--partitions -n N", "The new number of partitions, which can only grow."),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        option("--delete-config KEY", "A setting to reset to its default; repeatable."),
    ] = None,
) -> None:
    """Add partitions to topics, or change their settings."""
    from odradek_client.admin import ConfigChange, ConfigOperation, ConfigResource

    changes = [ConfigChange(key, value) for key, value in assignments(config, "--config").items()]
    changes += [ConfigChange(key, None, ConfigOperation.DELETE) for key in delete_config or []]
    if partitions is None and not changes:
        fail("nothing to alter; give --partitions, --config or --delete-config", 2)

    async def main(admin: Admin) -> Errors:
        errors: Errors = {}
        if partitions is not None:
            counts = dict.fromkeys(topics, partitions)
            errors.update((await admin.create_partitions(counts, raise_errors=False)).errors)
        resources = {ConfigResource.topic(n): changes for n in topics if n not in errors}
        if changes and resources:
            altered = await admin.alter_configs(resources, raise_errors=False)
            errors.update({resource.name: e for resource, e in altered.errors.items()})
        return errors

    end_each("altered", topics, brokers.ask(main))


app.command()(trim)


@app.command()
def delete(
    topics: Topics,
    brokers: BrokerOptions,
    if_exists: Annotated[
        bool, option("--if-exists", "Do not fail if a topic does not exist.")
    ] = False,
) -> None:
    """Delete topics, with everything in them."""
    from odradek_protocol.errors import ErrorCode

    done = brokers.ask(lambda admin: admin.delete_topics(topics, raise_errors=False))
    harmless = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
    end_each("deleted", topics, done.errors, harmless)
