"""The dispatcher: from the bytes of a request to the bytes of its response.

It checks key, version, size and form, calls the handler and encodes its reply (rules N-02, N-06,
N-07, N-08).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import structlog

from odradek_broker import handlers
from odradek_broker.deferred import Deferred
from odradek_broker.handlers import api_versions
from odradek_broker.node import Node
from odradek_broker.request import (
    ANONYMOUS,
    AnswerTooLarge,
    Authentication,
    CloseConnection,
    EncodedReply,
    HandlerReply,
    NoResponse,
    RequestContext,
    UnservedKey,
)
from odradek_broker.server import too_large
from odradek_broker.server.one_batch import UNUSUAL, OneBatchRoad
from odradek_broker.server.one_fetch import OneFetchRoad
from odradek_protocol import codec, frames
from odradek_protocol.keys import APIS, Api, ApiKey
from odradek_protocol.message import Message
from odradek_protocol.primitives import DecodeError

log = structlog.get_logger("odradek.dispatch")

#: Elements of all arrays of one request: the work that every other connection waits for (D11).
REQUEST_ELEMENTS_MAX = 100_000

#: Requests that carry records have limits of their own (F-05, F-06), and are too large to be kept.
_RECORDS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})

Handler = Callable[[Node, RequestContext, Message], HandlerReply | Deferred[HandlerReply]]

#: By the name of the schema: `handlers/list_offsets.py` answers what `schemas/list_offsets.py`
#: asks.
HANDLERS: dict[ApiKey, Handler] = {
    key: import_module(f"{handlers.__name__}.{key.name.lower()}").handle for key in APIS
}


#: How a Produce request begins.
_PRODUCE = ApiKey.PRODUCE.to_bytes(2, "big")
_FETCH = ApiKey.FETCH.to_bytes(2, "big")
#: Requests that no quota of time counts, as in Kafka.
_EXEMPT = frozenset({ApiKey.WRITE_TXN_MARKERS})
_KNOWN_KEYS = frozenset(map(int, ApiKey))
#: A percentage of a second, in microseconds.
_PERCENT_US = 10_000


@dataclass(slots=True)
class Peer:
    """The other end of a connection, and the name of the listener that it came to.

    `user`: who it is; ANONYMOUS where nobody has to say. `authentication`: while it says so.
    `throttle_ms`: how long it has to wait; who lets it wait takes it.
    """

    host: str
    connection_id: int
    listener: str = ""
    user: str = ANONYMOUS
    throttle_ms: int = 0
    authentication: Authentication | None = None


@dataclass(slots=True)
class _InFlight:
    """A request in flight. `request` is None where the response may have any size.

    `handled_us`: what its handler took, where a quota wants to know.
    """

    api: Api
    correlation_id: int
    started_us: int
    handled_us: int
    peer: Peer
    context: RequestContext
    request: Message | None

    @property
    def version(self) -> int:
        return self.context.api_version


@lru_cache(maxsize=512)
def _carries_throttle_time(response: Any, version: int) -> bool:
    """Whether a response says how long its client has to wait."""
    return any(
        spec.name == "throttle_time_ms" and version in spec.versions for spec in response.fields
    )


def _unserved(key: int) -> str:
    """The log's words about a key that is not served."""
    if key not in _KNOWN_KEYS:
        return f"request of unknown key {key}"
    name = "".join(map(str.capitalize, ApiKey(key).name.split("_")))
    return f"request of {name} (key {key}), which is not served"


class Dispatcher:
    """Answers requests of all connections. `control_bytes_max`: of a request other than Produce.

    `handlers`: others only in a broker that was started for tests (`fault_control.py`).
    """

    def __init__(
        self,
        node: Node,
        control_bytes_max: int,
        handlers: Mapping[ApiKey, Handler] = HANDLERS,
    ) -> None:
        self._node = node
        self._quotas = node.quotas
        self._handlers = handlers
        self._control_bytes_max = control_bytes_max
        # Handlers that carry out faults see every request.
        self._one_batch = self._one_fetch = None
        if handlers[ApiKey.PRODUCE] is HANDLERS[ApiKey.PRODUCE]:
            self._one_batch = OneBatchRoad(node)
        if handlers[ApiKey.FETCH] is HANDLERS[ApiKey.FETCH]:
            self._one_fetch = OneFetchRoad(node, control_bytes_max, self._ended)

    def answer(self, peer: Peer, frame: memoryview) -> EncodedReply | Deferred[EncodedReply]:
        """The reply to one request, now or later. CloseConnection if the only reply is to hang
        up."""
        if self._one_batch is not None and frame[:2] == _PRODUCE:
            reply = self._one_batch.answer(frame)
            if reply is not UNUSUAL:
                return reply
        if self._one_fetch is not None and frame[:2] == _FETCH:
            reply = self._one_fetch.answer(peer, frame)
            if reply is not UNUSUAL:
                return reply
        return self._answer(peer, frame)

    def _ended(
        self,
        peer: Peer,
        frame: memoryview,
        started_us: int,
        read: Callable[[RequestContext], HandlerReply],
    ) -> EncodedReply:
        """The end of a request on the ordinary road that had begun on a short one."""
        header, _ = frames.decode_request_header(frame)
        api = APIS[ApiKey(header.api_key)]
        context = self._context(peer, header, api)
        in_flight = _InFlight(api, header.correlation_id, started_us, 0, peer, context, None)
        return self._encoded(in_flight, read(context))

    def _answer(self, peer: Peer, frame: memoryview) -> EncodedReply | Deferred[EncodedReply]:
        """`answer` of any request."""
        try:
            header, position = frames.decode_request_header(frame)
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        key, version = header.api_key, header.api_version
        api = APIS.get(key)  # type: ignore[call-overload]
        if api is None:
            raise UnservedKey(_unserved(key))
        context = self._context(peer, header, api)
        if version not in api.versions:
            return self._unsupported(api, context, header.correlation_id)
        if key != ApiKey.PRODUCE and len(frame) > self._control_bytes_max:
            raise CloseConnection(
                f"{api.name} request of {len(frame)} bytes; at most {self._control_bytes_max}"
                " are taken (max.control.request.bytes)"
            )
        try:
            if version in api.request.flexible:
                position = frames.skip_tags(frame, position)
            request = codec.decode(api.request, version, frame, position, REQUEST_ELEMENTS_MAX)
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        context.size_bytes = len(frame) - position
        started_us = self._node.metrics.now_us()
        reply = self._handlers[api.key](self._node, context, request)
        handled_us, finish = 0, self._encoded
        if self._quotas.request is not None:
            handled_us, finish = self._node.metrics.now_us() - started_us, self._timed
        if context.throttle_ms:
            # At once: requests behind this one may be here already, and its answer be long in
            # coming.
            peer.throttle_ms = max(peer.throttle_ms, context.throttle_ms)
        in_flight = _InFlight(
            api,
            header.correlation_id,
            started_us,
            handled_us,
            peer,
            context,
            None if key in _RECORDS else request,
        )
        if not isinstance(reply, Deferred):
            return finish(in_flight, reply)
        if reply.done:
            return finish(in_flight, reply.result())
        encoded: Deferred[EncodedReply] = Deferred()
        encoded.on_abandon = reply.abandon
        reply.then(lambda value: encoded.resolve(finish(in_flight, value)))
        return encoded

    def _context(self, peer: Peer, header: frames.RequestHeader, api: Api) -> RequestContext:
        return RequestContext(
            header.api_version,
            header.client_id,
            peer.host,
            peer.connection_id,
            user=peer.user,
            listener=peer.listener,
            authentication=peer.authentication,
            api_name=api.name,
        )

    def _timed(self, in_flight: _InFlight, reply: HandlerReply) -> EncodedReply:
        """`_encoded` of a request whose time counts, if its client has a quota of it (Q-09)."""
        quota = self._quotas.request
        if quota is None or in_flight.api.key in _EXEMPT or not isinstance(reply, Message):
            return self._encoded(in_flight, reply)
        quota.record(in_flight.context, in_flight.handled_us / _PERCENT_US)
        began_us = self._node.metrics.now_us()
        encoded = self._encoded(in_flight, reply)
        took_us = self._node.metrics.now_us() - began_us
        quota.record_only(in_flight.context, took_us / _PERCENT_US)
        return encoded

    def _throttle(self, in_flight: _InFlight, reply: HandlerReply) -> None:
        """Tell the client how long it has to wait, and let its connection wait (KIP-219, N-11)."""
        throttle_ms = in_flight.context.throttle_ms
        peer = in_flight.peer
        peer.throttle_ms = max(peer.throttle_ms, throttle_ms)
        self._node.metrics.throttled(in_flight.context.throttled_by, throttle_ms)
        kind: Any = type(reply)
        if isinstance(reply, Message) and _carries_throttle_time(kind, in_flight.version):
            reply.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]

    def _encoded(self, in_flight: _InFlight, reply: HandlerReply) -> EncodedReply:
        if in_flight.context.throttle_ms:
            self._throttle(in_flight, reply)
        api, version = in_flight.api, in_flight.version
        self._node.metrics.request_finished(api, version, in_flight.started_us, reply)
        if not isinstance(reply, Message):
            return self._without_response(in_flight, reply)
        if in_flight.request is None:
            return frames.encode_response(api, version, in_flight.correlation_id, reply)
        bytes_max = self._node.config.fetch_max_bytes
        try:
            return frames.encode_response(api, version, in_flight.correlation_id, reply, bytes_max)
        except frames.ResponseTooLarge as problem:
            return self._refused(in_flight, in_flight.request, str(problem.size_bytes))

    def _without_response(
        self, in_flight: _InFlight, reply: CloseConnection | AnswerTooLarge | NoResponse
    ) -> EncodedReply:
        if isinstance(reply, AnswerTooLarge):
            assert in_flight.request is not None, "what carries records is cut to its size"
            return self._refused(in_flight, in_flight.request, f"more than {reply.least_bytes}")
        return reply if isinstance(reply, CloseConnection) else None

    def _refused(self, in_flight: _InFlight, request: Message, size: str) -> EncodedReply:
        bytes_max = self._node.config.fetch_max_bytes
        text = (
            f"the answer to this {in_flight.api.name} request would have {size} bytes; at most"
            f" {bytes_max} are sent (fetch.max.bytes): ask for fewer at a time"
        )
        try:
            reply = too_large.refusal(in_flight.api, in_flight.version, request, text)
        except CloseConnection as closing:
            return closing
        log.warning("refused a request", peer=in_flight.peer.host, reason=text)
        return frames.encode_response(
            in_flight.api, in_flight.version, in_flight.correlation_id, reply
        )

    def _unsupported(self, api: Api, context: RequestContext, correlation_id: int) -> EncodedReply:
        if api.key is not ApiKey.API_VERSIONS:
            raise CloseConnection(
                f"{api.name} request of unsupported version {context.api_version}"
            )
        response: Message = api_versions.handle_unsupported_version(self._node, context)
        return frames.encode_response(api, 0, correlation_id, response)
