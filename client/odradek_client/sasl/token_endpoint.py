"""Tokens from an endpoint, by the client credentials grant (RFC 6749, KIP-768), or from a file.

The functions block, so they are called in a thread.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import socket
import ssl
from contextlib import closing
from typing import Any
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from odradek_client.errors import AuthenticationFailed
from odradek_client.sasl.settings import TokenEndpoint
from odradek_protocol.http_deadline import Deadline
from odradek_protocol.tls.contexts import client_context
from odradek_protocol.tls.files import read
from odradek_protocol.tls.problems import at_client
from odradek_protocol.tls.settings import TlsError
from odradek_protocol.visible import visible

_ANSWER_BYTES_MAX = 1_048_576
_SAID_MAX = 200
#: The HTTP statuses of temporary errors.
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_PORTS = {"https": 443, "http": 80}


class EndpointBusy(Exception):
    """The endpoint has no token at present, and may have one soon."""


def ask(
    endpoint: TokenEndpoint, connect_timeout_ms: int, read_timeout_ms: int
) -> tuple[str, float | None]:
    """A token, and its lifetime in seconds if the endpoint states it.

    AuthenticationFailed names the problem; EndpointBusy is raised for a problem that may be
    temporary.
    """
    parts = urlsplit(endpoint.url)
    if parts.scheme == "file":
        return _from_file(unquote(parts.path)), None
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    timeout_s = connect_timeout_ms / 1000
    connection = (
        http.client.HTTPSConnection(host, port, timeout=timeout_s, context=_context(endpoint))
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=timeout_s)
    )
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    try:
        with closing(connection):
            with Deadline(timeout_s) as deadline:
                deadline.watched(connection).connect()
            with Deadline(read_timeout_ms / 1000) as deadline:
                deadline.watch(connection.sock)
                connection.sock.settimeout(read_timeout_ms / 1000)
                connection.request("POST", target, _body(endpoint), _headers(endpoint))
                answer = connection.getresponse()
                data = answer.read(_ANSWER_BYTES_MAX + 1)
    except TimeoutError:
        raise EndpointBusy(f"{endpoint.shown} does not answer in time") from None
    except (OSError, http.client.HTTPException) as error:
        raise AuthenticationFailed(
            f"no token from {endpoint.shown}: {_reason(error, host)}"
        ) from None
    return _token_in(endpoint, answer.status, answer.reason, data)


def _from_file(path: str) -> str:
    try:
        return read(path).decode("utf-8", "replace").strip()
    except TlsError as error:
        raise AuthenticationFailed(f"no token: {error}") from None


def _context(endpoint: TokenEndpoint) -> ssl.SSLContext:
    if endpoint.tls is None:
        return ssl.create_default_context()
    try:
        return client_context(endpoint.tls)
    except TlsError as error:
        raise AuthenticationFailed(f"no token from {endpoint.shown}: {error}") from None


def _body(endpoint: TokenEndpoint) -> bytes:
    fields = {"grant_type": "client_credentials"}
    if endpoint.scope:
        fields["scope"] = endpoint.scope
    return urlencode(fields).encode()


def _headers(endpoint: TokenEndpoint) -> dict[str, str]:
    name, secret = endpoint.client_id, endpoint.client_secret
    if endpoint.header_urlencode:
        name, secret = quote_plus(name), quote_plus(secret)
    basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {basic}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _reason(error: Exception, host: str) -> str:
    if isinstance(error, ssl.SSLError):
        return at_client(error, host)
    if isinstance(error, socket.gaierror):
        return f"the name {host} cannot be resolved ({error.strerror})"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return f"it does not speak HTTP ({type(error).__name__})"


def _token_in(
    endpoint: TokenEndpoint, status: int, reason: str, data: bytes
) -> tuple[str, float | None]:
    where = endpoint.shown
    reason = visible(reason[:_SAID_MAX])
    said = _json(data)
    if status in _BUSY:
        raise EndpointBusy(f"{where} answers {status} {reason}".rstrip())
    if status != http.HTTPStatus.OK:
        details = [said.get(name) for name in ("error", "error_description")]
        words = ": ".join(
            visible(text[:_SAID_MAX]) for text in details if isinstance(text, str) and text
        )
        raise AuthenticationFailed(
            f"no token: {where} answers {status} {reason}{f' ({words})' if words else ''}; check the"
            " address, and the id and the secret of the client"
        )
    if len(data) > _ANSWER_BYTES_MAX:
        raise AuthenticationFailed(f"no token: {where} answers more than {_ANSWER_BYTES_MAX} bytes")
    token = said.get("access_token")
    if not isinstance(token, str) or not token:
        raise AuthenticationFailed(f"no token: the answer of {where} has no access_token")
    return token, _seconds(said.get("expires_in"))


def _seconds(lasts: object) -> float | None:
    """A lifetime as the endpoint says it; None if it says no finite number."""
    if not isinstance(lasts, int | float) or isinstance(lasts, bool):
        return None
    try:
        return float(lasts) if math.isfinite(lasts) else None
    except OverflowError:
        return None


def _json(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
