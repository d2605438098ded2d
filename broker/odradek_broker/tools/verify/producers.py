"""The state of producers as the batches of a partition give it, for comparison with what lies beside
them: producer snapshots (P-26) and transaction indexes (L-04)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.storage.aborted_index import AbortedTransaction
from odradek_broker.storage.producers.entry import ProducerEntry
from odradek_broker.storage.producers.manager import read_end_marker
from odradek_broker.storage.producers.snapshot import decode_snapshot
from odradek_broker.storage.producers.state import ProducerStateManager
from odradek_broker.tools.segment_file import StoredBatch
from odradek_protocol.constants import NO_COORDINATOR_EPOCH, NO_OFFSET

#: More than one partition may have: a broker forgets them much earlier.
_PRODUCERS_MAX = 1_000_000
_NEVER_MS = 2**62
_DIFFERENCES_MAX = 3


class ProducerReplay:
    """`exact`: nothing is missing that counts, from the first batch or a snapshot on."""

    def __init__(self) -> None:
        self.exact = False
        self._state = self._empty()

    @staticmethod
    def _empty() -> ProducerStateManager:
        return ProducerStateManager(max_producer_ids=_PRODUCERS_MAX, expiration_ms=_NEVER_MS)

    def begin_empty(self) -> None:
        """Before the first batch that there ever was."""
        self._state, self.exact = self._empty(), True

    def begin_at(self, content: bytes, offset: int) -> None:
        """Go on from a snapshot. CorruptSnapshot."""
        self._state = ProducerStateManager.from_snapshot(
            content,
            map_end_offset=offset,
            max_producer_ids=_PRODUCERS_MAX,
            expiration_ms=_NEVER_MS,
        )
        self.exact = True

    def follow(self, batch: StoredBatch) -> AbortedTransaction | None:
        """Take a batch over; the entry that it gives the transaction index. BatchError, ValueError."""
        header = batch.header
        marker = None
        if header.is_control and batch.data is not None:
            marker = read_end_marker(header, batch.data)
        self._state.update(header, header.base_offset, header.last_offset, 0)
        if marker is None:
            return None
        kind, coordinator_epoch = marker
        return self._state.apply_marker(
            header.producer_id,
            header.producer_epoch,
            coordinator_epoch,
            kind,
            header.last_offset,
            header.max_timestamp,
        )

    def differences(self, content: bytes, offset: int) -> str:
        """How a snapshot at the present offset differs; empty if it does not. CorruptSnapshot."""
        stored = {
            entry.producer_id: entry for entry in decode_snapshot(content, map_end_offset=offset)
        }
        found = []
        for text in self._differences(stored):
            found.append(text)
            if len(found) > _DIFFERENCES_MAX:
                found[-1] = "..."
                break
        return "; ".join(found)

    def _differences(self, stored: dict[int, ProducerEntry]) -> Iterator[str]:
        for replayed in self._state.entries():
            entry = stored.pop(replayed.producer_id, None)
            if entry is not None:
                yield from _entry_differences(entry, replayed)
            elif replayed.transaction_first_offset is not None:
                # Others may have been forgotten for being idle.
                yield (
                    f"producer id {replayed.producer_id}, whose transaction is open since offset"
                    f" {replayed.transaction_first_offset}, is not in it"
                )
        for producer_id in stored:
            yield f"producer id {producer_id} has written nothing"


def _entry_differences(entry: ProducerEntry, replayed: ProducerEntry) -> Iterator[str]:
    """A producer that was forgotten and came back has lost what it had before."""
    pairs = [
        ("epoch", entry.epoch, replayed.epoch),
        ("open transaction", entry.transaction_first_offset, replayed.transaction_first_offset),
    ]
    if entry.coordinator_epoch != NO_COORDINATOR_EPOCH:
        pairs.append(("coordinator epoch", entry.coordinator_epoch, replayed.coordinator_epoch))
    if entry.last_offset != NO_OFFSET:
        pairs.append(("last offset", entry.last_offset, replayed.last_offset))
        pairs.append(("last sequence", entry.last_sequence, replayed.last_sequence))
    for name, stored, computed in pairs:
        if stored != computed:
            yield f"producer id {entry.producer_id} has {name} {stored}, its batches give {computed}"
