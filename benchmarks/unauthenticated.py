"""Costs of peers that have not authenticated: memory, processor time and lines of the log.

    python -m benchmarks.unauthenticated [--attempts 200] [--held 500] [--json]

One broker has a SASL_SSL listener with the settings for a shared network, but with higher limits
for one address, because all peers are on this machine. First, peers make wrong attempts as fast as
the attempts are answered; then, peers stay connected as long as they are allowed to. The broker
delays its answers to wrong passwords, so a few hundred attempts are in flight.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import Report, cpu_s, parser, per, resident_bytes, run_on_uvloop, say, shown

from odradek.broker import SubprocessBroker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from certificates import Authority

CA = Authority()
_AT_A_TIME = 50
_PATIENCE_S = 60.0
_SETTLE_S = 1.0
_FRAME_BYTES = 524_288
_NEWLINE = b"\n"
#: API keys of SaslHandshake and SaslAuthenticate.
_HANDSHAKE, _AUTHENTICATE = 17, 36
#: The beginning of a ClientHello.
_HALF_A_HELLO = bytes((22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3))


@dataclass(frozen=True)
class Victim:
    """The broker under attack, and the path of its log."""

    host: str
    port: int
    pid: int
    log: Path
    trusted: ssl.SSLContext


Attempt = Callable[[Victim], Awaitable[object]]


async def _read_to_end(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(65_536):
            pass


async def _plain(victim: Victim) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(victim.host, victim.port)


async def _over_tls(victim: Victim) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        victim.host, victim.port, ssl=victim.trusted, server_hostname="localhost"
    )


async def _connect_and_go(victim: Victim) -> None:
    _, writer = await _plain(victim)
    writer.close()


async def _say_garbage(victim: Victim) -> None:
    reader, writer = await _plain(victim)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await _read_to_end(reader)
    writer.close()


async def _shake_hands_and_go(victim: Victim) -> None:
    _, writer = await _over_tls(victim)
    writer.close()


async def _say_garbage_over_tls(victim: Victim) -> None:
    reader, writer = await _over_tls(victim)
    writer.write(struct.pack(">i", 2**31 - 1) + b"x" * 100)
    await _read_to_end(reader)
    writer.close()


async def _call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: int, body: bytes
) -> bytes:
    request = struct.pack(">hhih", key, 1, 1, -1) + body
    writer.write(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _authenticate(victim: Victim, mechanism: str, token: bytes) -> None:
    """Make one wrong attempt, from the connection to its end."""
    reader, writer = await _over_tls(victim)
    name = mechanism.encode()
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await _call(reader, writer, _HANDSHAKE, struct.pack(">h", len(name)) + name)
        await _call(reader, writer, _AUTHENTICATE, struct.pack(">i", len(token)) + token)
        if mechanism != "PLAIN":
            nonce = base64.b64encode(b"n" * 18)
            proof = base64.b64encode(b"p" * 32)
            last = b"c=biws,r=" + nonce + b",p=" + proof
            await _call(reader, writer, _AUTHENTICATE, struct.pack(">i", len(last)) + last)
    await _read_to_end(reader)
    writer.close()


async def _wrong_password(victim: Victim) -> None:
    await _authenticate(victim, "PLAIN", b"\0alice\0wrong")


async def _unknown_user(victim: Victim) -> None:
    await _authenticate(victim, "PLAIN", b"\0nobody\0wrong")


async def _wrong_proof(victim: Victim) -> None:
    await _authenticate(victim, "SCRAM-SHA-256", b"n,,n=alice,r=" + base64.b64encode(b"n" * 18))


ATTEMPTS: dict[str, Attempt] = {
    "connects, and goes": _connect_and_go,
    "plaintext to TLS": _say_garbage,
    "a TLS handshake, and goes": _shake_hands_and_go,
    "a TLS handshake, then garbage": _say_garbage_over_tls,
    "PLAIN, a wrong password": _wrong_password,
    "PLAIN, an unknown user": _unknown_user,
    "SCRAM, a wrong proof": _wrong_proof,
}


async def _silent(victim: Victim) -> asyncio.StreamWriter:
    return (await _plain(victim))[1]


async def _half_a_hello(victim: Victim) -> asyncio.StreamWriter:
    _, writer = await _plain(victim)
    writer.write(_HALF_A_HELLO)
    return writer


async def _nothing_after_tls(victim: Victim) -> asyncio.StreamWriter:
    return (await _over_tls(victim))[1]


async def _most_of_a_frame(victim: Victim) -> asyncio.StreamWriter:
    _, writer = await _over_tls(victim)
    writer.write(struct.pack(">i", _FRAME_BYTES) + bytes(_FRAME_BYTES - 1))
    await writer.drain()
    return writer


HOLDERS: dict[str, Callable[[Victim], Awaitable[asyncio.StreamWriter]]] = {
    "silent, before TLS": _silent,
    "half a TLS handshake": _half_a_hello,
    "silent behind TLS": _nothing_after_tls,
    f"{_FRAME_BYTES:,} bytes but one of a request": _most_of_a_frame,
}


async def _in_turns(victim: Victim, attempt: Attempt, count: int) -> float:
    """Make `count` attempts, a few at a time. Returns the seconds that they took."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                async with asyncio.timeout(_PATIENCE_S):
                    await attempt(victim)

    began_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(_AT_A_TIME)))
    return time.perf_counter() - began_s


def measure_attempts(report: Report, victim: Victim, count: int) -> None:
    """Measure a row for each kind of attempt."""
    report.table(
        f"{count:,} attempts of each kind",
        ("unauthenticated peer", "per second", "CPU us each", "log lines", "log bytes", "MB more"),
    )
    for title, attempt in ATTEMPTS.items():
        say(title)
        run_on_uvloop(_in_turns(victim, attempt, _AT_A_TIME))
        time.sleep(_SETTLE_S)
        log, cpu, memory = victim.log.read_bytes(), cpu_s(victim.pid), resident_bytes(victim.pid)
        took_s = run_on_uvloop(_in_turns(victim, attempt, count))
        time.sleep(_SETTLE_S)
        cpu_after, memory_after = cpu_s(victim.pid), resident_bytes(victim.pid)
        told = victim.log.read_bytes()[len(log) :]
        spent_s = None if cpu is None or cpu_after is None else cpu_after - cpu
        grown_mb = ((memory_after or 0) - (memory or 0)) / 1e6
        report.row(
            (
                title,
                f"{count / took_s:,.0f}",
                shown(per(spent_s, count)),
                f"{told.count(_NEWLINE):,}",
                f"{len(told):,}",
                f"{grown_mb:.1f}",
            ),
            attempts=count,
            seconds=took_s,
            cpu_s=spent_s,
            log_bytes=len(told),
            grown_mb=grown_mb,
        )


async def _hold(
    victim: Victim, peer: Callable[[Victim], Awaitable[asyncio.StreamWriter]], count: int
) -> float:
    """The growth of the broker's memory in MB while `count` peers stay connected."""
    before = resident_bytes(victim.pid) or 0
    held = []
    for _ in range(count):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            held.append(await peer(victim))
    await asyncio.sleep(_SETTLE_S)
    grown_mb = ((resident_bytes(victim.pid) or 0) - before) / 1e6
    for writer in held:
        writer.transport.abort()
    return grown_mb


def measure_held(report: Report, victim: Victim, count: int) -> None:
    """Measure a row for each kind of peer that stays connected."""
    report.table(f"{count:,} peers that stay", ("peer that stays", "KB each", "MB together"))
    for title, peer in HOLDERS.items():
        say(title)
        grown_mb = run_on_uvloop(_hold(victim, peer, count))
        time.sleep(_SETTLE_S)
        report.row(
            (title, f"{grown_mb * 1e3 / count:.0f}", f"{grown_mb:.0f}"),
            peers=count,
            grown_mb=grown_mb,
        )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--attempts", type=int, default=200)
    options.add_argument("--held", type=int, default=500)
    arguments = options.parse_args()
    report = Report("unauthenticated", as_json=arguments.json)
    report.machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        CA.issue().write(folder / "broker.pem")
        prefix = "listener.name.sasl_ssl"
        login = "org.apache.kafka.common.security"
        settings: dict[str, object] = {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": folder / "broker.pem",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            f"{prefix}.plain.sasl.jaas.config": f'{login}.plain.PlainLoginModule required user_alice="secret";',
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
            "sasl.authentication.timeout.ms": 600_000,
            "ssl.handshake.timeout.ms": 600_000,
            "max.ssl.handshakes.per.ip": 100_000,
            "max.sasl.authentications.per.ip": 100_000,
        }
        with SubprocessBroker(settings=settings) as broker:
            assert broker.pid is not None and broker._errors is not None
            host, port = broker.bootstrap.rsplit(":", 1)
            trusted = ssl.create_default_context(cadata=CA.pem)
            victim = Victim(host, int(port), broker.pid, broker._errors, trusted)
            measure_attempts(report, victim, arguments.attempts)
            measure_held(report, victim, arguments.held)


if __name__ == "__main__":
    main()
