"""The overview, with the figures of the cluster and its problems in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlencode

from odradek_client.admin import Admin
from odradek_client.admin.broker import Section
from odradek_client.admin.history import Subject
from odradek_client.errors import OdradekError
from odradek_console.answers import DESCRIBE_CLUSTER, Json, why_missing
from odradek_console.asked import Asked, View
from odradek_console.live import Feed
from odradek_console.operations import describe_broker
from odradek_console.sessions import ConsoleSession
from odradek_console.topics import TopicTable, topic_table

T = TypeVar("T")

_KEEP_MS = 1_500
#: A disk with a smaller free share than this is nearly full.
_FREE_SHARE = 0.1
_BAD_TOPICS = "/topics?sort=-problems&internal=1"


async def overview(session: ConsoleSession, _name: str = "") -> Json:
    """The figures of the overview. `missing` has the reasons for missing figures."""
    missing: list[str] = []

    async def had(what: str, ask: Callable[[Admin], Awaitable[T]]) -> T | None:
        try:
            return await session.cached(what, _KEEP_MS, ask)
        except OdradekError as error:
            missing.append(why_missing(what, error, DESCRIBE_CLUSTER))
            return None

    # Without the topics there is nothing to show, so an error here is the answer of the whole page.
    table = await topic_table(session)
    missing += table.missing
    topics = _topics(table)
    disks = await had("Disks", _disks) or []
    known = await _known_problems(session)
    return {
        "cluster": await had("Cluster", _cluster),
        "topics": topics,
        "disks": disks,
        "groups": await had("Groups", _groups),
        "open_transactions": await had("Transactions", _open_transactions),
        "problems": [*known, *_topic_problems(topics), *_disk_problems(disks)],
        "missing": missing,
    }


async def _cluster(admin: Admin) -> Json:
    described = await admin.describe_cluster()
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller_id,
        "nodes": [
            {"node": broker.node_id, "host": broker.host, "port": broker.port}
            for broker in described.brokers
        ],
    }


async def _disks(admin: Admin) -> list[Json]:
    found = await admin.describe_log_dirs()
    return [
        {
            "node": node,
            "path": directory.path,
            "error": None if directory.error is None else str(directory.error),
            "partitions": len(directory.replicas),
            "size_bytes": directory.size_bytes,
            "usable_bytes": directory.usable_bytes,
            "total_bytes": directory.total_bytes,
        }
        for node, directories in sorted(found.items())
        for directory in directories
    ]


async def _groups(admin: Admin) -> dict[str, int]:
    return dict(Counter(group.state or "Unknown" for group in await admin.list_groups()))


async def _open_transactions(admin: Admin) -> int:
    return sum(found.state == "Ongoing" for found in await admin.list_transactions())


#: Types of subjects, as the timeline names them.
_SUBJECTS = {
    Subject.GROUP: "group",
    Subject.TRANSACTIONAL_ID: "transaction",
    Subject.PARTITION: "partition",
    Subject.CLIENT: "client",
}


async def _known_problems(session: ConsoleSession) -> list[Json]:
    """The problems that the broker reports; none if the broker does not describe itself (the page
    shows the reason in place of the throughput)."""
    try:
        found = await describe_broker(session, Section.PROBLEMS)
    except OdradekError:
        return []
    return [
        _problem(
            "warning" if each.is_warning else "error",
            each.text[:1].upper() + each.text[1:] + ".",
            f"/timeline?{urlencode({'s': f'{_SUBJECTS[each.subject_type]}:{each.subject}'})}"
            if each.subject_type in _SUBJECTS
            else None,
        )
        for each in found.problems
    ]


def _topics(table: TopicTable) -> dict[str, int]:
    return {
        "topics": sum(not row.is_internal for row in table.rows),
        "internal_topics": sum(row.is_internal for row in table.rows),
        "partitions": sum(row.partitions for row in table.rows),
        "leaderless": sum(row.leaderless for row in table.rows),
        "under_replicated": sum(row.under_replicated for row in table.rows),
    }


def _topic_problems(topics: dict[str, int]) -> list[Json]:
    found = []
    if count := topics["leaderless"]:
        have = "partition has" if count == 1 else "partitions have"
        found.append(
            _problem("error", f"{count:,} {have} no leader: nobody can read or write.", _BAD_TOPICS)
        )
    if count := topics["under_replicated"]:
        lack = "partition lacks" if count == 1 else "partitions lack"
        found.append(_problem("warning", f"{count:,} {lack} replicas in sync.", _BAD_TOPICS))
    return found


def _disk_problems(disks: list[Json]) -> list[Json]:
    found = []
    for disk in disks:
        where = f"{disk['path']} on node {disk['node']}"
        total, usable = disk["total_bytes"], disk["usable_bytes"]
        if disk["error"] is not None:
            found.append(_problem("error", f"{where}: {disk['error']}", None))
        elif total and usable is not None and usable < total * _FREE_SHARE:
            found.append(
                _problem("warning", f"The disk of {where} has {usable / total:.0%} left.", None)
            )
    return found


def _problem(level: str, text: str, to: str | None) -> Json:
    """A problem as a sentence. `to`: the address of the page that shows it; None for the
    overview."""
    return {"level": level, "text": text, "to": to}


async def _show(asked: Asked) -> Json:
    return await overview(asked.session)


VIEWS: dict[str, View] = {"/overview": _show}
FEEDS = {"overview": Feed(overview)}
