"""Randomness (`odradek_broker.platform.seams.Randomness`) whose ids are consecutive numbers."""

from __future__ import annotations


class CountingRandomness:
    """Ids that are distinct and predictable."""

    def __init__(self) -> None:
        self.calls = 0

    def uuid(self) -> bytes:
        self.calls += 1
        return self.calls.to_bytes(16, "big")

    def below(self, bound: int) -> int:
        return 0
