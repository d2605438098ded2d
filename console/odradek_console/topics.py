"""Topics: the list with partitions, sizes and problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek_client.admin import Admin, PartitionDescription
from odradek_client.errors import OdradekError
from odradek_client.structs import TopicPartition
from odradek_console.answers import DESCRIBE_CLUSTER, Column, Json, page_of, why_missing
from odradek_console.asked import Asked, View
from odradek_console.sessions import ConsoleSession

_KEEP_MS = 3_000


@dataclass
class TopicRow:
    """A topic in the list. `size_bytes` is the size of all replicas, None if the broker does not
    report it.
    """

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    leaderless: int
    under_replicated: int
    size_bytes: int | None = None


@dataclass
class TopicTable:
    """All topics that the principal may see. `missing`: the reasons why figures are missing."""

    rows: list[TopicRow] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


async def topic_table(session: ConsoleSession) -> TopicTable:
    """The table of all topics, shared by the pages that need it."""
    return await session.cached("topics", _KEEP_MS, _topic_table)


async def _topic_table(admin: Admin) -> TopicTable:
    names = await admin.list_topics(internal=True)
    # A topic that was deleted between the two requests is left out.
    described = await admin.describe_topics(names, raise_errors=False) if names else {}
    table = TopicTable(
        [
            _row(topic.name, topic.is_internal, topic.partitions)
            for topic in sorted(described.values(), key=lambda topic: topic.name)
        ]
    )
    sizes = await _sizes(admin, table)
    if sizes is not None:
        for row in table.rows:
            row.size_bytes = sizes.get(row.name, 0)
    return table


def _row(name: str, is_internal: bool, partitions: Sequence[PartitionDescription]) -> TopicRow:
    return TopicRow(
        name,
        is_internal,
        len(partitions),
        max((len(part.replicas) for part in partitions), default=0),
        sum(part.leader is None for part in partitions),
        sum(len(part.in_sync) < len(part.replicas) for part in partitions),
    )


async def _sizes(admin: Admin, table: TopicTable) -> dict[str, int] | None:
    """The size of each topic; None if no broker reports it."""
    try:
        found = await admin.describe_log_dirs(raise_errors=False)
    except OdradekError as error:
        table.missing.append(why_missing("Sizes", error, DESCRIBE_CLUSTER))
        return None
    for failed in found.errors.values():
        table.missing.append(why_missing("Sizes", failed, DESCRIBE_CLUSTER))
    sizes: dict[str, int] = {}
    for directories in found.values():
        for directory in directories:
            if directory.error is not None:
                table.missing.append(f"Sizes in {directory.path}: {directory.error}")
            for tp, replica in directory.replicas.items():
                sizes[tp.topic] = sizes.get(tp.topic, 0) + replica.size_bytes
    return sizes if found else None


_COLUMNS = {
    "name": Column(lambda row: row.name),
    "partitions": Column(lambda row: row.partitions),
    "replication_factor": Column(lambda row: row.replication_factor),
    "size_bytes": Column(lambda row: row.size_bytes),
    "problems": Column(lambda row: row.leaderless + row.under_replicated),
}


async def topics(asked: Asked) -> Json:
    """A page of the topics with their numbers of records."""
    table = await topic_table(asked.session)
    internal = asked.query.flag("internal")
    rows = [row for row in table.rows if internal or not row.is_internal]
    page, about = page_of(rows, asked.query, _COLUMNS, name=lambda row: row.name, sort="name")
    counts = await _record_counts(asked.session, page)
    return {
        **about,
        "missing": table.missing,
        "rows": [
            {
                "name": row.name,
                "internal": row.is_internal,
                "partitions": row.partitions,
                "replication_factor": row.replication_factor,
                "leaderless": row.leaderless,
                "under_replicated": row.under_replicated,
                "size_bytes": row.size_bytes,
                "offsets": counts.get(row.name),
            }
            for row in page
        ],
    }


async def _record_counts(session: ConsoleSession, page: Sequence[TopicRow]) -> dict[str, int]:
    """The number of offsets of each topic, added up over its partitions. A topic is left out if the
    offsets of any of its partitions are unknown."""
    wanted = [TopicPartition(row.name, part) for row in page for part in range(row.partitions)]
    if not wanted:
        return {}

    async def ask(admin: Admin) -> dict[str, int]:
        first = await admin.list_offsets(dict.fromkeys(wanted, "earliest"), raise_errors=False)
        last = await admin.list_offsets(dict.fromkeys(wanted, "latest"), raise_errors=False)
        counts: dict[str, int] = {}
        unknown = set()
        for tp in wanted:
            start, end = first.get(tp), last.get(tp)
            if start is None or end is None:
                unknown.add(tp.topic)
            else:
                counts[tp.topic] = counts.get(tp.topic, 0) + end.offset - start.offset
        return {name: count for name, count in counts.items() if name not in unknown}

    return await session.cached(("offsets", *(row.name for row in page)), _KEEP_MS, ask)


VIEWS: dict[str, View] = {"/topics": topics}
