"""A batch for one partition, from the first record to the answer, and the `Delivery` of each
record.

There is no future per record: a `Delivery` is a batch and an index in it. A future is created only
if a delivery is awaited before its batch is finished.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

from odradek_client.errors import IllegalState, OdradekError
from odradek_client.structs import TopicPartition
from odradek_protocol.compression import Codec
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import next_sequence
from odradek_protocol.records.builder import BatchBuilder, EncodedRecords
from odradek_protocol.records.place import Place


class Future(Protocol):
    """The methods of `asyncio.Future` that this module uses."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def __await__(self) -> Generator[Any, None, Any]: ...


#: Creates a named tuple faster than a call of its class; used for every record.
_new_tuple = tuple.__new__
NewFuture = Callable[[], Future]


class RecordMetadata(NamedTuple):
    """The partition and offset of a record.

    `offset` is -1 if it is unknown: with acks=0, or if the broker does not have the offset of a
    duplicate. `timestamp_ms` is the broker's time for topics with LogAppendTime, otherwise the
    timestamp of the record.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


#: The largest epoch of a producer id.
EPOCH_MAX = 32767


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and epoch; -1 and -1 if there is none (P-21)."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        """True if this is an identity from a broker."""
        return self.producer_id >= 0


NO_IDENTITY = ProducerIdAndEpoch(-1, -1)


class ProducerBatch:
    """Records for one partition, from the first append to the answer.

    `created_ms` and all other times are the loop's clock. A batch has no producer id and sequence
    until it is drained for the first time (C-10, C-22).
    """

    __slots__ = (
        "_error",
        "_new_future",
        "_parent",
        "_parts",
        "_record_errors",
        "_starts",
        "_timestamps",
        "_waiters",
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "created_ms",
        "done",
        "drained_ms",
        "encoded",
        "identity",
        "last_leader",
        "limit_bytes",
        "log_append_time_ms",
        "may_be_written",
        "on_wire",
        "put",
        "record_count",
        "reserved_bytes",
        "retry_at_ms",
        "sequence_was_reset",
        "tp",
        "trouble",
        "unknown_fate",
        "was_sent",
        "written",
    )

    def __init__(
        self,
        tp: TopicPartition,
        codec: Codec,
        limit_bytes: int,
        reserved_bytes: int,
        created_ms: float,
        new_future: NewFuture,
        encoded: EncodedRecords | None = None,
    ) -> None:
        self.tp = tp
        self.builder: BatchBuilder | EncodedRecords = encoded or BatchBuilder(codec)
        #: The method of the builder, looked up once because it runs for every record.
        self.put = self.builder.put
        self.limit_bytes = limit_bytes
        self.reserved_bytes = reserved_bytes
        self.created_ms = created_ms
        self.record_count = 0  # set when the batch is closed
        self.attempts = 0
        self.drained_ms = -1.0
        self.retry_at_ms = 0.0
        self.last_leader: int | None = None
        self.identity = NO_IDENTITY
        self.base_sequence = -1
        self.sequence_was_reset = False
        self.was_sent = False
        #: True if an earlier attempt with these sequences may have written the batch.
        self.may_be_written = False
        self.on_wire = False
        #: The error of the last attempt, if there will be another attempt.
        self.trouble: OdradekError | None = None
        #: True if the batch has failed but may be in the log.
        self.unknown_fate = False
        self.encoded: bytearray | None = None
        self.done = False
        self.written = False  # True if the batch is done, and has no error
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = -1
        self._timestamps: Sequence[int] = ()
        self._error: OdradekError | None = None
        self._record_errors: dict[int, str] = {}
        self._new_future = new_future
        self._waiters: list[Future] = []
        self._parts: list[ProducerBatch] = []
        self._starts: list[int] = []
        self._parent: ProducerBatch | None = None

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.tp.topic}-{self.tp.partition} of {self.builder.record_count}, "
            f"{self.identity}, sequence {self.base_sequence}>"
        )

    # --- sending ----------------------------------------------------------------------------------

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence >= 0

    def close(self) -> None:
        """Close the batch, so that the number of its records is final."""
        self.record_count = self.builder.record_count

    def stamp(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Set identity and sequence. Retries keep both (C-22)."""
        self.identity = identity
        self.base_sequence = base_sequence
        self.encoded = None

    def restamp(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Set another sequence, after an epoch bump (C-44)."""
        self.stamp(identity, base_sequence)
        self.sequence_was_reset = True
        self.was_sent = self.may_be_written = False

    def encode(self, *, transactional: bool = False) -> bytearray:
        """The encoded batch; a retry without a new sequence has the same bytes."""
        if self.encoded is None:
            self.encoded = self.builder.build(
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.base_sequence,
                transactional=transactional,
            )
        return self.encoded

    def split(self, target_bytes: int) -> list[ProducerBatch]:
        """The records in smaller batches, which take over the deliveries of this batch (C-25).

        The parts of a stamped batch share its sequences, so later batches keep their sequences. A
        batch of two or more records is split into at least two parts.
        """
        records = self.builder.records()
        parts: list[ProducerBatch] = []
        part: ProducerBatch | None = None
        for index, record in enumerate(records):
            timestamp_ms, key, value, headers = record
            bound = BatchBuilder.record_upper_bound(key, value, headers)
            if part is None or part.builder.estimated_bytes + bound > target_bytes:
                part = ProducerBatch(
                    self.tp, self.builder.codec, target_bytes, 0, self.created_ms, self._new_future
                )
                part._parent = self
                parts.append(part)
                self._starts.append(index)
            part.builder.append(timestamp_ms, key, value, headers)
        for part, start in zip(parts, self._starts, strict=True):
            part.close()
            part.attempts = self.attempts
            part.trouble = self.trouble
            part.was_sent = False  # nothing was sent under these sequences yet
            if self.has_sequence:
                part.stamp(self.identity, next_sequence(self.base_sequence, start))
        parts[0].reserved_bytes = self.reserved_bytes
        self.reserved_bytes = 0
        self._parts = parts
        self._let_go()
        return parts

    # --- results ---

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """Called when the records are written."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.written = True
        self._finish()

    def fail(self, error: OdradekError, record_errors: dict[int, str] | None = None) -> None:
        """Called when the batch has failed: its records are not written, or may be written.
        `record_errors`: the reasons by the index of the record in the batch."""
        self._error = error
        self._record_errors = record_errors or {}
        self._finish()

    def _finish(self) -> None:
        if self.done:
            raise IllegalState(f"{self!r} was finished twice")
        if self.log_append_time_ms < 0 and self._error is None:
            self._timestamps = self.builder.timestamps()
        self._let_go()
        self._wake()
        parent = self._parent
        while parent is not None and all(part.done for part in parent._parts):
            parent._wake()
            parent = parent._parent

    def _let_go(self) -> None:
        """Release the records, because deliveries may keep the batch in memory for long."""
        self.builder = BatchBuilder()
        self.put = self.builder.put
        self.encoded = None

    def _wake(self) -> None:
        self.done = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> Future:
        """A future that is done when the batch is finished; its result is always None."""
        waiter = self._new_future()
        if self.done:
            waiter.set_result(None)
        else:
            self._waiters.append(waiter)
        return waiter

    def is_done(self, index: int) -> bool:
        """True if the result of a record is known."""
        if self._parts:
            part, _ = self._part_of(index)
            return part.done
        return self.done

    def error_of(self, index: int) -> OdradekError | None:
        """The reason why a record of a finished batch was not written; None if it was written."""
        if self._parts:
            part, inner = self._part_of(index)
            return part.error_of(inner)
        if self._error is None or not self._record_errors:
            return self._error
        reason = self._record_errors.get(index)
        code = self._error.code
        if reason is None:
            return type(self._error)(
                f"not written, because other records of its batch were refused: {self._error}",
                code=code,
            )
        return type(self._error)(f"the record was refused: {reason}", code=code)

    def metadata_of(self, index: int) -> RecordMetadata:
        if self._parts:
            part, inner = self._part_of(index)
            return part.metadata_of(inner)
        topic, partition = self.tp
        timestamp_ms = self.log_append_time_ms
        if timestamp_ms < 0:
            timestamp_ms = self._timestamps[index]
        offset = self.base_offset
        if offset >= 0:
            offset += index
        return _new_tuple(RecordMetadata, (topic, partition, offset, timestamp_ms))

    def leaves(self, start: int = 0) -> Iterator[tuple[int, ProducerBatch]]:
        """(index, part) for each unsplit part of this batch; if this batch was not split, it is the
        only part. `index`: the position in this batch of the part's first record, plus
        `start`."""
        if not self._parts:
            yield start, self
        for part, at in zip(self._parts, self._starts, strict=True):
            yield from part.leaves(start + at)

    def first_error(self) -> tuple[int, OdradekError] | None:
        """(index, reason) of the first record that was not written, in a finished batch that was
        not split; None if all were written."""
        if self._error is None:
            return None
        index = min(self._record_errors, default=0)
        error = self.error_of(index)
        return None if error is None else (index, error)

    def _part_of(self, index: int) -> tuple[ProducerBatch, int]:
        at = bisect_right(self._starts, index) - 1
        part = self._parts[at]
        inner = index - self._starts[at]
        if part._parts:
            return part._part_of(inner)
        return part, inner


class Delivery(Place):
    """The result of sending one record. Await it for the `RecordMetadata`; it raises if the record
    was not written.

    May be awaited any number of times, by several tasks, or not at all.
    """

    __slots__ = ()

    owner: ProducerBatch

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self.owner
        if not batch.done:
            # From now on the batch refers to the waiting task, and the task to this delivery.
            self.track()
            while not batch.is_done(self.index):
                yield from batch.wait().__await__()
        return self.result()

    def done(self) -> bool:
        """True if the result of the record is known."""
        return self.owner.is_done(self.index)

    def result(self) -> RecordMetadata:
        """Return the metadata, or raise the error, of a finished delivery. Raises IllegalState if
        the delivery is not finished."""
        batch = self.owner
        if batch.written:
            return batch.metadata_of(self.index)
        error = self.exception()
        if error is not None:
            # The traceback is reset, because the records of a batch share the exception, and
            # tracebacks would accumulate in it.
            raise error.with_traceback(None)
        return self.owner.metadata_of(self.index)

    def exception(self) -> OdradekError | None:
        """The reason why the record was not written, None if it was. IllegalState while this is
        unknown."""
        if not self.owner.is_done(self.index):
            raise IllegalState("the record is still on its way; await the delivery")
        error = self.owner.error_of(self.index)
        if error is not None:
            # The traceback of the error may have frames that refer to this delivery.
            self.track()
        return error

    def __repr__(self) -> str:
        tp = self.owner.tp
        if not self.done():
            return f"<Delivery to {tp.topic}-{tp.partition}, on its way>"
        error = self.exception()
        if error is not None:
            return f"<Delivery to {tp.topic}-{tp.partition}, failed: {error}>"
        return f"<Delivery {self.result()}>"
