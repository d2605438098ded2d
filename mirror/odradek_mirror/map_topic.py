"""The map topic of a mirror: its creation, its check, and its reading.

`odradek-mirror-NAME` is a compacted topic of one partition at the target. Each transaction of the
mirror writes the runs of its copied records into the map topic (`offset_map.py`), so that a restart
finds the positions that match the copied records, and any offset of the source can be
translated. One more record, with a key of its own, names the instance that writes the topic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from uuid import UUID

from odradek_client.admin import Admin, NewTopic
from odradek_client.admin.configs import ConfigResource
from odradek_client.errors import Refused, TopicAlreadyExists, UnknownTopicOrPartition
from odradek_client.structs import TopicPartition
from odradek_mirror.offset_map import MapDamaged, MapEntry, PartitionMap, decode_entry, decode_key
from odradek_mirror.source import SourceReader
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.aborted import AbortedBatches
from odradek_protocol.records.batch import iter_batches, verify_crc
from odradek_protocol.records.record import read_columns

#: The settings of a new map topic. Segments are small, because the newest one is not compacted.
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
#: The wait of one poll of the map topic. After `_POLLS_WITHOUT_NEWS_MAX` polls in a row without
#: records, the read fails.
_POLL_MS = 500
_POLLS_WITHOUT_NEWS_MAX = 120
_OWNER_KEY = b'{"owner":"mirror"}'


class MapTopicUnfit(Refused):
    """The error of a map topic that the mirror cannot use."""


class MapTopicOwner(NamedTuple):
    """The instance that writes the map topic: its first producer id and epoch, its host and process
    id, and its start time."""

    producer_id: int
    epoch: int
    host: str
    pid: int
    since_ms: int


@dataclass(slots=True)
class MirrorMap:
    """The content of a map topic."""

    partitions: dict[TopicPartition, PartitionMap] = field(default_factory=dict)
    owner: MapTopicOwner | None = None
    last_written_ms: int = -1

    def topics(self) -> set[str]:
        """The topics of the source with copied records."""
        return {tp.topic for tp in self.partitions}


def map_topic(name: str) -> str:
    """The map topic of the mirror with this name."""
    return f"odradek-mirror-{name}"


async def make_map_topic(target: Admin, name: str) -> None:
    """Create the map topic unless it exists. Raises MapTopicUnfit, and errors of the target."""
    topic = map_topic(name)
    try:
        await target.create_topics(NewTopic(topic, 1, configs=_CONFIGS))
    except TopicAlreadyExists:
        await check_map_topic(target, name)


async def check_map_topic(target: Admin, name: str) -> bool:
    """True if the map topic exists and can be used. Raises MapTopicUnfit."""
    topic = map_topic(name)
    try:
        described = await target.describe_topics(topic)
    except UnknownTopicOrPartition:
        return False
    count = len(described[topic].partitions)
    if count != 1:
        raise MapTopicUnfit(
            f"topic {topic!r} of the target has {count} partitions, and a mirror needs one of its"
            " own with one partition; choose another --name"
        )
    resource = ConfigResource.topic(topic)
    entries = (await target.describe_configs(resource, names=["cleanup.policy"]))[resource]
    policy = entries["cleanup.policy"].value
    if policy != "compact":
        raise MapTopicUnfit(
            f"topic {topic!r} of the target has cleanup.policy={policy}, so that its records, the"
            " positions of the mirror, are deleted after a while; set cleanup.policy=compact"
        )
    return True


async def read_map(target: Admin, name: str) -> MirrorMap:
    """The content of the map topic, up to its last stable offset. Raises MapDamaged."""
    tp = TopicPartition(map_topic(name), 0)
    stored = await stored_records(target, tp)
    found = MirrorMap()
    entries: dict[TopicPartition, list[MapEntry]] = defaultdict(list)
    for key, (offset, timestamp_ms, value) in stored.items():
        found.last_written_ms = max(found.last_written_ms, timestamp_ms)
        try:
            if key == _OWNER_KEY:
                found.owner = None if value is None else decode_owner(value)
            elif value is not None:
                entry = decode_entry(key, value)
                entries[entry.tp].append(entry)
            else:
                decode_key(key)
        except MapDamaged as error:
            raise _damaged(tp.topic, f"offset {offset}: {error}") from None
    for copied, some in sorted(entries.items()):
        some.sort(key=lambda entry: entry.start)
        made = found.partitions[copied] = PartitionMap(some[0].start, *some[0].position[2:])
        try:
            for entry in some:
                made.add(entry)
        except MapDamaged as error:
            raise _damaged(tp.topic, str(error)) from None
    return found


def _damaged(topic: str, reason: str) -> MapDamaged:
    return MapDamaged(
        f"topic {topic!r} of the target is damaged, or something else has written into it:"
        f" {reason}. The mirror cannot go on from it: delete this topic and the copied topics of"
        " the target, or choose another --name and other topics, and copy again"
    )


async def stored_records(
    target: Admin, tp: TopicPartition
) -> dict[bytes | None, tuple[int, int, bytes | None]]:
    """The newest record of each key: offset, timestamp and value."""
    first = (await target.list_offsets({tp: "earliest"}))[tp]
    last = (await target.list_offsets({tp: "latest"}, read_committed=True))[tp]
    assert first is not None and last is not None
    stored: dict[bytes | None, tuple[int, int, bytes | None]] = {}
    reader = SourceReader(target, read_committed=True)
    reader.assign(tp, first.offset)
    silent = 0
    try:
        while reader.positions[tp] < last.offset:
            fetched = await reader.poll(_POLL_MS)
            silent = 0 if fetched else silent + 1
            if silent > _POLLS_WITHOUT_NEWS_MAX:
                trouble = reader.troubles().get(tp)
                why = f": {trouble.error}" if trouble else ""
                raise MapTopicUnfit(f"topic {tp.topic!r} of the target cannot be read{why}")
            for piece in fetched:
                hidden = AbortedBatches(piece.aborted)
                for position, header in iter_batches(piece.records):
                    verify_crc(piece.records, position, header)
                    if hidden.hides(piece.records, position, header):
                        continue
                    columns = read_columns(piece.records, position, header)
                    for offset, at_ms, key, value in zip(*columns[:4], strict=True):
                        if offset >= piece.fetch_offset:
                            stored[key] = offset, at_ms, value
    finally:
        await reader.close()
    return stored


# --- the owner ------------------------------------------------------------------------------------


def encode_owner(owner: MapTopicOwner) -> tuple[bytes, bytes]:
    """Key and value of the record that names the owner."""
    return _OWNER_KEY, json.dumps(owner._asdict(), separators=(",", ":")).encode()


def decode_owner(value: bytes) -> MapTopicOwner:
    """The owner in a record. Raises MapDamaged for a value of another form."""
    try:
        owner = MapTopicOwner(**json.loads(value))
    except (ValueError, TypeError, RecursionError):
        raise MapDamaged("the record of the owner cannot be read") from None
    numbers = (owner.producer_id, owner.epoch, owner.pid, owner.since_ms)
    if not isinstance(owner.host, str) or not all(type(number) is int for number in numbers):
        raise MapDamaged("the record of the owner cannot be read")
    return owner


def topic_uuid(topic_id: bytes) -> UUID:
    """The id of a topic; all zeros if the brokers have no topic ids."""
    return UUID(bytes=bytes(topic_id))
