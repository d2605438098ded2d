"""Arguments for opening a partition log: the options that all logs of a broker share, and the state
in which the log was left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from odradek_broker.platform.seams import Files, Randomness
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.disk_watch import DiskWatch
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.journal import CommitJournal
from odradek_broker.storage.producers.state import ProducerTally
from odradek_protocol.lazy_dataclass import dataclass


class UnopenedLog(Protocol):
    """A log that could not be opened."""

    def open_again(self, now_ms: int) -> bool:
        """Try to open the log again; True if it is served."""
        ...


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options that all logs of a broker share."""

    files: Files
    handles: HandleCache
    randomness: Randomness
    deleted: DeletedFiles
    max_producer_ids: int = 100_000
    #: The value is a function, because the setting may be changed while the broker runs.
    producer_expiration_ms: Callable[[], int] = lambda: 86_400_000
    producer_tally: ProducerTally = field(default_factory=ProducerTally)
    disk: DiskWatch = field(default_factory=DiskWatch)
    journal_bytes_max: int = 0
    #: The commit journal of the directory, if there is one.
    journal: CommitJournal | None = None
    #: The logs that could not be opened, by name. `open_again` is called for them.
    unopened: dict[str, UnopenedLog] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogStart:
    """The state in which the last run left a log. If `clean` is true, the run was stopped cleanly,
    and the log ends at `log_end_offset`; otherwise the log was flushed up to `recovery_point`.
    `cleaned`: the log has been compacted, so there may be gaps between its segments;
    `gaps_known`: all gaps of compaction are below the recovery point (L-32)."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    recovery_point: int = 0
    clean: bool = False
    cleaned: bool = False
    gaps_known: bool = False
