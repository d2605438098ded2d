"""The records that make up the present cluster metadata, and no others: what a snapshot is made of.

They are kept encoded, in an order in which they can be replayed. A copy costs next to nothing, so that a
snapshot can be written while the metadata goes on changing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from odradek_broker.quotas.entities import quota_entity
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.message import Message
from odradek_protocol.stored.cluster_metadata import (
    ClientQuotaRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

#: One record, or those of all settings of a resource by their names. The latter are replaced, never changed.
_Entry = bytes | dict[str, bytes]
_PRODUCER_IDS = "producer ids"


class MetadataImage:
    """Changed by `replay` alone, record by record, as the metadata itself."""

    def __init__(self) -> None:
        #: By topic id; (topic id, partition); (type of resource, its name); ("quotas", entity);
        #: `_PRODUCER_IDS`.
        self._entries: dict[Any, _Entry] = {}
        self._topics: dict[bytes, tuple[bytes, str]] = {}

    def __len__(self) -> int:
        return sum(len(entry) if isinstance(entry, dict) else 1 for entry in self._entries.values())

    def replay(self, record: Message, value: bytes) -> None:
        """Take one record that the metadata has accepted; `value`: the same, encoded."""
        _REPLAY[type(record)](self, record, value)

    def values(self) -> Iterator[bytes]:
        """The encoded records as they are now, whatever is replayed before the last one is taken."""
        return _flat(self._entries.copy().values())

    def _replay_topic(self, record: TopicRecord, value: bytes) -> None:
        self._topics[record.topic_id] = record.topic_id, record.name
        self._entries[record.topic_id] = value

    def _replay_partition(self, record: PartitionRecord, value: bytes) -> None:
        # All keys of a topic share one object: ids that were read from a log are copies.
        topic_id = self._topics[record.topic_id][0]
        self._entries[topic_id, record.partition_id] = value

    def _replay_remove_topic(self, record: RemoveTopicRecord, value: bytes) -> None:
        topic_id, name = self._topics.pop(record.topic_id)
        del self._entries[topic_id]
        self._entries.pop((RESOURCE_TOPIC, name), None)
        index = 0  # Partitions are numbered without gaps.
        while self._entries.pop((topic_id, index), None) is not None:
            index += 1

    def _replay_config(self, record: ConfigRecord, value: bytes) -> None:
        key = record.resource_type, record.resource_name
        self._set(key, record.name, None if record.value is None else value)

    def _replay_client_quota(self, record: ClientQuotaRecord, value: bytes) -> None:
        entity = quota_entity((each.entity_type, each.entity_name) for each in record.entity)
        self._set(("quotas", entity), record.key, None if record.remove else value)

    def _set(self, key: object, name: str, value: bytes | None) -> None:
        """One of the settings behind a key; None removes it."""
        held = self._entries.get(key, {})
        assert isinstance(held, dict)
        kept = {known: each for known, each in held.items() if known != name}
        if value is not None:
            kept[name] = value
        if kept:
            self._entries[key] = kept
        else:
            self._entries.pop(key, None)

    def _replay_producer_ids(self, record: ProducerIdsRecord, value: bytes) -> None:
        self._entries[_PRODUCER_IDS] = value


def _flat(entries: Iterable[_Entry]) -> Iterator[bytes]:
    for entry in entries:
        if isinstance(entry, dict):
            yield from entry.values()
        else:
            yield entry


_Replay = Callable[[MetadataImage, Message, bytes], None]
_REPLAY: dict[type[Message], _Replay] = {
    TopicRecord: MetadataImage._replay_topic,  # type: ignore[dict-item]
    PartitionRecord: MetadataImage._replay_partition,  # type: ignore[dict-item]
    ClientQuotaRecord: MetadataImage._replay_client_quota,  # type: ignore[dict-item]
    ConfigRecord: MetadataImage._replay_config,  # type: ignore[dict-item]
    RemoveTopicRecord: MetadataImage._replay_remove_topic,  # type: ignore[dict-item]
    ProducerIdsRecord: MetadataImage._replay_producer_ids,  # type: ignore[dict-item]
}
