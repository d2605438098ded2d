"""Bugs of log starts, and of producer state at a start."""

from __future__ import annotations

from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.log_trimming import LogTrimming
from odradek_broker.storage.producers.producer_files import Producers
from odradek_broker.storage.producers.state import ProducerStateManager


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _no_snapshot(
    self: Producers, log_start_offset: int, end_offset: int, *, keep_damaged: bool
) -> int:
    self.state = ProducerStateManager(**self._options)
    return end_offset


RETENTION = (
    Mutant(
        "a crash resets the log start, which is not written to disk",
        "retention",
        11,
        {(LogDirectory, "write_log_starts"): _nothing},
    ),
    Mutant(
        "the log start does not move when segments are deleted",
        "retention",
        1,
        {(LogTrimming, "_move_log_start"): _nothing},
    ),
    Mutant(
        "a restart forgets the producer states that detect duplicates",
        "produce",
        1,
        {(Producers, "_load_snapshot"): _no_snapshot},
    ),
)
