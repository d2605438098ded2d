"""The events and the states of producer ids in partitions (`odradek explain producer`)."""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.explain.history import History, SubjectState, remark
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.producers.state import Duplicate, ProducerEntry
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.records.batch import BatchHeader, next_sequence

#: The state of a present or former producer id of a transactional id, if no partition knows the
#: producer id.
NOT_IN_ANY_PARTITION = remark(
    "no partition has its state: it has written nothing here, or its state has expired"
)


def partitions_not_opened(count: int) -> SubjectState:
    """The state of partitions whose logs were not opened."""
    return remark(
        f"{count} partitions were not used since the start; run the command again to search more"
    )


def state_of_producer(
    where: TopicPartition, entry: ProducerEntry, restored_to: int, wall_ms: int
) -> SubjectState:
    """The state of a producer id in a partition. Batches at offsets below `restored_to` were
    appended before the start of the broker (P-28)."""
    last = entry.last_batch
    note = None
    if last is not None and last.last_offset < restored_to:
        note = "rebuilt at the start from its snapshot and the log"
    age_ms = wall_ms - entry.last_timestamp
    return SubjectState.of(
        EventKind.NOW_PRODUCER,
        partitions=(where,),
        epoch=entry.epoch,
        last_sequence=None if last is None else last.last_sequence,
        offset=None if last is None else last.last_offset,
        next_sequence=0 if last is None else next_sequence(last.last_sequence, 1),
        transaction_offset=entry.transaction_first_offset,
        updated=duration_text(age_ms) if entry.last_timestamp >= 0 else None,
        note=note,
    )


class ProducerRecorder:
    """A `ProducerWatch` that records in a history. `expiration_ms`: the present
    `producer.id.expiration.ms`. `on_new_producer` is called with the id of a producer that is new
    to a log."""

    def __init__(self, history: History, expiration_ms: Callable[[], int]) -> None:
        self._history = history
        self._expiration_ms = expiration_ms
        self.on_new_producer: Callable[[int], None] = lambda _: None

    def duplicate(self, where: TopicPartition, header: BatchHeader, original: Duplicate, /) -> None:
        self._history.record(
            str(header.producer_id),
            EventKind.DUPLICATE_BATCH,
            partitions=(where,),
            epoch=header.producer_epoch,
            sequences=_sequences(header),
            offset=original.base_offset,
            last_offset=original.last_offset,
        )

    def refused(
        self, where: TopicPartition, header: BatchHeader, rejected: AppendRejected, /
    ) -> None:
        self._history.record(
            str(header.producer_id),
            EventKind.MARKER_REFUSED if header.is_control else EventKind.BATCH_REFUSED,
            error=rejected.error,
            partitions=(where,),
            epoch=header.producer_epoch,
            sequences=None if header.is_control else _sequences(header),
            reason=rejected.message,
        )

    def new_epoch(
        self, where: TopicPartition, header: BatchHeader, epoch_before: int | None, /
    ) -> None:
        """Record the first batch of a producer, or a batch or marker with a new epoch."""
        if epoch_before is None:
            self.on_new_producer(header.producer_id)
        kind = EventKind.BATCH_OF_NEW_EPOCH
        if header.is_control:
            kind = EventKind.MARKER_OF_NEW_EPOCH
        elif epoch_before is None:
            kind = EventKind.FIRST_BATCH
        self._history.record(
            str(header.producer_id),
            kind,
            partitions=(where,),
            before="none" if epoch_before is None else epoch_before,
            epoch=header.producer_epoch,
            sequences=None if header.is_control else _sequences(header),
            offset=header.base_offset,
        )

    def expired(self, where: TopicPartition, producer_id: int, /) -> None:
        """Record that a producer has expired (P-24)."""
        age = duration_text(self._expiration_ms())
        self._history.record(
            str(producer_id), EventKind.PRODUCER_EXPIRED, partitions=(where,), age=age
        )


def _sequences(header: BatchHeader) -> str:
    first, last = header.base_sequence, header.last_sequence
    return f"sequence {first}" if first == last else f"sequences {first} to {last}"
