"""Probes of a broker's port for TLS, plaintext or SASL.

A probe opens a second connection. A probe is made only after another connection has ended without
an answer, so that the error can name the cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from odradek_protocol.errors import ErrorCode
from odradek_protocol.frames import decode_response, encode_request
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.primitives import DecodeError
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_PATIENCE_S = 2.0
_TLS_HANDSHAKE, _TLS_ALERT, _TLS_VERSION = 0x16, 0x15, 0x03
_CORRELATION_ID = 0x6F64
_FRAME_BYTES_MAX = 65_536
_NO_MECHANISM = "none"


async def speaks_tls(host: str, port: int) -> bool:
    """True if the port answers a TLS hello with TLS. Raises only on cancellation."""
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
    """True if the port answers a request without TLS. Raises only on cancellation."""
    asked = b"".join(encode_request(ApiVersionsRequest(), 0, _CORRELATION_ID, "odradek"))
    answer = await _answer(host, port, asked, 8)
    return answer[4:] == _CORRELATION_ID.to_bytes(4, "big")


async def mechanisms_wanted(host: str, port: int, tls: ssl.SSLContext | None) -> list[str] | None:
    """The SASL mechanisms of the listener. None if the listener does not require SASL, or does not
    answer. Raises only on cancellation.

    The probe requests an invalid mechanism: a listener with SASL refuses the mechanism, and the
    answer lists the mechanisms that the listener accepts.
    """
    asked = b"".join(
        encode_request(SaslHandshakeRequest(mechanism=_NO_MECHANISM), 1, _CORRELATION_ID, "odradek")
    )
    answer = await _answer(host, port, asked, 4, tls, whole=True)
    if answer[:4] != _CORRELATION_ID.to_bytes(4, "big"):
        return None
    try:
        said = decode_response(APIS[ApiKey.SASL_HANDSHAKE], 1, memoryview(answer))
    except DecodeError:
        return None
    assert isinstance(said, SaslHandshakeResponse)
    wanted = said.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return list(said.mechanisms) if wanted else None


async def _answer(
    host: str,
    port: int,
    data: bytes,
    size_bytes: int,
    tls: ssl.SSLContext | None = None,
    *,
    whole: bool = False,
) -> bytes:
    """The first `size_bytes` of the answer. With `whole`, these bytes are the length of a frame,
    and the result is the frame that follows them. Empty if the answer is too short.
    """
    writer = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=tls, server_hostname=None if tls is None else host
            )
            writer.write(data)
            answer = await reader.readexactly(size_bytes)
            length = int.from_bytes(answer, "big") if whole else 0
            return await reader.readexactly(length) if 0 < length <= _FRAME_BYTES_MAX else answer
    except (OSError, asyncio.IncompleteReadError):
        return b""
    finally:
        if writer is not None:
            writer.transport.abort()
