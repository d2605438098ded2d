"""`odradek mirror`: copies topics and groups of one cluster into another. `odradek mirror promote`:
turns mirror topics into ordinary topics."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    client_settings,
    connected,
    end_plan,
    end_with,
    print_table,
    run,
    tell,
)
from odradek_cli.options import Commands, option
from odradek_cli.say import say
from odradek_cli.topic_patterns import is_pattern, matching
from odradek_mirror.commands.check import check
from odradek_mirror.commands.map import checkpoint, offsets
from odradek_mirror.commands.options import (
    SIDES,
    Exclude,
    From,
    FromConfig,
    Groups,
    ModeName,
    Name,
    To,
    ToConfig,
    Topics,
    mode_of,
    selection_of,
)
from odradek_mirror.commands.status import status

if TYPE_CHECKING:
    from odradek_mirror.plan import MirrorOptions, MirrorPlan
    from odradek_mirror.progress import ProgressSnapshot
    from odradek_mirror.run import Copier, MirrorJob

app = Commands(
    help="Copy topics and groups from one cluster to another.",
    invoke_without_command=True,
    no_args_is_help=False,
)
app.command()(check)
app.command()(status)
app.command()(offsets)
app.command()(checkpoint)

Acls = Annotated[bool, option("--acls", "Copy ACLs as well.")]
Quotas = Annotated[bool, option("--quotas", "Copy quotas as well.")]
PlanOnly = Annotated[bool, option("--plan", "Show what would be done, and change nothing.")]
Follow = Annotated[bool, option("--follow", "Continue until Ctrl+C, and copy new topics too.")]
MaxRate = Annotated[int | None, option("--max-bytes-per-s N", "Maximum rate of copying.", min=1)]
Timeout = Annotated[
    float, option("--timeout S", "Maximum time to wait for open transactions.", min=0)
]


@app.callback()
def mirror(
    context: typer.Context,
    source: From = "",
    target: To = "",
    topics: Topics = None,
    exclude: Exclude = None,
    groups: Groups = None,
    mode: ModeName = "",
    name: Name = "default",
    acls: Acls = False,
    quotas: Quotas = False,
    plan_only: PlanOnly = False,
    follow: Follow = False,
    max_bytes_per_s: MaxRate = None,
    timeout_s: Timeout = 60.0,
    skip_deleted: Annotated[
        bool,
        option(
            "--skip-deleted", "Continue after records that were deleted before they were copied."
        ),
    ] = False,
    offset_header: Annotated[
        str | None,
        option("--offset-header KEY", "The name of a header that gets the offset of the source."),
    ] = None,
    from_config: FromConfig = None,
    to_config: ToConfig = None,
    as_json: AsJson = False,
) -> None:
    """Copy topics and groups from one cluster to another.

    Without --follow the command ends when all records that existed at its start are copied. The
    command may be stopped at any time; the same command, run again, continues the copying.
    """
    if context.invoked_subcommand is not None:
        return
    from odradek_mirror.plan import MirrorOptions

    if not source or not target:
        fail("name both clusters: odradek mirror --from HOST:PORT --to HOST:PORT", 2)
    options = MirrorOptions(
        selection=selection_of(topics, exclude, groups),
        mode=mode_of(mode),
        name=name,
        acls=acls,
        quotas=quotas,
        follow=follow,
        max_bytes_per_s=max_bytes_per_s,
        timeout_s=timeout_s,
        skip_deleted=skip_deleted,
        offset_header=offset_header,
    )
    sides = (
        client_settings(source, from_config, ask=True),
        client_settings(target, to_config, ask=True),
    )
    last = run(
        _mirror(*sides, options, plan_only, as_json),
        fast=True,
        close_on_sigterm=True,
        bootstrap=SIDES,
    )
    if last is not None:
        _show(last, as_json)
        tell("everything is copied")


async def _mirror(
    source_settings: dict[str, Any],
    target_settings: dict[str, Any],
    options: MirrorOptions,
    plan_only: bool,
    as_json: bool,
) -> ProgressSnapshot | None:
    from odradek_client.admin import Admin
    from odradek_mirror.plan import Mode, gather_both, make_plan
    from odradek_mirror.progress import Progress
    from odradek_mirror.run import MirrorJob
    from odradek_mirror.run import run as run_mirror
    from odradek_mirror.start_state import planned_problems

    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(connected(Admin, source_settings))
        target = await stack.enter_async_context(connected(Admin, target_settings))
        plan = make_plan(*await gather_both(source, target, options.selection), options)
        if plan.mode is Mode.EXACTLY_ONCE:
            more = await planned_problems(
                source,
                target,
                options.name,
                [each.name for each in plan.topics],
                skip_deleted=options.skip_deleted,
            )
            plan = replace(plan, problems=(*plan.problems, *more))
        if plan_only or plan.problems:
            _print_plan(plan, as_json)
            end_with(plan.problems)
            return None
        for note in plan.notes:
            tell(note)
        job = MirrorJob(
            source=source,
            target=target,
            options=options,
            plan=plan,
            progress=Progress(source.network.loop.time()),
            target_settings=target_settings,
            tell=tell,
            show=lambda snapshot: _show(snapshot, as_json),
        )
        return await run_mirror(job, _copier(job))


def _copier(job: MirrorJob) -> Copier:
    from odradek_mirror.plan import Mode

    if job.plan.mode is Mode.SAME_OFFSETS:
        from odradek_mirror.same_offsets import SameOffsetsCopier

        return SameOffsetsCopier(job)
    from odradek_mirror.exactly_once import ExactlyOnceCopier, OutSettings

    options = job.options
    settings = OutSettings(
        options.name,
        skip_deleted=options.skip_deleted,
        offset_header=options.offset_header,
        patience_ms=None if options.follow else options.timeout_s * 1000,
    )
    return ExactlyOnceCopier(
        job.source, job.target, settings, job.progress, rate=job.rate, tell=job.tell
    )


def _show(snapshot: ProgressSnapshot, as_json: bool) -> None:
    if as_json:
        say(json.dumps(snapshot.as_json()))
    else:
        tell(snapshot.line())


def _print_plan(plan: MirrorPlan, as_json: bool) -> None:
    """Print the work on topics and groups; the caller prints the problems."""
    rows = [
        {
            "topic": each.name,
            "action": str(each.action),
            "partitions": each.partitions,
            "records": each.records,
            "settings": dict(each.settings),
        }
        for each in plan.topics
    ]
    if as_json:
        whole = {
            "type": "plan",
            "mode": str(plan.mode),
            "source": plan.source_cluster,
            "target": plan.target_cluster,
            "topics": rows,
            "groups": list(plan.groups),
            "group_settings": {each.name: dict(each.settings) for each in plan.group_settings},
            "notes": list(plan.notes),
            "problems": list(plan.problems),
        }
        say(json.dumps(whole))
        return
    say(f"{plan.mode}, from cluster {plan.source_cluster} to {plan.target_cluster}")
    if rows:
        print_table(
            ["TOPIC", "ACTION", "PARTITIONS", "OFFSETS", "SETTINGS"],
            [
                [
                    each.name,
                    str(each.action),
                    str(each.partitions),
                    str(each.records),
                    " ".join(f"{name}={value}" for name, value in each.settings.items()) or "-",
                ]
                for each in plan.topics
            ],
            folds="SETTINGS",
        )
    say(f"offsets of {len(plan.groups)} groups: {', '.join(plan.groups) or '-'}")
    for group in plan.group_settings:
        shown = " ".join(f"{name}={value}" for name, value in group.settings.items())
        say(f"settings of group {group.name}: {shown}")
    for note in plan.notes:
        say(note)


@app.command()
def promote(
    target: To,
    topics: Topics = None,
    execute: Annotated[
        bool,
        option(
            "--execute",
            "Promote all mirror topics if --topics is missing; without this option they are only "
            "listed.",
        ),
    ] = False,
    to_config: ToConfig = None,
    as_json: AsJson = False,
) -> None:
    """Turn mirror topics into ordinary topics, to which producers can write.

    Open transactions in them are aborted. Stop the mirror first, because it cannot continue
    afterwards. Without --topics, all mirror topics are listed; with --execute they are promoted.
    """
    is_plan = not topics and not execute
    rows, errors = run(
        _promote(client_settings(target, to_config), topics, is_plan), bootstrap="--to"
    )
    for row in rows:
        if as_json:
            say(json.dumps(row))
        elif is_plan:
            say(f"{row['topic']} would become an ordinary topic")
        else:
            aborted = row["aborted_transactions"]
            say(f"{row['topic']} is an ordinary topic; {aborted} transactions were aborted")
    end_plan(rows, errors, "no topic was promoted", execute=not is_plan)


async def _promote(
    settings: dict[str, Any], words: list[str] | None, is_plan: bool
) -> tuple[list[dict[str, Any]], list[object]]:
    from odradek_client.admin import Admin
    from odradek_client.admin.configs import ConfigResource
    from odradek_client.errors import OdradekError
    from odradek_mirror import same_offsets
    from odradek_mirror.group_offsets import delete_notes
    from odradek_mirror.plan import MIRROR_SOURCE

    async with connected(Admin, settings) as admin:
        there = await admin.list_topics()
        found = matching(words, there) if words else there
        # Missing topics are included, so that the target answers with an error for each of them.
        found += [word for word in words or () if not is_pattern(word) and word not in there]
        if not words or any(is_pattern(word) for word in words):
            resources = [ConfigResource.topic(name) for name in found]
            configs = await admin.describe_configs(resources, raise_errors=False)
            mirrors = {
                resource.name
                for resource, entries in configs.items()
                if (entry := entries.get(MIRROR_SOURCE)) is not None and entry.value
            }
            found = [name for name in found if name in mirrors]
        if not found:
            return [], ["no mirror topic is there; `odradek mirror --plan` shows what is copied"]
        if is_plan:
            return [{"topic": name, "action": "promote"} for name in found], []
        done = await same_offsets.promote(admin, found)
        rows = [
            {"topic": name, "aborted_transactions": each.aborted_transactions}
            for name, each in done.items()
        ]
        try:
            left = await delete_notes(admin, set(done))
        except OdradekError as error:
            left = [error]
        for why in left:
            tell(f"groups `odradek-mirror-...` are not needed any more and still there: {why}")
        return rows, list(done.errors.values())
