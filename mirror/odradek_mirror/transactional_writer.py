"""The writer of the mode exactly-once, which writes whole batches and the map of their offsets in
transactions.

The producer handles retries, sequences, fencing and both versions of transactions; it accepts whole
batches for this purpose. Several batches of a partition are in flight, in order. The offsets of the
batches at the target become runs, which are written in the same transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from odradek_client.admin import Admin
from odradek_client.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    MessageTooLarge,
    OdradekError,
    PolicyViolation,
    TopicAuthorizationFailed,
    TransactionTimeout,
)
from odradek_client.producer.batch import ProducerBatch
from odradek_client.producer.producer import Producer, producer_on_network
from odradek_client.structs import TopicPartition
from odradek_mirror.batches import ConsecutiveOffsets, CopiedBatch
from odradek_mirror.map_topic import map_topic
from odradek_mirror.offset_map import MapEntry, MappedRun, encode_key, encode_value, joined, runs_of
from odradek_protocol.lazy_tuple import NamedTuple

log = logging.getLogger("odradek.mirror")

#: The maximum number of bytes in batches that are in flight or waiting. These batches use the
#: memory of the fetched batches.
BUFFER_BYTES = 64 * 1024 * 1024
#: The size of the parts into which a batch that is too large for the target is split.
_SPLIT_BYTES = 256 * 1024
#: Errors of a batch that end the copying of only its partition.
_OF_PARTITION = (MessageTooLarge, InvalidRecord, InvalidTimestamp)
#: Errors of a batch that end the copying of its whole topic.
_OF_TOPIC = (InvalidTopic, PolicyViolation, TopicAuthorizationFailed)
#: The maximum number of waits for a commit that is not answered.
_COMMIT_WAITS_MAX = 5


class OffsetsUnknown(OdradekError):
    """The error for a batch that the target has already appended, at an unknown offset."""


class RefusedBatch(NamedTuple):
    """A batch that the target refuses. `tp`: the partition of the source; `error`: the reason;
    `concerns_topic`: true if the reason applies to all partitions of the topic."""

    tp: TopicPartition
    error: OdradekError
    concerns_topic: bool


class TransactionalWriter:
    """The producer of one mirror instance. Call `start`, and then for each transaction `begin`,
    `write`, `written`, `write_map` and `commit`; `abort` is possible at any point."""

    def __init__(
        self, target: Admin, name: str, *, transaction_timeout_ms: int, max_block_ms: int = 60_000
    ) -> None:
        self._map_topic = map_topic(name)
        self._producer: Producer = producer_on_network(
            target.network,
            transactional_id=map_topic(name),
            transaction_timeout_ms=transaction_timeout_ms,
            buffer_memory=BUFFER_BYTES,
            batch_size=_SPLIT_BYTES,
            max_request_size=8 * 1024 * 1024,
            compression_type="gzip",
            max_block_ms=max_block_ms,
            linger_ms=0,
        )
        self._sent: dict[
            TopicPartition, list[tuple[ProducerBatch, Sequence[ConsecutiveOffsets]]]
        ] = {}
        #: The partition of the source for each partition of the target.
        self._source_of: dict[TopicPartition, TopicPartition] = {}

    async def start(self) -> tuple[int, int]:
        """Fence other instances, end the last transaction of this name, and return the producer id
        and epoch."""
        await self._producer.start()
        await self._producer.init_transactions()
        transactions = self._producer.transaction_manager
        assert transactions is not None
        return transactions.identity

    async def close(self) -> None:
        """Close the producer. An open transaction is aborted if the coordinator can be reached
        immediately."""
        self._sent.clear()
        await self._producer.close(timeout_ms=0)

    async def begin(self) -> None:
        """Begin a transaction; nothing is sent."""
        self._sent.clear()
        await self._producer.begin_transaction()

    async def write(self, tp: TopicPartition, target: TopicPartition, batch: CopiedBatch) -> None:
        """Send a batch of partition `tp` of the source to the partition `target`.
        Waits if the buffer is full."""
        self._source_of[target] = tp
        made = await self._producer.produce_batch(*target, batch.records)
        self._sent.setdefault(tp, []).append((made, batch.spans))

    async def written(self) -> dict[TopicPartition, list[MappedRun]]:
        """Wait for the answers to all batches, and return the runs of each partition. Raises the
        error of the first batch that was not written."""
        found: dict[TopicPartition, list[MappedRun]] = {}
        for tp, batches in self._sent.items():
            runs: list[MappedRun] = []
            for batch, spans in batches:
                runs += runs_of(spans, await self._parts(tp, batch, spans))
            found[tp] = joined(runs)
        self._sent.clear()
        return found

    async def _parts(
        self, tp: TopicPartition, batch: ProducerBatch, spans: Sequence[ConsecutiveOffsets]
    ) -> list[tuple[int, int]]:
        while not batch.done:
            await batch.wait()
        parts = []
        for index, part in batch.leaves():
            error = _error_of(tp, part, spans, index)
            if error is not None:
                raise error
            if part.base_offset < 0:
                raise OffsetsUnknown(
                    f"the target has a batch for {tp.topic}-{tp.partition} already, and does not say"
                    " at which offset; its transaction is aborted and repeated"
                )
            parts.append((index, part.base_offset))
        return parts

    def refused(self) -> RefusedBatch | None:
        """The first batch of the open transaction that was refused because of its partition or
        topic; None if there is none."""
        if (unsent := self._refused_before_it_was_sent()) is not None:
            return unsent
        for tp, batches in self._sent.items():
            for batch, spans in batches:
                if not batch.done:
                    continue
                for index, part in batch.leaves():
                    error = _error_of(tp, part, spans, index)
                    if isinstance(error, _OF_PARTITION + _OF_TOPIC):
                        return RefusedBatch(tp, error, isinstance(error, _OF_TOPIC))
        return None

    def _refused_before_it_was_sent(self) -> RefusedBatch | None:
        """The refusal of a partition by the coordinator. In version 1 of transactions the
        coordinator answers before a batch is sent."""
        transactions = self._producer.transaction_manager
        if transactions is None or transactions.refused_partition is None:
            return None
        error = transactions.lifecycle.abortable_error
        tp = self._source_of.get(transactions.refused_partition)
        return RefusedBatch(tp, error, True) if tp and isinstance(error, _OF_TOPIC) else None

    async def write_map(
        self, entries: Iterable[MapEntry], forgotten: Iterable[tuple[TopicPartition, int]] = ()
    ) -> None:
        """Write records of the map topic, and tombstones of forgotten records. Waits until all are
        acknowledged."""
        deliveries = [
            await self._producer.send(
                self._map_topic, encode_value(entry), encode_key(entry.tp, entry.start), partition=0
            )
            for entry in entries
        ]
        deliveries += [
            await self._producer.send(self._map_topic, None, encode_key(tp, start), partition=0)
            for tp, start in forgotten
        ]
        await self._producer.flush()
        for delivery in deliveries:
            delivery.result()

    async def write_record(self, key: bytes, value: bytes) -> None:
        """Write another record of the map topic."""
        await self._producer.send_and_wait(self._map_topic, value, key, partition=0)

    async def commit(self) -> None:
        """Commit the transaction. TransactionTimeout: the result is unknown."""
        for wait in range(_COMMIT_WAITS_MAX):
            try:
                await self._producer.commit_transaction()
                return
            except TransactionTimeout as error:
                if wait + 1 == _COMMIT_WAITS_MAX:
                    raise
                log.warning(
                    "the target has not answered the commit of the mirror's transaction: %s", error
                )

    async def abort(self) -> None:
        """Abort the transaction."""
        await self._producer.abort_transaction()


def _error_of(
    tp: TopicPartition, part: ProducerBatch, spans: Sequence[ConsecutiveOffsets], index: int
) -> OdradekError | None:
    """The error of a part of a batch, if it failed. `index`: the index of the part's first record
    in the batch."""
    error = part.error_of(0)
    if not isinstance(error, MessageTooLarge):
        return error
    named = MessageTooLarge(
        f"the record of the source at offset {_offset_of(spans, index)} of {tp.topic}-"
        f"{tp.partition} is larger than the target takes: raise max.message.bytes of the"
        f" target's topic. {error}",
        code=error.code,
    )
    named.__cause__ = error
    return named


def _offset_of(spans: Sequence[ConsecutiveOffsets], index: int) -> int:
    """The source offset of the record at an index of its batch."""
    for first, length in spans:
        if index < length:
            return first + index
        index -= length
    raise ValueError(f"the batch has no record {index}")
