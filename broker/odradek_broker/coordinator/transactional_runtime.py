"""A runtime whose partition also takes records of transactions (rules O-17, O-18).

Such records are replayed as pending. The marker that ends a producer's transaction in the partition
is not the core's to write: the partition's leader writes it for the transaction coordinator and
says so (`Runtime.appended`). A load finds records and markers in the log, in the same order, and
replays the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from odradek_broker.coordinator.runtime import (
    Core,
    InternalPartition,
    Outcome,
    Runtime,
)
from odradek_broker.deferred import Deferred
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.control_marker import ControlMarkerError, decode_marker


class StoredRecord(Protocol):
    """A record in the log. `producer_id` is -1 outside of transactions."""

    @property
    def key(self) -> bytes | None:
        """Of a control record: what kind it is."""
        ...

    @property
    def value(self) -> bytes | None:
        """None for a tombstone."""
        ...

    @property
    def producer_id(self) -> int:
        """The producer whose transaction contains the record."""
        ...

    @property
    def is_control(self) -> bool:
        """Is it a marker, and no record of the core's?"""
        ...


class TransactionalPartition(InternalPartition, Protocol):
    """A partition that takes records of transactions too."""

    def append_transactional(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer_id: int,
        producer_epoch: int,
    ) -> Deferred[ErrorCode]:
        """Append records within a producer's transaction; see `append_internal`."""
        ...

    def read_stored(self) -> Iterator[Any]:
        """Every record as a `StoredRecord`, markers too."""
        ...


class TransactionalCore(Core, Protocol):
    """A core with records that count only once their transaction is committed."""

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Take a record of an open transaction."""
        ...

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """The producer's transaction is over: take its pending records for true, or drop them."""
        ...


C = TypeVar("C", bound=TransactionalCore)


class TransactionalRuntime(Runtime[C]):
    """`Runtime` for a `TransactionalCore` over a `TransactionalPartition`."""

    _partition: TransactionalPartition

    def _append(self, outcome: Outcome) -> Deferred[ErrorCode]:
        producer = outcome.producer
        if producer is None:
            return super()._append(outcome)
        return self._partition.append_transactional(
            outcome.records,
            self._clock().wall_ms,
            producer.producer_id,
            producer.producer_epoch,
        )

    def _replay(self, outcome: Outcome) -> None:
        if outcome.producer is None:
            super()._replay(outcome)
            return
        for key, value in outcome.records:
            self.core.replay_pending(outcome.producer.producer_id, key, value)

    def _replay_all(self) -> Iterator[object]:
        for record in self._partition.read_stored():
            self._replay_stored(record)
            yield None

    def _replay_stored(self, record: StoredRecord) -> None:
        if record.is_control:
            try:
                marker = decode_marker(record.key, record.value)
            except ControlMarkerError as error:
                raise DecodeError(str(error)) from error
            if marker is not None:
                self.core.replay_marker(record.producer_id, marker.is_commit)
        elif record.key is None:
            return
        elif record.producer_id == NO_PRODUCER_ID:
            self.core.replay(record.key, record.value)
        else:
            self.core.replay_pending(record.producer_id, record.key, record.value)
