"""The records that describe the present cluster metadata; they are the content of a snapshot.

The records are kept encoded, in an order in which they can be replayed. While a snapshot reads the
records, they do not change, and new changes are kept separately. The snapshot does not read a copy,
because copying many records would delay all requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, cast

from odradek_broker.quotas.client_quotas import quota_entity
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.message import Message
from odradek_protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    PartitionRecords,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

#: A record, or a dict from the name of each setting of a resource to the setting's record. A dict
#: is replaced, never changed.
_Entry = bytes | dict[str, bytes]
_PRODUCER_IDS = "producer ids"
#: The number of postponed changes that are applied whenever a record is replayed.
_CHANGES_PER_RECORD = 4


class MetadataImage:
    """The records of the present metadata. Only `replay` changes them, record by record."""

    def __init__(self) -> None:
        #: The kinds of keys: topic id; (topic id, partition); (type of resource, its name);
        #: ("quotas", entity); ("scram", user); ("ACL", id); ("token", id); ("feature", name);
        #: `_PRODUCER_IDS`.
        self._entries: dict[Any, _Entry] = {}
        #: The changes since a snapshot began, by the same keys; None for an entry that was removed.
        self._changes: dict[Any, _Entry | None] = {}
        #: The reader of the unchanged entries.
        self._reader: _Frozen | None = None
        self._topics: dict[bytes, tuple[bytes, str]] = {}

    def __len__(self) -> int:
        count = sum(map(_count, self._entries.values()))
        for key, entry in self._changes.items():
            count += _count(entry) - _count(self._entries.get(key))
        return count

    def replay(self, record: Message | PartitionRecords, *values: bytes) -> None:
        """Apply one record that the metadata has accepted; `values`: the encoded record, or each of
        the `PartitionRecords`."""
        self.apply_changes(_CHANGES_PER_RECORD + len(values))
        value = values[0] if values else b""
        match record:
            case PartitionRecords():
                self._replay_partitions(record, values)
            case PartitionRecord(topic_id=topic_id, partition_id=index):
                # All keys of a topic share one bytes object, to save memory: each id read from a
                # log is a new object.
                self._put((self._topics[topic_id][0], index), value)
            case TopicRecord():
                self._topics[record.topic_id] = record.topic_id, record.name
                self._put(record.topic_id, value)
            case RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case ConfigRecord():
                key = record.resource_type, record.resource_name
                self._set(key, record.name, None if record.value is None else value)
            case ClientQuotaRecord():
                entity = quota_entity(
                    (each.entity_type, each.entity_name) for each in record.entity
                )
                self._set(("quotas", entity), record.key, None if record.remove else value)
            case UserScramCredentialRecord():
                self._set(("scram", record.name), str(record.mechanism), value)
            case RemoveUserScramCredentialRecord():
                self._set(("scram", record.name), str(record.mechanism), None)
            case AccessControlEntryRecord():
                self._put(("ACL", record.id), value)
            case RemoveAccessControlEntryRecord():
                self._put(("ACL", record.id), None)
            case DelegationTokenRecord():
                self._put(("token", record.token_id), value)
            case RemoveDelegationTokenRecord():
                self._put(("token", record.token_id), None)
            case FeatureLevelRecord():
                self._put(("feature", record.name), value)
            case ProducerIdsRecord():
                self._put(_PRODUCER_IDS, value)
            case _:
                raise TypeError(f"no metadata record: {record!r}")

    def values(self) -> Iterator[bytes]:
        """The encoded records of the present state. Changes that are replayed while the iterator is
        in use do not affect its records. Only one such iterator may exist at a time."""
        self._reader = None
        self.apply_changes(len(self._changes))
        self._reader = _Frozen(self._entries, self._taken)
        return self._reader

    def apply_changes(self, at_most: int) -> None:
        """Apply some of the changes that were made during a snapshot, if the snapshot has ended."""
        if self._changes and self._reader is None:
            for key in list(islice(self._changes, at_most)):
                entry = self._changes.pop(key)
                if entry is None:
                    self._entries.pop(key, None)
                else:
                    self._entries[key] = entry

    def _taken(self, reader: _Frozen) -> None:
        if self._reader is reader:
            self._reader = None

    def _get(self, key: object) -> _Entry | None:
        if key in self._changes:
            return self._changes[key]
        return self._entries.get(key)

    def _put(self, key: object, entry: _Entry | None) -> None:
        if self._reader is not None or key in self._changes:
            self._changes[key] = entry
        elif entry is None:
            self._entries.pop(key, None)
        elif self._changes and key not in self._entries:
            # A record with a new key is postponed too: it must come after the records on which it
            # depends, for example after the record of its topic, and these may be postponed.
            self._changes[key] = entry
        else:
            self._entries[key] = entry

    def _replay_partitions(self, records: PartitionRecords, values: Sequence[bytes]) -> None:
        topic_id = self._topics[records.first.topic_id][0]
        keys = [(topic_id, index) for index in records.indexes]
        if self._reader is None and not self._changes:
            self._entries.update(zip(keys, values, strict=True))
            return
        for key, value in zip(keys, values, strict=True):
            self._put(key, value)

    def _remove_topic(self, topic_id: bytes) -> None:
        topic_id, name = self._topics.pop(topic_id)
        self._put(topic_id, None)
        self._put((RESOURCE_TOPIC, name), None)
        index = 0  # Partitions are numbered without gaps.
        if self._reader is None and not self._changes:
            while self._entries.pop((topic_id, index), None) is not None:
                index += 1
        while self._get((topic_id, index)) is not None:
            self._put((topic_id, index), None)
            index += 1

    def _set(self, key: object, name: str, value: bytes | None) -> None:
        """Set one setting of the entry `key`; a value of None removes the setting."""
        settings = cast(dict[str, bytes], self._get(key) or {})
        kept = {known: each for known, each in settings.items() if known != name}
        if value is not None:
            kept[name] = value
        self._put(key, kept or None)


class _Frozen(Iterator[bytes]):
    """An iterator over the records of entries. The entries do not change until the iterator calls
    `taken` at its end."""

    __slots__ = ("_taken", "_values")

    def __init__(self, entries: dict[Any, _Entry], taken: Callable[[_Frozen], None]) -> None:
        self._values = _flat(entries.values())
        self._taken = taken

    def __next__(self) -> bytes:
        value = next(self._values, None)
        if value is None:
            self._taken(self)
            raise StopIteration
        return value


def _count(entry: _Entry | None) -> int:
    if entry is None:
        return 0
    return len(entry) if isinstance(entry, dict) else 1


def _flat(entries: Iterable[_Entry]) -> Iterator[bytes]:
    for entry in entries:
        if isinstance(entry, dict):
            yield from entry.values()
        else:
            yield entry
