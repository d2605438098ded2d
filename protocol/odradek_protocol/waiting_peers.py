"""The connections whose peers have not shown yet what they want, with limits of their number."""

from __future__ import annotations

from collections.abc import Callable

#: Closes a connection.
Close = Callable[[], None]


class WaitingPeers:
    """The waiting connections of all addresses, oldest first.

    `most_per_address`, `most`: their limits. At a limit the oldest connection is closed for the
    next: honest peers do not wait for long.
    """

    def __init__(self, most_per_address: int, most: int) -> None:
        self._most_per_address = most_per_address
        self._most = most
        #: The function that closes each connection, and the address of the peer.
        self._connections: dict[Close, str] = {}
        self._by_address: dict[str, dict[Close, None]] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def crowded(self, address: str) -> bool:
        """True if the address has as many waiting connections as it may have."""
        return len(self._by_address.get(address, ())) >= self._most_per_address

    def begin(self, address: str, close: Close) -> None:
        """Add a connection, and close the oldest one of its address, or of all, if there are too
        many. The caller has to call `ended` when the peer no longer waits, or the connection is
        closed."""
        if self.crowded(address):
            self._close(next(iter(self._by_address[address])))
        if len(self._connections) >= self._most:
            self._close(next(iter(self._connections)))
        self._connections[close] = address
        self._by_address.setdefault(address, {})[close] = None

    def ended(self, close: Close) -> None:
        """Remove a connection; do nothing if it is not there."""
        address = self._connections.pop(close, None)
        if address is None:
            return
        there = self._by_address[address]
        del there[close]
        if not there:
            del self._by_address[address]

    def _close(self, close: Close) -> None:
        self.ended(close)
        close()
