"""Who is told when a partition refuses a producer, or sees a new one: for people, not for the rules.

A batch that is accepted from a producer that goes on as it did tells nobody: nothing here is on
that path.
"""

from __future__ import annotations

from typing import Protocol

from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.producer_state import Duplicate
from odradek_protocol.records.batch import BatchHeader

Place = tuple[str, int]
"""A topic's name and a partition."""


class ProducerWatch(Protocol):
    """Told after the fact; it must return at once and never fail."""

    def duplicate(self, where: Place, header: BatchHeader, original: Duplicate, /) -> None:
        """A batch was in the log already and was answered with its original offsets (P-10)."""
        ...

    def refused(self, where: Place, header: BatchHeader, rejected: AppendRejected, /) -> None:
        """A batch or a marker does not fit its producer's state."""
        ...

    def new_epoch(self, where: Place, header: BatchHeader, epoch_before: int | None, /) -> None:
        """A batch or a marker that was appended brought another epoch; None for a producer that was
        not known here."""
        ...

    def expired(self, where: Place, producer_id: int, /) -> None:
        """A producer that was idle for too long was forgotten (P-24)."""
        ...


class NobodyWatches:
    """What a log has until somebody does."""

    def duplicate(self, where: Place, header: BatchHeader, original: Duplicate, /) -> None:
        """Nothing."""

    def refused(self, where: Place, header: BatchHeader, rejected: AppendRejected, /) -> None:
        """Nothing."""

    def new_epoch(self, where: Place, header: BatchHeader, epoch_before: int | None, /) -> None:
        """Nothing."""

    def expired(self, where: Place, producer_id: int, /) -> None:
        """Nothing."""


NOBODY = NobodyWatches()
