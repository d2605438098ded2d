"""The queue of a transactional producer's requests to coordinators."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from odradek_client.backoff import Backoff
from odradek_client.errors import OdradekError
from odradek_client.producer.transaction_requests import (
    AddPartitionsToTxnHandler,
    RequestPriority,
    TxnRequestHandler,
)
from odradek_client.structs import TopicPartition


class TransactionQueue:
    """The requests to coordinators: one in flight at a time, the most urgent kind first (C-30).

    A request that was sent but not answered may have been carried out. So an abort does not drop
    such a request: AddPartitionsToTxn and AddOffsetsToTxn are repeated until they are answered,
    because only the answer shows whether there is a transaction to end.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._waiting: list[TxnRequestHandler] = []
        #: The request that was sent and has no answer yet.
        self.in_flight: TxnRequestHandler | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """True if no request is waiting or in flight."""
        return not self._waiting and self.in_flight is None

    def add(self, handler: TxnRequestHandler) -> None:
        """Queue a request after the others of its kind."""
        self._waiting.append(handler)

    def add_partitions(
        self,
        transactional_id: str,
        partitions: Iterable[TopicPartition],
        added: Collection[TopicPartition],
    ) -> None:
        """Queue AddPartitionsToTxn for partitions that are neither added nor queued (C-62)."""
        waiting = next((a for a in self._waiting if isinstance(a, AddPartitionsToTxnHandler)), None)
        known = () if waiting is None else waiting.partitions
        new = {tp for tp in partitions if tp not in added and tp not in known}
        if not new:
            return
        if waiting is None or waiting.was_sent:
            self.add(AddPartitionsToTxnHandler(transactional_id, new))
        else:
            waiting.partitions |= new

    def first(self) -> TxnRequestHandler | None:
        """The waiting request of the most urgent kind; None if there is none."""
        return min(self._waiting, key=lambda each: each.kind.rank, default=None)

    def remove(self, handler: TxnRequestHandler) -> None:
        """Drop a request that is no longer needed."""
        self._waiting.remove(handler)

    def take(self, handler: TxnRequestHandler) -> None:
        """Make a waiting request the request in flight."""
        self._waiting.remove(handler)
        self.in_flight = handler
        handler.was_sent = True

    def retry(
        self, handler: TxnRequestHandler, now_ms: float, at_most_ms: float | None = None
    ) -> None:
        """Put a request back after a failure. The request is sent again after a backoff, before the
        other requests of its kind."""
        handler.attempts += 1
        delay_ms = self._backoff.delay_ms(handler.attempts)
        if at_most_ms is not None:
            delay_ms = min(delay_ms, at_most_ms)
        handler.retry_at_ms = now_ms + delay_ms
        self._waiting.insert(0, handler)

    def fail(self, error: OdradekError) -> None:
        """Drop all requests. Their callers get the error."""
        waiting, self._waiting = self._waiting, []
        for handler in waiting:
            handler.finish(error)
        if self.in_flight is not None:
            self.in_flight.finish(error)

    def drop_for_abort(self, error: OdradekError) -> None:
        """Drop the requests of a transaction that will not be committed, except requests that must
        survive an abort. The callers of dropped and kept requests get the error."""
        waiting = self._waiting
        self.fail(error)
        self._waiting = [handler for handler in waiting if survives_abort(handler)]


def survives_abort(handler: TxnRequestHandler) -> bool:
    """True if the request must be repeated in spite of an abort, because the request may have begun
    the transaction at the coordinator."""
    return handler.was_sent and handler.kind in {
        RequestPriority.ADD_PARTITIONS,
        RequestPriority.ADD_OFFSETS,
    }
