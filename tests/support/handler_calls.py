"""Calls of the broker's handlers with encoded requests, without a socket."""

from __future__ import annotations

from typing import Any

from odradek_broker.deferred import Deferred
from odradek_broker.request import RequestContext
from odradek_broker.server.dispatch import HANDLERS
from odradek_protocol import codec
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message


def context(version: int) -> RequestContext:
    """The context of a request of this version."""
    return RequestContext(version, "client", "/127.0.0.1", 1)


def send(node: Any, request: Message, version: int) -> Any:
    """Encode the request, decode it again and call its handler. Returns a response, or a Deferred
    of a response."""
    api = api_of(request)
    arrived: Any = codec.decode(api.request, version, codec.encode_bytes(request, version))
    return HANDLERS[api.key](node, context(version), arrived)


def received(request: Message, version: int, answer: Any) -> Any:
    """The response of a handler, decoded as by a client; fails if there is no response yet."""
    response = api_of(request).response
    if isinstance(answer, Deferred):
        answer = answer.result()
    assert isinstance(answer, response)
    return codec.decode(response, version, codec.encode_bytes(answer, version))


def ask(node: Any, request: Message, version: int) -> Any:
    """Encode a request, call the handler, and decode its response."""
    return received(request, version, send(node, request, version))
