"""Randomness that is none (`odradek_broker.platform.seams.Randomness`): ids that are counted."""

from __future__ import annotations


class CountingRandomness:
    """Ids that differ and are known."""

    def __init__(self) -> None:
        self.calls = 0

    def uuid(self) -> bytes:
        self.calls += 1
        return self.calls.to_bytes(16, "big")

    def below(self, bound: int) -> int:
        return 0
