"""Checks of `odradek doctor` that ask brokers: addresses, disks, partitions, groups, and the
problems that brokers report."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from odradek_cli.broker import doctor_checks as checks
from odradek_cli.broker.doctor_checks import CheckResult, Findings, Level
from odradek_cli.common import errors_but
from odradek_client.errors import OdradekError, UnsupportedByBroker
from odradek_client.words import counted
from odradek_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_client.admin import Admin

_ASK = "ask as a user who has the right, with -X"
_FREE_SHARE = 0.1
#: The maximum number of groups that are looked at.
_GROUPS_MAX = 2_000
#: A group is late if its oldest unread record is older than this, as in the alert.
_LATE_MS = 900_000
#: The words of `odradek explain` for the subjects of problems.
_EXPLAIN = {
    "transactional id": "txn",
    "group": "group",
    "partition": "partition",
    "mirror topic": "mirror",
}


async def look_at_brokers(admin: Admin, bootstrap: str) -> list[CheckResult]:
    """Findings on the brokers of a cluster, as a client here sees them. Raises OdradekError if no
    broker answers."""
    cluster = await admin.describe_cluster()
    found = [CheckResult(Level.OK, "cluster", f"{bootstrap} answers, cluster {cluster.cluster_id}")]
    for node in cluster.brokers:
        found += _look_at_node(node.node_id, node.host, node.port)
    nodes = [node.node_id for node in cluster.brokers]
    for name, findings in (
        ("disks", _disks(admin)),
        ("partitions", _partitions(admin)),
        ("groups", _groups(admin)),
        ("problems", _problems(admin, nodes)),
    ):
        try:
            found += [each async for each in findings]
        except UnsupportedByBroker:
            continue
        except OdradekError as error:
            text = f"they could not be looked at: {error}"
            found.append(CheckResult(Level.WARNING, name, text, _ASK, looked=False))
    return found


def _look_at_node(node_id: int, host: str, port: int) -> Findings:
    problem = checks.connect(host, port)
    name = f"broker {node_id}"
    if problem:
        yield CheckResult(
            Level.ERROR,
            name,
            f"it advertises {host}:{port}, where nobody answers from here: {problem}",
            "set advertised.listeners of the broker to an address that clients reach",
        )
    else:
        yield CheckResult(Level.OK, name, f"answers on {host}:{port}, which it advertises")


async def _disks(admin: Admin) -> AsyncIterator[CheckResult]:
    remedy = "make room, or set retention.ms and retention.bytes of topics lower"
    for node, directories in sorted((await admin.describe_log_dirs()).items()):
        for each in directories:
            name = f"disk of broker {node}"
            total, usable = each.total_bytes, each.usable_bytes
            if each.error is not None:
                text = f"{each.path}: {each.error}"
                yield CheckResult(Level.ERROR, name, text, "mend the disk, and restart the broker")
            elif total and usable is not None:
                level = Level.WARNING if usable < total * _FREE_SHARE else Level.OK
                text = f"{each.path} has {usable / total:.0%} free"
                yield CheckResult(level, name, text, remedy if level is Level.WARNING else "")


async def _partitions(admin: Admin) -> AsyncIterator[CheckResult]:
    names = await admin.list_topics(internal=True)
    topics = await admin.describe_topics(names, raise_errors=False)
    every = [each for topic in topics.values() for each in topic.partitions]
    for count, lacks, level in (
        (sum(each.leader is None for each in every), "without a leader", Level.ERROR),
        (
            sum(len(each.in_sync) < len(each.replicas) for each in every),
            "without all replicas in sync",
            Level.WARNING,
        ),
    ):
        if count:
            text = f"{counted(count, 'partition')} {lacks}"
            remedy = "start the brokers that hold them; `odradek topic describe` names them"
            yield CheckResult(level, "partitions", text, remedy)
    if errors := errors_but(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topics):
        text = f"{counted(len(errors), 'topic')} could not be described: {errors[0]}"
        yield CheckResult(Level.WARNING, "partitions", text, _ASK, looked=False)
    yield CheckResult(Level.OK, "partitions", f"{counted(len(every), 'partition')} looked at")


async def _groups(admin: Admin) -> AsyncIterator[CheckResult]:
    from odradek_records.lag import age_of, states_of_each

    listed = sorted(each.group_id for each in await admin.list_groups())
    states = await states_of_each(admin, listed[:_GROUPS_MAX])
    well = 0
    for name, told in states.items():
        verdict = told.get("now_verdict")
        age = age_of({each: state.details for each, state in told.items()})
        remedy = f"odradek explain group {shlex.quote(name)}"
        if verdict is not None and verdict.details["verdict"] != "OK":
            yield CheckResult(Level.ERROR, "groups", f"{name} is {verdict.text}", remedy)
        elif age is not None and age.age_ms > _LATE_MS:
            text = f"{name} has not read a record that is {age.age_ms // 60_000:,} min old"
            yield CheckResult(Level.WARNING, "groups", text, remedy)
        else:
            well += 1
    if len(listed) > _GROUPS_MAX:
        text = f"only the first {_GROUPS_MAX:,} of {len(listed):,} were looked at"
        yield CheckResult(Level.WARNING, "groups", text, "see `odradek top`", looked=False)
    if well or not listed:
        yield CheckResult(Level.OK, "groups", f"{counted(well, 'group')} without trouble")


async def _problems(admin: Admin, nodes: list[int]) -> AsyncIterator[CheckResult]:
    from odradek_client.admin.broker import Section

    for node in nodes:
        name = f"broker {node}"
        found = await admin.describe_broker_status(Section.PROBLEMS, node_id=node)
        for each in found.problems:
            # `_groups` has looked at every group.
            if each.name == "group_behind":
                continue
            level = Level.WARNING if each.is_warning else Level.ERROR
            kind = "" if each.subject_type is None else _EXPLAIN.get(each.subject_type.value, "")
            remedy = f"odradek explain {kind} {shlex.quote(each.subject)}"
            yield CheckResult(
                level, name, each.text, remedy if kind else "the broker's log has more about it"
            )
        if not found.problems:
            yield CheckResult(Level.OK, name, "it reports no problems")
