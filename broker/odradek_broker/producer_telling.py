"""What partitions have to say of producer ids, as events for people (`odradek explain producer`)."""

from __future__ import annotations

from odradek_broker.history import History, Now
from odradek_broker.history_words import Value, What, span
from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.producer_entry import ProducerEntry
from odradek_broker.storage.producer_state import Duplicate
from odradek_broker.storage.producer_watch import Place
from odradek_protocol.records.batch import BatchHeader, next_sequence


def now_of_producer(where: Place, entry: ProducerEntry, restored_to: int, wall_ms: int) -> Now:
    """What a partition knows of a producer id. State of batches below `restored_to` is not of this
    start of the broker (P-28)."""
    last = entry.last_batch
    note = None
    if last is not None and last.last_offset < restored_to:
        note = "rebuilt at the start from its snapshot and the log"
    fields: dict[str, Value | None] = {
        "epoch": entry.epoch,
        "last_sequence": None if last is None else last.last_sequence,
        "offset": None if last is None else last.last_offset,
        "next_sequence": 0 if last is None else next_sequence(last.last_sequence, 1),
        "transaction_offset": entry.transaction_first_offset,
        "updated": span(wall_ms - entry.last_timestamp) if entry.last_timestamp >= 0 else None,
        "note": note,
    }
    return Now.of(What.NOW_PRODUCER, fields, (where,))


class ProducerTeller:
    """A `ProducerWatch` that records in a history. `expiration_ms`: `producer.id.expiration.ms`."""

    def __init__(self, history: History, expiration_ms: int) -> None:
        self._history = history
        self._expiration_ms = expiration_ms

    def duplicate(self, where: Place, header: BatchHeader, original: Duplicate, /) -> None:
        """See `ProducerWatch`, here and below."""
        self._history.record(
            str(header.producer_id),
            What.DUPLICATE_BATCH,
            places=(where,),
            epoch=header.producer_epoch,
            sequences=_sequences(header),
            offset=original.base_offset,
            last_offset=original.last_offset,
        )

    def refused(self, where: Place, header: BatchHeader, rejected: AppendRejected, /) -> None:
        """A batch, or a marker."""
        self._history.record(
            str(header.producer_id),
            What.MARKER_REFUSED if header.is_control else What.BATCH_REFUSED,
            error=rejected.error,
            places=(where,),
            epoch=header.producer_epoch,
            sequences=None if header.is_control else _sequences(header),
            reason=rejected.message,
        )

    def new_epoch(self, where: Place, header: BatchHeader, epoch_before: int | None, /) -> None:
        """A first batch, a batch, or a marker."""
        what = What.BATCH_OF_NEW_EPOCH
        if header.is_control:
            what = What.MARKER_OF_NEW_EPOCH
        elif epoch_before is None:
            what = What.FIRST_BATCH
        self._history.record(
            str(header.producer_id),
            what,
            places=(where,),
            before="none" if epoch_before is None else epoch_before,
            epoch=header.producer_epoch,
            sequences=None if header.is_control else _sequences(header),
            offset=header.base_offset,
        )

    def expired(self, where: Place, producer_id: int, /) -> None:
        """P-24."""
        age = span(self._expiration_ms)
        self._history.record(str(producer_id), What.PRODUCER_EXPIRED, places=(where,), age=age)


def _sequences(header: BatchHeader) -> str:
    first, last = header.base_sequence, header.last_sequence
    return f"sequence {first}" if first == last else f"sequences {first} to {last}"
