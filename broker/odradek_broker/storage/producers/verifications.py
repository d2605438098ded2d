"""The first batches of transactions, which wait in a partition until the coordinator has verified
their transaction (P-15, T-61, T-62)."""

from __future__ import annotations

from odradek_protocol.records.batch import BatchHeader

#: The limit of the refused verifications that a partition keeps. Kafka keeps all of them; a client
#: that invents producer ids must not fill the memory.
REFUSED_MAX = 20


class Verification:
    """A producer whose membership in a transaction is being verified."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "refused", "started_ms", "strict")

    def __init__(
        self, guard: int, epoch: int, lowest_sequence: int, strict: bool, started_ms: int
    ) -> None:
        self.guard = guard
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.strict = strict
        self.started_ms = started_ms
        self.refused = False

    def check(self, header: BatchHeader, *, producer_is_known: bool) -> tuple[str, str] | None:
        """(expected sequence, reason) if a batch would be appended before an earlier batch that
        waits or was refused; None if the batch may be appended.
        """
        if self.strict and not producer_is_known and header.base_sequence:
            return "0", "the transaction begins on this partition"
        if header.base_sequence > self.lowest_sequence:
            return (
                f"at most {self.lowest_sequence}",
                "an earlier batch was refused by the transaction coordinator"
                if self.refused
                else "an earlier batch waits for the transaction to be verified",
            )
        return None


class Verifications(dict[int, Verification]):
    """The verifications of a partition, by producer id, until their batches are appended."""

    __slots__ = ("_last_guard", "_refused")

    def __init__(self) -> None:
        super().__init__()
        self._last_guard = 0
        # A set of producer ids in the order of their last refusals.
        self._refused: dict[int, None] = {}

    def begin(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        must_start_at_zero: bool,
        now_ms: int,
    ) -> int:
        """Begin a verification, or add a batch to the producer's present verification; returns
        the guard of the verification."""
        known = self.get(producer_id)
        if known is None:
            self._last_guard += 1
            known = Verification(
                self._last_guard, producer_epoch, base_sequence, must_start_at_zero, now_ms
            )
            self[producer_id] = known
            return known.guard
        if producer_epoch > known.epoch:
            known.epoch = producer_epoch
            known.lowest_sequence = base_sequence
        elif producer_epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, base_sequence)
        known.refused = False
        return known.guard

    def is_verified(self, producer_id: int, guard: int) -> bool:
        """True if the coordinator's answer is still valid. A marker or a batch that is appended
        after the request makes the answer invalid."""
        known = self.get(producer_id)
        return known is not None and known.guard == guard

    def refuse(self, producer_id: int) -> None:
        """Called when the coordinator has refused the producer. Its lowest sequence is kept, so
        that no later batch of the producer overtakes the refused batch."""
        known = self.get(producer_id)
        if known is None:
            return
        known.refused = True
        self._refused.pop(producer_id, None)
        self._refused[producer_id] = None
        if len(self._refused) > REFUSED_MAX:
            oldest = next(iter(self._refused))
            del self._refused[oldest]
            verification = self.get(oldest)
            if verification is not None and verification.refused:
                del self[oldest]

    def remove_expired(self, oldest_ms: int) -> None:
        for producer_id, verification in list(self.items()):
            if verification.started_ms <= oldest_ms:
                del self[producer_id]
