"""TLS handshakes whose failure is reported to both sides.

When a handshake fails, asyncio and uvloop drop OpenSSL's alert for the peer, so that the peer sees
only the end of the connection. `TellingSSLObject` makes the transport send the alert, and keeps the
failure for `telling`; after the alert, `telling` ends the connection.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

P = TypeVar("P")

#: The turns of the event loop after which a transport has sent written data.
_TURNS = 3
#: Codes of X509_verify_cert.
_NOT_YET_VALID, _EXPIRED = 9, 10
#: The clock of certificates' dates; OpenSSL's is the machine's too.
_now_s = time.time


class _Attempt:
    """A handshake. `failed` gets the error if the handshake fails."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[ssl.SSLError] = asyncio.get_running_loop().create_future()


_ATTEMPT: ContextVar[_Attempt | None] = ContextVar("odradek_tls_attempt", default=None)


def _check_dates(certificate: dict[str, Any] | None) -> None:
    """Raise ssl.SSLCertVerificationError, as OpenSSL does in a full handshake, for a certificate
    that is not valid at present."""
    if not certificate:
        return
    for field, passed, code, message in (
        ("notBefore", False, _NOT_YET_VALID, "certificate is not yet valid"),
        ("notAfter", True, _EXPIRED, "certificate has expired"),
    ):
        if (_now_s() > ssl.cert_time_to_seconds(certificate[field])) is passed:
            error = ssl.SSLCertVerificationError(1, message)
            error.verify_code, error.verify_message = code, message
            raise error


class TellingSSLObject(ssl.SSLObject):
    """An `ssl.SSLObject` whose alert is sent when its handshake fails within `telling`."""

    def do_handshake(self) -> None:
        """Continue the handshake. If it fails, raise the exception that means "more bytes are
        needed": the transport then sends the alert, and does not close the connection. A session
        that is resumed fails if the peer's certificate is not valid at present, since OpenSSL
        looked at its dates only when the session began."""
        try:
            super().do_handshake()
            if self.session_reused:
                _check_dates(self.getpeercert())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError):
            raise
        except ssl.SSLError as error:
            attempt = _ATTEMPT.get()
            if attempt is None:
                raise
            if not attempt.failed.done():
                attempt.failed.set_result(error)
            raise ssl.SSLWantReadError from None


async def telling(connect: Coroutine[Any, Any, tuple[Any, P]]) -> P:
    """Open a connection with `connect`, such as `loop.create_connection(...)`. Returns the protocol
    of the connection.

    Raises the exceptions of `connect`, or the ssl.SSLError that ended the handshake, after the
    alert was sent.
    """
    attempt = _Attempt()
    token = _ATTEMPT.set(attempt)
    try:
        # The task and the calls of its transport run in copies of the present context, in which
        # they find the attempt.
        task = asyncio.ensure_future(connect)
    finally:
        _ATTEMPT.reset(token)
    try:
        either: list[asyncio.Future[Any]] = [task, attempt.failed]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            for _ in range(_TURNS):
                await asyncio.sleep(0)
    except asyncio.CancelledError:
        await _end(task)
        if not task.cancelled() and task.exception() is None:
            task.result()[0].abort()
        raise
    await _end(task)
    if attempt.failed.done() and (task.cancelled() or task.exception() is not None):
        raise attempt.failed.result()
    return task.result()[1]


async def _end(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
