"""Bugs of logs, durability and producer state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.partition import Partition
from odradek_broker.storage.journal import CommitJournal
from odradek_broker.storage.journal_replay import JournalReplay
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_directories import LogDirectories
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.log_durability import FlushTicket, LogDurability
from odradek_broker.storage.producers.state import Accepted, ProducerStateManager
from odradek_broker.storage.startup import LogStartup


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _never_a_duplicate(self: ProducerStateManager, *_: Any) -> Accepted:
    return Accepted()


_finish_flush = LogDurability.finish_flush
_finish_journaled = LogDurability.finish_journaled


def _failed_flush_is_a_flush(self: LogDurability, ticket: Any, error: OSError | None) -> None:
    _finish_flush(self, ticket, None)


def _failed_write_is_a_write(self: LogDurability, ticket: Any, error: OSError | None) -> None:
    _finish_journaled(self, ticket, None)


def _no_journal_bytes(*_: Any) -> Iterator[bytes]:
    return iter(())


def _all_journal_bytes(
    self: JournalReplay, topic_id: bytes, partition: int, segment: int, *_: int
) -> Iterator[bytes]:
    file = self._files.open(self._path)
    for place in self._found.get((topic_id, partition), {}).get(segment, ()):
        yield file.read_at(place.at, place.size_bytes)
    file.close()


_next_part = CommitJournal._next_part


def _next_part_without_a_sync(self: CommitJournal) -> bool:
    for part in self._full:
        part.logs.clear()
    self._free.extend(self._full)
    self._full.clear()
    return _next_part(self)


_load = PartitionLog.load


def _loaded_unsynced(self: PartitionLog, now_ms: int, later: Any = None) -> Any:
    return _load(self, now_ms, [] if self.config.durability == "page-cache" else later)


def _loaded_with_the_topic_id_unsynced(self: PartitionLog, now_ms: int, later: Any = None) -> Any:
    written_here = self._files.directory.dirty
    report = _load(self, now_ms, later)
    if not written_here:
        self._files.directory.take_unsynced_paths()
        self._files.directory.dirty = False
    return report


_recovery_failed = LogDurability.recovery_failed


def _recovery_failed_is_recovered(self: LogDurability) -> None:
    flushed = self.synced_offset
    _recovery_failed(self)
    self.synced_offset = flushed


_open = LogStartup._open


def _opened_without_the_id_of_the_metadata(
    self: LogStartup, key: Any, config: Any, left: Any, topic_id: Any, topic_id_known: Any
) -> None:
    _open(self, key, config, left, topic_id, None)


STORAGE = (
    Mutant(
        "a start neither syncs a topic id from the page cache nor takes the id from the metadata",
        "spark-sink",
        131,
        {
            (PartitionLog, "load"): _loaded_with_the_topic_id_unsynced,
            (LogStartup, "_open"): _opened_without_the_id_of_the_metadata,
        },
        ("readers were shown records",),
    ),
    Mutant(
        "a start whose sync fails still counts the records that it found as synced",
        "compaction",
        6,
        {(LogDurability, "recovery_failed"): _recovery_failed_is_recovered},
        ("CorruptMessage", "comes behind write"),
    ),
    Mutant(
        "recovery takes a hole in a new compacted log for records that compaction removed",
        "compaction",
        32,
        {(LogDirectory, "begin_recovery_points"): _nothing},
        ("comes behind write",),
    ),
    Mutant(
        "a start with page-cache does not sync records that fsync had acknowledged",
        "everything",
        13,
        {(PartitionLog, "load"): _loaded_unsynced},
        ("readers were shown records",),
    ),
    Mutant(
        "writes to the commit journal do nothing",
        "produce",
        5,
        {(CommitJournal, "write"): _nothing},
    ),
    Mutant(
        "a start restores no records from the commit journal",
        "produce",
        5,
        {(JournalReplay, "behind"): _no_journal_bytes},
    ),
    Mutant(
        "a start restores records from the commit journal that the log already has",
        "produce",
        5,
        {(JournalReplay, "behind"): _all_journal_bytes},
    ),
    Mutant(
        "parts of the commit journal are reused before the log files are synced",
        "produce",
        5,
        {(CommitJournal, "_next_part"): _next_part_without_a_sync},
    ),
    Mutant("fsync of a log does nothing", "produce", 5, {(FlushTicket, "sync"): _nothing}),
    Mutant(
        "the broker acknowledges a write before it is durable",
        "produce",
        8,
        {(Partition, "durable"): lambda self, last_offset: True},
    ),
    Mutant(
        "the broker checks neither sequence numbers nor duplicates",
        "produce",
        2,
        {(ProducerStateManager, "check"): _never_a_duplicate},
    ),
    Mutant(
        "the broker takes a failed fsync for a successful one",
        "transactional-copy",
        108,
        {
            (LogDurability, "finish_flush"): _failed_flush_is_a_flush,
            (LogDurability, "finish_journaled"): _failed_write_is_a_write,
        },
    ),
    Mutant(
        "the partitions of a missing data directory are created again, empty",
        "two-directories",
        104,
        {(LogDirectories, "missing"): property(lambda self: None)},
        caught_by=("readers were shown records", "is in two data directories"),
    ),
)
