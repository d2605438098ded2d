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
    self: LogStartup, key: Any, config: Any, left: Any, topic_id_known: Any
) -> None:
    _open(self, key, config, left, None)


STORAGE = (
    Mutant(
        "a topic id that a start finds in the page cache, and neither syncs nor knows afterwards",
        "spark-sink",
        131,
        {
            (PartitionLog, "load"): _loaded_with_the_topic_id_unsynced,
            (LogStartup, "_open"): _opened_without_the_id_of_the_metadata,
        },
        ("readers were shown records",),
    ),
    Mutant(
        "a start that could not sync what it found, and says that it is on disk",
        "compaction",
        6,
        {(LogDurability, "recovery_failed"): _recovery_failed_is_recovered},
        ("CorruptMessage", "comes behind write"),
    ),
    Mutant(
        "a hole in a young compacted log that is taken for the work of compaction",
        "compaction",
        32,
        {(LogDirectory, "begin_recovery_points"): _nothing},
        ("comes behind write",),
    ),
    Mutant(
        "a start with page-cache that leaves unsynced what fsync had acknowledged",
        "everything",
        13,
        {(PartitionLog, "load"): _loaded_unsynced},
        ("readers were shown records",),
    ),
    Mutant(
        "a write to the commit journal that does nothing",
        "produce",
        5,
        {(CommitJournal, "write"): _nothing},
    ),
    Mutant(
        "a start that puts nothing back from the commit journal",
        "produce",
        5,
        {(JournalReplay, "behind"): _no_journal_bytes},
    ),
    Mutant(
        "a start that puts back what is not missing",
        "produce",
        5,
        {(JournalReplay, "behind"): _all_journal_bytes},
    ),
    Mutant(
        "parts of the commit journal used again before the files are synced",
        "produce",
        5,
        {(CommitJournal, "_next_part"): _next_part_without_a_sync},
    ),
    Mutant("an fsync that does nothing", "produce", 5, {(FlushTicket, "sync"): _nothing}),
    Mutant(
        "an acknowledgement before the write is durable",
        "produce",
        8,
        {(Partition, "durable"): lambda self, last_offset: True},
    ),
    Mutant(
        "sequences and duplicates that nobody checks",
        "produce",
        2,
        {(ProducerStateManager, "check"): _never_a_duplicate},
    ),
    Mutant(
        "a failed fsync taken for a good one",
        "transactional-copy",
        108,
        {
            (LogDurability, "finish_flush"): _failed_flush_is_a_flush,
            (LogDurability, "finish_journaled"): _failed_write_is_a_write,
        },
    ),
    Mutant(
        "partitions of a directory that is missing are made anew, empty",
        "two-directories",
        104,
        {(LogDirectories, "missing"): property(lambda self: None)},
        caught_by=("readers were shown records", "is in two data directories"),
    ),
)
