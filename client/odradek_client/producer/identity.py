"""The identity of a producer: its producer id and epoch."""

from __future__ import annotations

from odradek_protocol.lazy_tuple import NamedTuple

EPOCH_MAX = 32767


class ProducerIdentity(NamedTuple):
    """A producer id and epoch; -1 and -1: none (P-21)."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        """True if this is an identity from a broker."""
        return self.producer_id >= 0


NO_IDENTITY = ProducerIdentity(-1, -1)
