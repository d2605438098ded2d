"""How much may wait on connections: on each, and on all of them (N-14)."""

from __future__ import annotations


class SessionLimits:
    """Limits of one connection, and of all together, with what all of them hold."""

    __slots__ = ("bytes_held", "in_flight_bytes_max", "in_flight_max", "total_bytes_max")

    def __init__(self, in_flight_max: int, in_flight_bytes_max: int, total_bytes_max: int) -> None:
        self.in_flight_max = in_flight_max
        self.in_flight_bytes_max = in_flight_bytes_max
        self.total_bytes_max = total_bytes_max
        #: Bytes of requests in flight and of responses not taken yet, of all connections.
        self.bytes_held = 0

    @property
    def room_bytes(self) -> int:
        """Bytes that may still be held by all connections."""
        return max(self.total_bytes_max - self.bytes_held, 0)
