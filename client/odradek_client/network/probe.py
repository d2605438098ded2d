"""What a broker's port speaks, asked when a connection ended without a word: TLS or plaintext.

Only then is it worth a second connection: the error can name the cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from odradek_protocol.frames import encode_request
from odradek_protocol.schemas.api_versions import ApiVersionsRequest

_PATIENCE_S = 2.0
_TLS_HANDSHAKE, _TLS_ALERT, _TLS_VERSION = 0x16, 0x15, 0x03
_CORRELATION_ID = 0x6F64


async def speaks_tls(host: str, port: int) -> bool:
    """Whether it answers a TLS hello with TLS. Never raises but for cancellation."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    answer = await _answer(host, port, outgoing.read(), 2)
    return answer[:1] in (bytes([_TLS_HANDSHAKE]), bytes([_TLS_ALERT])) and answer[1] == (
        _TLS_VERSION
    )


async def speaks_plaintext(host: str, port: int) -> bool:
    """Whether it answers a request without TLS. Never raises but for cancellation."""
    asked = b"".join(encode_request(ApiVersionsRequest(), 0, _CORRELATION_ID, "odradek"))
    answer = await _answer(host, port, asked, 8)
    return answer[4:] == _CORRELATION_ID.to_bytes(4, "big")


async def _answer(host: str, port: int, data: bytes, size_bytes: int) -> bytes:
    """The first bytes of what comes back; empty if there are not so many."""
    writer = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(data)
            return await reader.readexactly(size_bytes)
    except (OSError, asyncio.IncompleteReadError):
        return b""
    finally:
        if writer is not None:
            writer.transport.abort()
