"""A topic: its partitions, its settings with their sources, and the groups that read it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from odradek_client.admin import Admin, ConfigResource
from odradek_client.admin.configs import ConfigEntry, ConfigSource
from odradek_client.errors import OdradekError, UnsupportedByBroker
from odradek_client.structs import TopicPartition
from odradek_console.answers import Column, Json, page_of
from odradek_console.asked import Asked, View

_KEEP_MS = 2_000
_GROUPS_KEEP_MS = 10_000
#: The maximum numbers of groups whose offsets are looked up: in total, and at the same time. A
#: cluster may have 10,000 groups.
_GROUPS_MAX = 500
_GROUPS_AT_A_TIME = 8


@dataclass
class _Partition:
    """A partition. Figures that the broker did not report are None."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    start: int | None = None
    end: int | None = None
    stable: int | None = None
    size_bytes: int | None = None

    @property
    def offsets(self) -> int | None:
        """The number of offsets between start and end."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def held(self) -> int:
        """The number of offsets that open transactions hold back."""
        return 0 if self.stable is None or self.end is None else self.end - self.stable


@dataclass
class _Topic:
    topic_id: str
    internal: bool
    partitions: list[_Partition]
    missing: list[str]


async def _topic(admin: Admin, name: str) -> _Topic:
    found = (await admin.describe_topics([name]))[name]
    topic = _Topic(
        found.topic_id.hex(),
        found.is_internal,
        [
            _Partition(part.partition, part.leader, part.leader_epoch, part.replicas, part.in_sync)
            for part in sorted(found.partitions, key=lambda part: part.partition)
        ],
        [],
    )
    await _add_offsets(admin, name, topic)
    await _add_sizes(admin, name, topic)
    return topic


async def _add_offsets(admin: Admin, name: str, topic: _Topic) -> None:
    wanted = [
        TopicPartition(name, part.partition) for part in topic.partitions if part.leader is not None
    ]
    if not wanted:
        return
    try:
        first = await admin.list_offsets(dict.fromkeys(wanted, "earliest"), raise_errors=False)
        last = await admin.list_offsets(dict.fromkeys(wanted, "latest"), raise_errors=False)
        stable = await admin.list_offsets(
            dict.fromkeys(wanted, "latest"), read_committed=True, raise_errors=False
        )
    except OdradekError as error:
        topic.missing.append(f"Offsets: {error}")
        return
    for reason in dict.fromkeys(map(str, last.errors.values())):
        topic.missing.append(f"Offsets: {reason}")
    for part in topic.partitions:
        tp = TopicPartition(name, part.partition)
        for field, found in (("start", first), ("end", last), ("stable", stable)):
            at = found.get(tp)
            if at is not None:
                setattr(part, field, at.offset)


async def _add_sizes(admin: Admin, name: str, topic: _Topic) -> None:
    """Set the size of each partition: the size of its largest replica."""
    try:
        found = await admin.describe_log_dirs(raise_errors=False)
    except OdradekError as error:
        topic.missing.append(f"Sizes: {error}")
        return
    for failed in found.errors.values():
        why = "this broker is too old" if isinstance(failed, UnsupportedByBroker) else str(failed)
        topic.missing.append(f"Sizes: {why}")
    sizes: dict[int, int] = {}
    for directories in found.values():
        for directory in directories:
            for tp, replica in directory.replicas.items():
                if tp.topic == name and not replica.is_future:
                    sizes[tp.partition] = max(sizes.get(tp.partition, 0), replica.size_bytes)
    for part in topic.partitions:
        part.size_bytes = sizes.get(part.partition)


async def _known(asked: Asked) -> _Topic:
    name = asked.query.text("name")
    return await asked.session.cached(("topic", name), _KEEP_MS, lambda admin: _topic(admin, name))


async def topic(asked: Asked) -> Json:
    """The figures of a topic."""
    found = await _known(asked)
    parts = found.partitions
    offsets = [part.offsets for part in parts]
    sizes = [part.size_bytes for part in parts]
    return {
        "name": asked.query.text("name"),
        "topic_id": found.topic_id,
        "internal": found.internal,
        "partitions": len(parts),
        "replication_factor": max((len(part.replicas) for part in parts), default=0),
        "leaderless": sum(part.leader is None for part in parts),
        "under_replicated": sum(len(part.in_sync) < len(part.replicas) for part in parts),
        "offsets": None if None in offsets else sum(filter(None, offsets)),
        "held": sum(part.held for part in parts),
        "held_partitions": sum(part.held > 0 for part in parts),
        "size_bytes": None if None in sizes else sum(filter(None, sizes)),
        "missing": found.missing,
    }


_COLUMNS = {
    "partition": Column(lambda part: part.partition),
    "leader": Column(lambda part: part.leader),
    "start": Column(lambda part: part.start),
    "end": Column(lambda part: part.end),
    "offsets": Column(lambda part: part.offsets),
    "held": Column(lambda part: part.held),
    "size_bytes": Column(lambda part: part.size_bytes),
}


async def partitions(asked: Asked) -> Json:
    """A page of the partitions of a topic."""
    found = await _known(asked)
    page, about = page_of(
        found.partitions,
        asked.query,
        _COLUMNS,
        name=lambda part: f"{part.partition:010}",
        sort="partition",
    )
    return {
        **about,
        "rows": [
            {
                "partition": part.partition,
                "leader": part.leader,
                "leader_epoch": part.leader_epoch,
                "replicas": part.replicas,
                "in_sync": part.in_sync,
                "start": part.start,
                "end": part.end,
                "stable": part.stable,
                "offsets": part.offsets,
                "held": part.held,
                "size_bytes": part.size_bytes,
            }
            for part in page
        ],
    }


#: The sources of settings in words, the most specific first.
_SOURCES = {
    ConfigSource.TOPIC: "this topic",
    ConfigSource.DYNAMIC_BROKER: "this broker, dynamic",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers, dynamic",
    ConfigSource.STATIC_BROKER: "the broker's file",
    ConfigSource.DEFAULT: "default",
}


async def settings(asked: Asked) -> Json:
    """The settings of a topic, the topic's own settings first, defaults last."""
    name = asked.query.text("name")

    async def ask(admin: Admin) -> list[ConfigEntry]:
        resource = ConfigResource.topic(name)
        found = await admin.describe_configs([resource], documentation=True)
        return sorted(found[resource].values(), key=_place)

    entries = await asked.session.cached(("topic settings", name), _KEEP_MS, ask)
    return {
        "rows": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": _SOURCES.get(entry.source, entry.source.name.lower().replace("_", " ")),
                "is_default": entry.is_default or entry.source is ConfigSource.DEFAULT,
                "is_sensitive": entry.is_sensitive,
                "is_read_only": entry.is_read_only,
                "documentation": entry.documentation,
            }
            for entry in entries
        ]
    }


def _place(entry: ConfigEntry) -> tuple[int, str]:
    order = list(_SOURCES)
    known = entry.source in order
    return (order.index(entry.source) if known else len(order), entry.name)


async def groups(asked: Asked) -> Json:
    """The groups with committed offsets in a topic, and their lag; the largest lag first."""
    name = asked.query.text("name")
    found = await _known(asked)
    ends = {part.partition: part.end for part in found.partitions}
    starts = {part.partition: part.start for part in found.partitions}

    async def ask(admin: Admin) -> Json:
        every = [each for each in await admin.list_groups() if each.type in ("classic", "consumer")]
        looked_at = every[:_GROUPS_MAX]
        missing: list[str] = []
        gate = asyncio.Semaphore(_GROUPS_AT_A_TIME)

        async def row(group_id: str, state: str | None) -> Json | None:
            async with gate:
                try:
                    committed = await admin.list_group_offsets(group_id)
                except OdradekError as error:
                    missing.append(f"{group_id}: {error}")
                    return None
            offsets = {
                tp.partition: at.offset
                for tp, at in committed.items()
                if tp.topic == name and at is not None
            }
            if not offsets:
                return None
            lags = []
            for part, at in offsets.items():
                end, start = ends.get(part), starts.get(part)
                lags.append(None if end is None else max(end - max(at, start or 0), 0))
            return {
                "group": group_id,
                "state": state,
                "partitions": len(offsets),
                "lag": None if None in lags else sum(filter(None, lags)),
            }

        rows = await asyncio.gather(*(row(each.group_id, each.state) for each in looked_at))
        there = [each for each in rows if each is not None]
        there.sort(key=lambda each: (-(each["lag"] or 0), each["group"]))
        return {
            "rows": there[:_GROUPS_MAX],
            "looked_at": len(looked_at),
            "groups": len(every),
            "missing": missing[:10],
        }

    return await asked.session.cached(("topic groups", name), _GROUPS_KEEP_MS, ask)


VIEWS: dict[str, View] = {
    "/topic": topic,
    "/topic/partitions": partitions,
    "/topic/settings": settings,
    "/topic/groups": groups,
}
