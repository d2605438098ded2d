"""The connections whose peers have not shown yet what they want, with limits of their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address

_NETWORK_BITS = 64
#: Closes a connection.
Close = Callable[[], object]


def counted_as(address: str) -> str:
    """The text by which a peer with this IP address is counted: for IPv6 its network of 64 bits,
    since one machine may use all addresses there; otherwise the address, or any other text."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    if parsed.is_link_local or parsed.is_loopback:
        # All networks have the same number there.
        return address
    return f"{IPv6Address(int(parsed) >> _NETWORK_BITS << _NETWORK_BITS)}/{_NETWORK_BITS}"


class WaitingPeers:
    """The waiting connections of all addresses, oldest first.

    `most_per_address`, `most`: their limits. At a limit the oldest connection is closed for the
    next: honest peers do not wait for long. Connections that are kept count too, and are not closed
    for others.
    """

    def __init__(self, most_per_address: int, most: int) -> None:
        self._most_per_address = most_per_address
        self._most = most
        #: The function that closes each connection, and the address of the peer.
        self._connections: dict[Close, str] = {}
        self._by_address: dict[str, dict[Close, None]] = {}
        #: The connections that are kept, and the number of those of each address.
        self._kept: dict[Close, str] = {}
        self._kept_by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._connections) + len(self._kept)

    def begin(self, address: str, close: Close) -> bool:
        """Add a connection, and close the oldest one of its address, or of all, if there are too
        many. False, and the connection is not added, if all of these are kept. The caller has to
        call `ended` when the peer no longer waits, or the connection is closed."""
        address = counted_as(address)
        there = self._by_address.get(address, {})
        if len(there) + self._kept_by_address[address] >= self._most_per_address:
            if not there:
                return False
            self._close(next(iter(there)))
        if len(self) >= self._most:
            if not self._connections:
                return False
            self._close(next(iter(self._connections)))
        self._connections[close] = address
        self._by_address.setdefault(address, {})[close] = None
        return True

    def keep(self, close: Close) -> None:
        """Keep a connection until it has ended, whatever comes; do nothing if it is not there."""
        address = self._removed(close)
        if address is not None:
            self._kept[close] = address
            self._kept_by_address[address] += 1

    def ended(self, close: Close) -> None:
        """Remove a connection; do nothing if it is not there."""
        if self._removed(close) is not None:
            return
        address = self._kept.pop(close, None)
        if address is not None:
            self._kept_by_address[address] -= 1
            if not self._kept_by_address[address]:
                del self._kept_by_address[address]

    def _removed(self, close: Close) -> str | None:
        """Remove a connection that is not kept; returns its address."""
        address = self._connections.pop(close, None)
        if address is not None:
            there = self._by_address[address]
            del there[close]
            if not there:
                del self._by_address[address]
        return address

    def _close(self, close: Close) -> None:
        self.ended(close)
        close()
