"""The records that wait for a broker: batches per partition, their memory, and the nodes that are
ready.

    send --> t-0: [batch, full] [batch, full] [batch, open]    `open` takes the next record
             t-1: [batch, open]
             t-2: (nothing waits)
                     |
                     | `drain` takes the first batch of each ready partition of a node
                     v
             Produce request --> acknowledged or failed: its memory is given back
                             --> to be retried: back into its queue, before later sequences
                             --> too large: its parts go into the queue in its place

    buffer_memory:  [ batches in queues | batches in flight | available_bytes ]

The accumulator uses no clock and no sockets: callers pass the time. The unit of memory is a batch:
`batch_size` is reserved when a batch is begun and released when its result is final (C-10, C-11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from odradek_client.errors import OdradekError
from odradek_client.producer.batch import (
    Delivery,
    Future,
    NewFuture,
    ProducerBatch,
)
from odradek_client.structs import TopicPartition
from odradek_protocol.compression import Codec
from odradek_protocol.records.builder import EncodedRecords, record_upper_bound
from odradek_protocol.records.layout import HEADER_BYTES

Headers = tuple[tuple[str, bytes | None], ...] | list[tuple[str, bytes | None]]
LeaderOf = Callable[[str, int], int | None]

#: The limit of the bytes that a record without headers takes in addition to its key and value.
_RECORD_OVERHEAD_BYTES = 31
#: The steps of the estimated compression ratio: small steps down, large steps up, because a batch
#: that is too large for the broker costs a round trip and a split.
_RATIO_STEP_DOWN = 0.02
_RATIO_STEP_UP = 0.05
_RATIO_MARGIN = 1.05
#: The lowest estimate of the compression ratio. It limits a batch before compression to batch_size
#: / _RATIO_MIN bytes.
_RATIO_MIN = 0.1


class PartitionQueue:
    """The batches of a partition, oldest first; only the last may be open."""

    __slots__ = ("batches", "closed_bytes", "muted", "open", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.muted = False
        self.closed_bytes = 0  # the bytes of all batches that were ever closed

    def try_append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Delivery | None:
        """Add a record to the open batch; None if there is no open batch, or if it has no room."""
        batch = self.open
        if batch is None:
            return None
        index = batch.builder.append(timestamp_ms, key, value, headers, batch.limit_bytes)
        return None if index < 0 else Delivery(batch, index)

    def close_open(self) -> None:
        """Close the last batch, so that it takes no more records."""
        if self.open is not None:
            self.open.close()
            self.closed_bytes += self.open.builder.estimated_bytes
            self.open = None


@dataclass(slots=True)
class ReadyCheckResult:
    """The queues from which batches may be sent, by node. `check_ms`: the time in ms until further
    queues may be ready; None if no queue is waiting."""

    nodes: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    unknown_leaders: bool = False
    check_ms: float | None = None


class Accumulator:
    """All queues of a producer."""

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        codec: Codec,
        delivery_timeout_ms: int,
        new_future: NewFuture,
    ) -> None:
        self.batch_size = max(batch_size, 1)
        self.linger_ms = linger_ms
        self.buffer_memory = buffer_memory
        self.available_bytes = buffer_memory
        self.codec = codec
        self.delivery_timeout_ms = delivery_timeout_ms
        #: `waiters`: the calls of send that wait for memory, oldest first. `flushes`: the number of
        #: waiting calls of flush. While any of these calls waits, every batch is ready.
        self.waiters: deque[Future] = deque()
        self.flushes = 0
        self.closing = False
        #: The reason why no records are accepted, if the sender has failed.
        self.failure: OdradekError | None = None
        self.completing = False  # a transaction is ending: no batch waits for more records
        self.new_future = new_future
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        #: Every batch without a final result, oldest first.
        self.incomplete: dict[ProducerBatch, None] = {}
        self._drain_from: dict[int, int] = {}
        self._ratios: dict[str, float] = {}

    # --- in ---------------------------------------------------------------------------------------

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """The queue of a partition. Queues are never removed."""
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = PartitionQueue(tp)
        return queue

    @property
    def active(self) -> Iterable[TopicPartition]:
        return self._active

    def limit_bytes(self, topic: str) -> int:
        """The limit of the bytes of a new batch before compression."""
        if self.codec is Codec.NONE:
            return self.batch_size
        return int(self.batch_size / (self._ratios.get(topic, 1.0) * _RATIO_MARGIN))

    def batch_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> tuple[int, int]:
        """(`limit_bytes` of a new batch, the bytes of memory to reserve for the batch). The
        arguments are the first record of the batch."""
        limit = self.limit_bytes(topic)
        needed = HEADER_BYTES + record_upper_bound(key, value, headers) + _RECORD_OVERHEAD_BYTES
        return limit, max(min(limit, self.buffer_memory), needed)

    def has_room(self, reserved_bytes: int) -> bool:
        """True if there is memory for a batch that reserves this number of bytes."""
        return reserved_bytes <= self.available_bytes

    def begin(
        self, queue: PartitionQueue, limit_bytes: int, reserved_bytes: int, now_ms: float
    ) -> ProducerBatch:
        """Open a new batch at the end of the queue. The caller has checked that there is room."""
        batch = ProducerBatch(
            queue.tp, self.codec, limit_bytes, reserved_bytes, now_ms, self.new_future
        )
        self._enqueue(queue, batch)
        queue.open = batch
        return batch

    def encoded_bytes(self, encoded: EncodedRecords) -> int:
        """The bytes of buffer_memory that an encoded batch reserves: the size of the batch, but at
        most buffer_memory."""
        return min(encoded.batch_bytes, self.buffer_memory)

    def add(self, queue: PartitionQueue, encoded: EncodedRecords, now_ms: float) -> ProducerBatch:
        """Put a whole batch at the end of the queue. The caller has checked that there is room for
        its `encoded_bytes`."""
        size = self.encoded_bytes(encoded)
        batch = ProducerBatch(
            queue.tp, self.codec, size, size, now_ms, self.new_future, encoded=encoded
        )
        self._enqueue(queue, batch)
        batch.close()
        queue.closed_bytes += encoded.estimated_bytes
        return batch

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.close_open()
        self.available_bytes -= batch.reserved_bytes
        queue.batches.append(batch)
        self._active[queue.tp] = queue
        self.incomplete[batch] = None

    def withdraw(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Undo `begin` of a batch whose first record was not valid."""
        queue.open = None
        self._unqueue(batch)
        self.finished(batch)

    def wake_waiter(self) -> None:
        """Wake the call of send that has waited longest for memory; when this call has its memory,
        it wakes the next waiting call."""
        if self.waiters and not self.waiters[0].done():
            self.waiters[0].set_result(None)

    def wake_all_waiters(self) -> None:
        """Wake all calls of send that wait for memory, because the producer is closed."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- out --------------------------------------------------------------------------------------

    def ready(self, now_ms: float, leader_of: LeaderOf) -> ReadyCheckResult:
        """The nodes to which batches may be sent (C-13, C-14, C-16)."""
        ready = ReadyCheckResult()
        for queue in self._active.values():
            if queue.muted:
                continue
            tp = queue.tp
            leader = leader_of(tp.topic, tp.partition)
            if leader is None:
                ready.unknown_leaders = True
                continue
            wait_ms = self.wait_ms(queue, leader, now_ms)
            if wait_ms <= 0:
                ready.nodes.setdefault(leader, []).append(queue)
            elif ready.check_ms is None or wait_ms < ready.check_ms:
                ready.check_ms = wait_ms
        return ready

    def wait_ms(self, queue: PartitionQueue, leader: int, now_ms: float) -> float:
        """The time in ms until the first batch of the queue may be sent; 0 or less if it may be
        sent now. The queue must have a batch."""
        first = queue.batches[0]
        if first.attempts:
            return first.retry_at_ms - now_ms if leader == first.last_leader else 0.0
        if (
            first is not queue.open
            or self.waiters
            or self.flushes
            or self.closing
            or self.completing
            or first.builder.estimated_bytes >= first.limit_bytes
        ):
            return 0.0
        return first.created_ms + self.linger_ms - now_ms

    def drain(
        self,
        node_id: int,
        queues: list[PartitionQueue],
        max_bytes: int,
        now_ms: float,
        may_drain: Callable[[ProducerBatch], bool],
        stamp: Callable[[ProducerBatch], None],
    ) -> list[ProducerBatch]:
        """The batches of the next request to a node: at most one per partition (C-15).

        Every request starts at another partition, so that no partition starves. If `may_drain` is
        false for the first batch of a partition, the partition is left out. `stamp` is called for
        each drained batch.
        """
        start = self._drain_from.get(node_id, 0) % len(queues)
        drained: list[ProducerBatch] = []
        size = 0
        for queue in queues[start:] + queues[:start]:
            batch = queue.batches[0]
            if not may_drain(batch):
                continue
            batch_bytes = len(batch.encoded or ()) or self._estimate(batch)
            if drained and size + batch_bytes > max_bytes:
                break
            queue.batches.popleft()
            if queue.open is batch:
                queue.close_open()
            if not queue.batches:
                del self._active[queue.tp]
            stamp(batch)
            batch.drained_ms = now_ms
            size += batch_bytes
            drained.append(batch)
        self._drain_from[node_id] = start + 1
        return drained

    def _estimate(self, batch: ProducerBatch) -> int:
        estimated = batch.builder.estimated_bytes
        if self.codec is Codec.NONE:
            return estimated
        return int(estimated * self._ratios.get(batch.tp.topic, 1.0))

    def encoded(self, batch: ProducerBatch, estimated_bytes: int) -> None:
        """Update the estimate of the compression ratio with an encoded batch."""
        if self.codec is Codec.NONE or batch.encoded is None:
            return
        topic = batch.tp.topic
        seen = len(batch.encoded) / estimated_bytes
        ratio = self._ratios.get(topic, 1.0)
        if seen > ratio:
            ratio = max(ratio + _RATIO_STEP_UP, seen)
        else:
            ratio = max(ratio - _RATIO_STEP_DOWN, seen)
        self._ratios[topic] = max(ratio, _RATIO_MIN)

    # --- back, and away ---------------------------------------------------------------------------

    def requeue(self, batch: ProducerBatch) -> None:
        """Put a batch that will be retried back into its queue (C-23).

        A batch with a sequence is put after the batches with lower sequences, and before all other
        batches. A batch without a sequence (no idempotence) is put at the head.
        """
        queue = self._queues[batch.tp]
        at = 0
        if batch.has_sequence:
            for waiting in queue.batches:
                if not waiting.has_sequence or _before(batch, waiting):
                    break
                at += 1
        queue.batches.insert(at, batch)
        self._active[queue.tp] = queue

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a split batch by its parts, in the order of their records (C-25)."""
        self._ratios[batch.tp.topic] = 1.0
        # `expired` relies on this order: oldest batch first.
        self.incomplete = {
            kept: None for each in self.incomplete for kept in (parts if each is batch else (each,))
        }
        for part in reversed(parts) if not batch.has_sequence else parts:
            self.requeue(part)

    def expired(self, now_ms: float) -> list[ProducerBatch]:
        """The batches that are older than delivery_timeout_ms, whether they are queued or in
        flight. Queued batches are removed from their queues."""
        found = []
        for batch in self.incomplete:
            if now_ms - batch.created_ms < self.delivery_timeout_ms:
                break
            found.append(batch)
        for batch in found:
            self._unqueue(batch)
        return found

    def expiry_ms(self) -> float | None:
        """The time at which the oldest batch will expire."""
        for batch in self.incomplete:
            return batch.created_ms + self.delivery_timeout_ms
        return None

    def finished(self, batch: ProducerBatch) -> None:
        """Release the memory of a batch whose result is final."""
        self.incomplete.pop(batch, None)
        self.available_bytes += batch.reserved_bytes
        batch.reserved_bytes = 0

    def take_all(self, *, only_undrained: bool = False) -> list[ProducerBatch]:
        """Remove all batches without a final result (or, with `only_undrained`, those that were
        never drained) from their queues; returns the removed batches."""
        found = [b for b in self.incomplete if not (only_undrained and b.drained_ms >= 0)]
        for batch in found:
            self._unqueue(batch)
        return found

    def take_of(self, leads: Callable[[TopicPartition], bool]) -> list[ProducerBatch]:
        """Remove the batches of some partitions, except those in flight, from their queues; returns
        the removed batches. `leads` selects the partitions."""
        found = [b for b in self.incomplete if not b.on_wire and leads(b.tp)]
        for batch in found:
            self._unqueue(batch)
        return found

    def queue_lengths(self, tps: Iterable[TopicPartition]) -> list[int]:
        """The number of waiting batches of each partition, in the order of `tps`."""
        queues = self._queues
        return [len(queues[tp].batches) if tp in queues else 0 for tp in tps]

    def _unqueue(self, batch: ProducerBatch) -> None:
        queue = self._queues[batch.tp]
        if batch in queue.batches:
            queue.batches.remove(batch)
            if queue.open is batch:
                queue.close_open()
            if not queue.batches:
                del self._active[queue.tp]


def _before(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """True if the sequence of `batch` precedes that of `other`, even across a change of the epoch
    or a wrap of sequences (P-20)."""
    if batch.identity != other.identity:
        return batch.identity < other.identity
    return (other.base_sequence - batch.base_sequence) % (1 << 31) < 1 << 30
