"""The choice of the batches that a reader with read_committed skips: data of aborted transactions,
and markers (F-09, F-10)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from odradek_protocol.records.batch import BatchHeader, Buffer
from odradek_protocol.records.record import read_columns
from odradek_protocol.schemas.fetch import AbortedTransaction
from odradek_protocol.stored.control_marker import ControlType, decode_type


class AbortedBatches:
    """The aborted transactions of one fetched partition. The partition's batches have to be passed
    to `hides` in offset order."""

    __slots__ = ("_producers", "_waiting")

    def __init__(self, aborted: Sequence[AbortedTransaction] | None) -> None:
        # Brokers need not sort the transactions (F-09). The lowest first offset is last, because
        # `pop` takes the last element.
        self._waiting = sorted(aborted or (), key=attrgetter("first_offset"), reverse=True)
        self._producers: set[int] = set()

    def hides(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """True if the batch at `position` is data of an aborted transaction, or a marker (F-10).

        A call for a marker may change later results, so call this method once for each marker.
        Raises CorruptBatch or ControlMarkerError.
        """
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._producers.add(self._waiting.pop().producer_id)
        if header.is_control:
            keys = read_columns(data, position, header).keys
            if keys and decode_type(keys[0]) is ControlType.ABORT:
                self._producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers
