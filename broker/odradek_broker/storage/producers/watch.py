"""Observers of producer state, which are called when a partition refuses a producer or gets a new
one.

An accepted batch of a producer's present epoch calls no observer.
"""

from __future__ import annotations

from typing import Protocol

from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.producers.state import Duplicate
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.records.batch import BatchHeader


class ProducerWatch(Protocol):
    """An observer, called after each event. Its methods must return quickly and never raise."""

    def duplicate(self, where: TopicPartition, header: BatchHeader, original: Duplicate, /) -> None:
        """Note a batch that was in the log already and was answered with its original offsets
        (P-10).
        """
        ...

    def refused(
        self, where: TopicPartition, header: BatchHeader, rejected: AppendRejected, /
    ) -> None:
        """Note a batch or a marker that does not fit its producer's state."""
        ...

    def new_epoch(
        self, where: TopicPartition, header: BatchHeader, epoch_before: int | None, /
    ) -> None:
        """Note a batch or a marker with a new epoch; the old epoch is None for a producer that had
        no state here."""
        ...

    def expired(self, where: TopicPartition, producer_id: int, /) -> None:
        """Note the removal of a producer that was idle for too long (P-24)."""
        ...


class NobodyWatches:
    """The observer of a log that has no other."""

    def duplicate(self, where: TopicPartition, header: BatchHeader, original: Duplicate, /) -> None:
        """Ignore the event."""

    def refused(
        self, where: TopicPartition, header: BatchHeader, rejected: AppendRejected, /
    ) -> None:
        """Ignore the event."""

    def new_epoch(
        self, where: TopicPartition, header: BatchHeader, epoch_before: int | None, /
    ) -> None:
        """Ignore the event."""

    def expired(self, where: TopicPartition, producer_id: int, /) -> None:
        """Ignore the event."""


NOBODY = NobodyWatches()
