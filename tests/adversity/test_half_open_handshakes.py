"""Peers that begin TLS handshakes and never finish them: other clients are served during and after
the handshakes.

The peers run in another process. Where possible they use many loopback addresses, so that the limit
for one address (`max.ssl.handshakes.per.ip`) does not protect the broker.
"""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import Authority
from odradek.broker import SubprocessBroker

CA = Authority()
_PATIENCE_S = 30.0
_MANY_ADDRESSES = sys.platform.startswith("linux")
#: Handshakes from one address: fewer than the limit, as from correct clients behind one router.
_PER_ADDRESS = 90
#: File descriptors of the peers' process in addition to the sockets.
_SPARE_FILES = 100
_MEGABYTE = 1024 * 1024
#: ApiVersions, version 0, without a client id.
_ASK = struct.pack(">ihhih", 10, 18, 0, 7, -1)

#: The program of the peers. Every second peer sends half of a ClientHello. A connection that the
#: broker closes is not opened again.
_PEERS = """
import socket, sys
port, count, per_address = map(int, sys.argv[1:])
held = []
for number in range(count):
    source = ("127.0.%d.%d" % (1 + number // per_address // 250, 1 + number // per_address % 250), 0)
    try:
        peer = socket.create_connection(("127.0.0.1", port), 30, source if per_address else None)
        if number % 2:
            peer.sendall(bytes((22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3)))
    except OSError:
        continue
    held.append(peer)
print(len(held), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SubprocessBroker]:
    """A broker that has only an SSL listener. The timeout for handshakes is longer than the
    test."""
    CA.issue().write(tmp_path / "broker.pem")
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tmp_path / "broker.pem",
        "ssl.handshake.timeout.ms": 600_000,
    }
    with SubprocessBroker(settings=settings) as started:
        yield started


def ask(broker: SubprocessBroker, trusted: ssl.SSLContext) -> None:
    """Open a connection, with its TLS handshake, and make one request."""
    host, port = broker.bootstrap.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), _PATIENCE_S) as plain,
        trusted.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(_ASK)
        with connection.makefile("rb") as answer:
            length, correlation, error = struct.unpack(">iih", answer.read(10))
            assert (correlation, error) == (7, 0)
            assert len(answer.read(length - 6)) == length - 6


def resident_bytes(broker: SubprocessBroker) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text("ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def others_are_served(broker: SubprocessBroker, count: int) -> None:
    """Check that other clients are served while `count` peers connect and stay connected."""
    trusted = ssl.create_default_context(cadata=CA.pem)
    ask(broker, trusted)
    before = resident_bytes(broker) if _MANY_ADDRESSES else 0
    port = broker.bootstrap.rsplit(":", 1)[1]
    per_address = _PER_ADDRESS if _MANY_ADDRESSES else 0
    peers = subprocess.Popen(
        [sys.executable, "-c", _PEERS, port, str(count), str(per_address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with peers:
        assert peers.stdin is not None and peers.stdout is not None
        try:
            for _ in range(20):
                ask(broker, trusted)
            connected = int(peers.stdout.readline())
            for _ in range(20):
                ask(broker, trusted)
            if _MANY_ADDRESSES:
                grown = resident_bytes(broker) - before
                print(f"{connected} peers, {grown / 1e6:.1f} MB")
                assert grown < 200 * _MEGABYTE
        finally:
            with contextlib.suppress(BrokenPipeError):
                peers.stdin.close()
    ask(broker, trusted)


@pytest.mark.full
def test_n23_clients_are_served_during_1500_half_open_handshakes(broker: SubprocessBroker) -> None:
    others_are_served(broker, 1_500)


@pytest.mark.full
@pytest.mark.slow
def test_n23_clients_are_served_during_10000_half_open_handshakes(broker: SubprocessBroker) -> None:
    """The limit on open files may allow fewer peers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 10_000
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard - _SPARE_FILES)
    if soft != resource.RLIM_INFINITY and soft < count + _SPARE_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + _SPARE_FILES, hard))
    others_are_served(broker, count)
