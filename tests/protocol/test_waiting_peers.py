"""The connections that wait, by the addresses of their peers."""

from __future__ import annotations

import pytest

from odradek_protocol.waiting_peers import Close, WaitingPeers, counted_as


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"),
        ("2001:db8:0:1::", "2001:db8:0:1::/64"),
        ("fd00::7", "fd00::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("::1", "::1"),
        ("192.0.2.7 4711", "192.0.2.7 4711"),
        ("2001:db8::1 4711", "2001:db8::1 4711"),
        ("unknown", "unknown"),
        ("", ""),
        ("?", "?"),
    ],
)
def test_n27_a_machine_is_counted_once_whatever_addresses_it_takes(
    address: str, counted: str
) -> None:
    assert counted_as(address) == counted


class Peers:
    """Connections by number, of which the closed ones are listed."""

    def __init__(self, most_per_address: int, most: int) -> None:
        self.waiting = WaitingPeers(most_per_address, most)
        self.closed: list[int] = []
        self._closers: dict[int, Close] = {}

    def begin(self, number: int, address: str = "a") -> bool:
        return self.waiting.begin(address, self.close(number))

    def close(self, number: int) -> Close:
        return self._closers.setdefault(number, lambda: self.closed.append(number))


def test_n27_the_oldest_peer_of_an_address_makes_room_then_the_oldest_of_all() -> None:
    peers = Peers(2, 3)
    assert all(peers.begin(each) for each in (1, 2, 3))
    assert peers.closed == [1]
    assert peers.begin(4, "b") and peers.begin(5, "b")
    assert peers.closed == [1, 2] and len(peers.waiting) == 3
    for each in range(6):
        peers.waiting.ended(peers.close(each))
        peers.waiting.ended(peers.close(each))
    assert len(peers.waiting) == 0 and peers.closed == [1, 2]


def test_n27_a_peer_that_is_kept_counts_and_makes_no_room() -> None:
    peers = Peers(2, 3)
    peers.begin(1)
    peers.waiting.keep(peers.close(1))
    assert peers.begin(2) and peers.begin(3)
    assert peers.closed == [2]
    peers.waiting.keep(peers.close(3))
    peers.waiting.keep(peers.close(99))
    assert not peers.begin(4) and peers.closed == [2]
    assert peers.begin(5, "2001:db8::1") and peers.begin(6, "2001:db8::2")
    assert peers.closed == [2, 5]
    peers.waiting.keep(peers.close(6))
    assert not peers.begin(7, "c")
    peers.waiting.ended(peers.close(1))
    assert peers.begin(8) and len(peers.waiting) == 3
