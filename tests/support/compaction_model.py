"""Kafka's rules of compaction, applied to a whole log at a time: a model for tests, independent of
the cleaner.

The model knows the end of each transaction from the test that made the history, and not from
markers or indexes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

Record = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


@dataclass(frozen=True)
class ModelBatch:
    """A batch. `control`: "commit", "abort", or "" for a batch of data. `horizon_ms`: None until a
    cleaning has set it."""

    base: int
    last: int
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    control: str = ""
    records: tuple[Record, ...] = ()
    horizon_ms: int | None = None


@dataclass
class Transaction:
    """A transaction of a producer in the partition.

    `marker`: the offset of its marker, None while the transaction is open.
    """

    producer_id: int
    first: int
    marker: int | None = None
    committed: bool = False


@dataclass
class LogModel:
    """The batches of a log, and all transactions that it ever had."""

    batches: list[ModelBatch] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)

    def append(self, batch: ModelBatch) -> None:
        """Append a batch that the log has accepted."""
        self.batches.append(batch)
        if not batch.transactional:
            return
        open_now = [
            each
            for each in self.transactions
            if each.producer_id == batch.producer_id and each.marker is None
        ]
        if not batch.control:
            if not open_now:
                self.transactions.append(Transaction(batch.producer_id, batch.base))
        elif open_now:
            open_now[0].marker = batch.last
            open_now[0].committed = batch.control == "commit"

    def _transaction_of(self, batch: ModelBatch) -> Transaction | None:
        for each in self.transactions:
            of_producer = each.producer_id == batch.producer_id and each.first <= batch.base
            if of_producer and (each.marker is None or batch.base <= each.marker):
                return each
        return None

    def clean(
        self,
        first_dirty: int,
        upper: int,
        now_ms: int,
        retention_ms: int,
        last_of_producers: dict[int, tuple[int, int]],
    ) -> None:
        """Clean all batches below `upper`, which must be the start of a segment.

        `last_of_producers`: for each active producer, the offset of its last data (-1 if there is
        none) and its epoch.
        """
        before = [batch for batch in self.batches if batch.last < upper]
        newest: dict[bytes, int] = {}
        for batch in before:
            transaction = self._transaction_of(batch) if batch.transactional else None
            if batch.control or (transaction is not None and not transaction.committed):
                continue
            for offset, key, _ in batch.records:
                if offset >= first_dirty and key is not None:
                    newest[key] = max(offset, newest.get(key, -1))
        cleaned = []
        for batch in before:
            if batch.control:
                left = self._clean_marker(batch, before, now_ms, retention_ms)
            else:
                left = self._clean_data(batch, newest, now_ms, retention_ms)
            if left.records or _must_stay(batch, upper, last_of_producers):
                cleaned.append(left if left.records else replace(left, horizon_ms=None))
        self.batches = cleaned + [batch for batch in self.batches if batch.last >= upper]

    def _clean_marker(
        self, batch: ModelBatch, before: list[ModelBatch], now_ms: int, retention_ms: int
    ) -> ModelBatch:
        ended = self._transaction_of(batch)
        something_left = ended is not None and any(
            other.transactional and not other.control and self._transaction_of(other) is ended
            for other in before
        )
        if something_left:
            return batch
        if batch.horizon_ms is None:
            return replace(batch, horizon_ms=now_ms + retention_ms)
        return replace(batch, records=()) if batch.horizon_ms <= now_ms else batch

    def _clean_data(
        self, batch: ModelBatch, newest: dict[bytes, int], now_ms: int, retention_ms: int
    ) -> ModelBatch:
        transaction = self._transaction_of(batch) if batch.transactional else None
        if transaction is not None and not transaction.committed:
            return replace(batch, records=())
        expired = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
        left = tuple(
            (offset, key, value)
            for offset, key, value in batch.records
            if key is not None and offset >= newest.get(key, -1) and not (value is None and expired)
        )
        horizon_ms = batch.horizon_ms
        if horizon_ms is None and any(value is None for _, _, value in left):
            horizon_ms = now_ms + retention_ms
        return replace(batch, records=left, horizon_ms=horizon_ms)


def _must_stay(
    batch: ModelBatch, upper: int, last_of_producers: dict[int, tuple[int, int]]
) -> bool:
    if batch.last + 1 == upper:
        return True
    last = last_of_producers.get(batch.producer_id)
    if batch.producer_id < 0 or last is None:
        return False
    offset, epoch = last
    if offset >= 0:
        return batch.last == offset
    return bool(batch.control) and batch.epoch == epoch
