"""The transactions of the batches that a cleaner reads: which of their batches may be removed, and
which entries stay in the transaction index (L-24).

The module corresponds to Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from odradek_broker.storage.producers.producer_files import read_end_marker
from odradek_broker.storage.transaction_index import AbortedTxn
from odradek_protocol.records.batch import BatchHeader
from odradek_protocol.stored.control_marker import ControlType


class CleanedTransactions:
    """The transactions of the batches, which are given in the order of offsets. `aborted`: all
    aborted transactions with batches in the range that is read, and possibly other aborted
    transactions."""

    __slots__ = ("_aborted", "_committed_seen", "_ongoing_aborted", "_with_data")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted = [(each.first_offset, each) for each in aborted]
        heapq.heapify(self._aborted)
        self._ongoing_aborted: dict[int, AbortedTxn] = {}
        #: Producers with an ongoing aborted transaction of which at least one batch was read.
        self._with_data: set[int] = set()
        self._committed_seen: set[int] = set()

    def _begin_up_to(self, header: BatchHeader) -> None:
        """Begin the aborted transactions whose first offset is reached. Transactions that ended
        before the batch are dropped."""
        while self._aborted and self._aborted[0][0] <= header.last_offset:
            _, transaction = heapq.heappop(self._aborted)
            if transaction.last_offset >= header.base_offset:
                self._ongoing_aborted.setdefault(transaction.producer_id, transaction)

    def saw_data(self, header: BatchHeader) -> bool:
        """True if this batch was aborted."""
        self._begin_up_to(header)
        if not header.is_transactional:
            return False
        if header.producer_id in self._ongoing_aborted:
            self._with_data.add(header.producer_id)
            return True
        self._committed_seen.add(header.producer_id)
        return False

    def saw_control(self, header: BatchHeader, batch: memoryview) -> tuple[bool, AbortedTxn | None]:
        """(removable, entry). `removable`: true if the marker is an emptied batch, or if no batch
        is left of the transaction that the marker ended. `entry`: the entry for the transaction
        index if the marker stays and its transaction was aborted, else None. Raises
        CorruptBatch."""
        self._begin_up_to(header)
        if not header.record_count:
            return True, None
        marker = read_end_marker(header, batch)
        if marker is None:
            return False, None
        producer_id = header.producer_id
        if marker[0] == ControlType.COMMIT:
            ended_data = producer_id in self._committed_seen
            self._committed_seen.discard(producer_id)
            return not ended_data, None
        transaction = self._ongoing_aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._with_data:
            return True, None
        self._with_data.discard(producer_id)
        return False, transaction
