"""Bugs of logs, durability and producer state."""

from __future__ import annotations

from typing import Any

from odradek.simulation.mutants.base import Mutant
from odradek_broker.partition import Partition
from odradek_broker.storage.flush_ticket import FlushTicket
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_directories import LogDirectories
from odradek_broker.storage.producers.state import Accepted, ProducerStateManager


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _never_a_duplicate(self: ProducerStateManager, *_: Any) -> Accepted:
    return Accepted()


_finish_flush = PartitionLog.finish_flush


def _failed_flush_is_a_flush(self: PartitionLog, ticket: Any, error: OSError | None) -> None:
    _finish_flush(self, ticket, None)


STORAGE = (
    Mutant("an fsync that does nothing", "produce", 5, {(FlushTicket, "sync"): _nothing}),
    Mutant(
        "an acknowledgement before the write is durable",
        "produce",
        5,
        {(Partition, "durable"): lambda self, last_offset: True},
    ),
    Mutant(
        "sequences and duplicates that nobody checks",
        "produce",
        3,
        {(ProducerStateManager, "check"): _never_a_duplicate},
    ),
    Mutant(
        "a failed fsync taken for a good one",
        "transactional-copy",
        158,
        {(PartitionLog, "finish_flush"): _failed_flush_is_a_flush},
    ),
    Mutant(
        "partitions of a directory that is missing are made anew, empty",
        "two-directories",
        104,
        {(LogDirectories, "missing"): property(lambda self: None)},
        caught_by=("readers were shown records", "is in two data directories"),
    ),
)
