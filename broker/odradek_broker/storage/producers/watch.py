"""Observers of producer state: told when a partition refuses a producer, or sees a new one.

An accepted batch of a producer's present epoch calls no observer.
"""

from __future__ import annotations

from typing import Protocol

from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.producers.state import Duplicate
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.records.batch import BatchHeader


class ProducerWatch(Protocol):
    """An observer, called after the fact. Its methods must return at once and never raise."""

    def duplicate(self, where: TopicPartition, header: BatchHeader, original: Duplicate, /) -> None:
        """A batch was in the log already and was answered with its original offsets (P-10)."""
        ...

    def refused(
        self, where: TopicPartition, header: BatchHeader, rejected: AppendRejected, /
    ) -> None:
        """A batch or a marker does not fit its producer's state."""
        ...

    def new_epoch(
        self, where: TopicPartition, header: BatchHeader, epoch_before: int | None, /
    ) -> None:
        """A batch or a marker that was appended brought another epoch; None for a producer that was
        not known here."""
        ...

    def expired(self, where: TopicPartition, producer_id: int, /) -> None:
        """A producer that was idle for too long was removed (P-24)."""
        ...


class NobodyWatches:
    """The observer of a log that has no other."""

    def duplicate(self, where: TopicPartition, header: BatchHeader, original: Duplicate, /) -> None:
        """Not observed."""

    def refused(
        self, where: TopicPartition, header: BatchHeader, rejected: AppendRejected, /
    ) -> None:
        """Not observed."""

    def new_epoch(
        self, where: TopicPartition, header: BatchHeader, epoch_before: int | None, /
    ) -> None:
        """Not observed."""

    def expired(self, where: TopicPartition, producer_id: int, /) -> None:
        """Not observed."""


NOBODY = NobodyWatches()
