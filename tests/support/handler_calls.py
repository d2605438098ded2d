"""Calls of the broker's handlers with encoded requests, without a socket."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from node_world import SoonScheduler
from odradek_broker.deferred import Deferred
from odradek_broker.request import RequestContext
from odradek_broker.server.dispatch import HANDLERS
from odradek_broker.slices import Slices, Work
from odradek_protocol import codec
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message

T = TypeVar("T")


def context(version: int) -> RequestContext:
    """The context of a request of this version."""
    return RequestContext(version, "client", "/127.0.0.1", 1)


def send(node: Any, request: Message, version: int) -> Any:
    """Encode the request, decode it again and call its handler. Returns a response, or a Deferred
    of a response."""
    api = api_of(request)
    arrived: Any = codec.decode(api.request, version, codec.encode_bytes(request, version))
    return HANDLERS[api.key](node, context(version), arrived)


def handled(answer: Any, turns: SoonScheduler | None = None) -> Any:
    """What a handler answers that is a coroutine: a response, or a Deferred of it."""
    return Slices(lambda: 0, turns or SoonScheduler()).run(answer)


def finished(steps: Generator[object, None, T]) -> T:
    """What a generator returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result


def received(request: Message, version: int, answer: Any) -> Any:
    """The response of a handler, decoded as by a client; fails if there is no response yet."""
    response = api_of(request).response
    if isinstance(answer, Deferred):
        answer = answer.result()
    assert isinstance(answer, response)
    return codec.decode(response, version, codec.encode_bytes(answer, version))


def ask(node: Any, request: Message, version: int) -> Any:
    """Encode a request, call the handler, let it take its turns, and decode its response."""
    answer = send(node, request, version)
    if isinstance(answer, Work):
        turns = node.turns if hasattr(node, "turns") else node.scheduler
        while not answer.done and turns.turn():
            pass
    return received(request, version, answer)
