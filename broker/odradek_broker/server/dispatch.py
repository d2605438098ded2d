"""The dispatcher, which makes the bytes of a response from the bytes of a request.

The dispatcher checks key, version, size and form, calls the handler and encodes its reply (rules
N-02, N-06, N-07, N-08). Handlers that may take long are coroutines; their requests are decoded,
handled and encoded in slices of the loop's time (N-57).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial, wraps
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Protocol

from odradek_broker import handlers
from odradek_broker.deferred import Deferred
from odradek_broker.explain.history import TEXT_MAX
from odradek_broker.handlers import api_versions, fetch, produce
from odradek_broker.node import Node
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.request import (
    AnswerTooLarge,
    CloseConnection,
    EncodedReply,
    HandlerReply,
    Peer,
    RequestContext,
    UnservedKey,
)
from odradek_broker.server import too_large
from odradek_broker.slices import Work, in_pieces, let_go, with_pauses
from odradek_protocol import codec, frames
from odradek_protocol.codec import Buffer
from odradek_protocol.fetch_frames import read_one_fetch
from odradek_protocol.keys import APIS, Api, ApiKey
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.message import Message, Struct
from odradek_protocol.primitives import DecodeError
from odradek_protocol.produce_frames import read_one_batch
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.settings import INT32_MAX

#: The maximum number of elements in all arrays of a request together (D11).
REQUEST_ELEMENTS_MAX = 100_000
#: A request with more elements is decoded in slices.
_ELEMENTS_AT_ONCE = 256

#: APIs whose responses have limits of their own (F-05, F-06), and whose requests are too large to
#: be kept until they are answered.
_RECORDS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
#: APIs whose requests carry batches. Such a request may be as large as the largest frame (D11).
_APPENDS = frozenset({ApiKey.PRODUCE, ApiKey.APPEND_MIRROR_RECORDS})

Handler = Callable[[Node, RequestContext, Message], HandlerReply | Deferred[HandlerReply]]
SlicedHandler = Callable[[Node, RequestContext, Message], Coroutine[Any, Any, HandlerReply]]
#: The APIs whose handlers are coroutines, of those that were imported.
_SLICED: set[ApiKey] = set()


def _imported_at_first_request(key: ApiKey) -> Handler:
    """The handler of an API whose module is imported by its first request."""

    def handle(
        node: Node, context: RequestContext, request: Message
    ) -> HandlerReply | Deferred[HandlerReply]:
        return import_handler(key)(node, context, request)

    return handle


def import_handler(key: ApiKey) -> Handler:
    """Import the handler of an API: `handlers/list_offsets.py` for `schemas/list_offsets.py`."""
    module = import_module(f"{handlers.__name__}.{key.name.lower()}")
    HANDLERS[key] = module.handle
    if iscoroutinefunction(module.handle):
        HANDLERS[key] = _in_slices(module.handle)
        _SLICED.add(key)
    return HANDLERS[key]


def _in_slices(handle: SlicedHandler) -> Handler:
    """The handler that a coroutine function makes."""

    @wraps(handle)
    def handler(
        node: Node, context: RequestContext, request: Message
    ) -> HandlerReply | Deferred[HandlerReply]:
        return node.slices.run(handle(node, context, request), context)

    return handler


#: The handler of each API. Most clients use a dozen of them, and importing all would be a tenth of
#: the time in which a broker starts.
HANDLERS: dict[ApiKey, Handler] = {key: _imported_at_first_request(key) for key in APIS}
for _imported in (ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.PRODUCE):
    import_handler(_imported)


class CommonRequest(Protocol):
    """A request in the form that nearly all requests of its API have. A second, faster codec reads
    this form.
    """

    @property
    def version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...


#: The reply of a handler. A list of buffers is the frame of a response that the handler has
#: encoded.
Reply = HandlerReply | list[Buffer]


class CommonShape(NamedTuple):
    """The common form of an API's requests. `read` decodes such a request, or returns None if the
    request needs the generated codec. `handle`: the handler. `bytes_max`: the largest size of a
    request that `read` gets."""

    api: Api
    read: Callable[[memoryview], CommonRequest | None]
    handle: Callable[[Node, RequestContext, Any], Reply | Deferred[Any]]
    bytes_max: int = INT32_MAX


#: The common forms by the lower byte of the API key; `read` checks both bytes.
_COMMON_SHAPES = {
    int(shape.api.key): shape
    for shape in (
        CommonShape(APIS[ApiKey.PRODUCE], read_one_batch, produce.handle_one),
        CommonShape(APIS[ApiKey.FETCH], read_one_fetch, fetch.handle),
    )
}
#: APIs that are exempt from the quota of request time. Like Kafka, this broker exempts requests
#: between brokers, and also requests of a mirror, which replicates as a follower does.
_EXEMPT = frozenset({ApiKey.WRITE_TXN_MARKERS, ApiKey.APPEND_MIRROR_RECORDS})
_KNOWN_KEYS = frozenset(map(int, ApiKey))
#: The microseconds in one percent of a second; quotas of request time are in percent.
_PERCENT_US = 10_000


@dataclass(slots=True)
class _InFlight:
    """A request in flight. `request` is kept to refuse a response that is too large; it is None for
    Produce and Fetch, whose responses have limits of their own.

    `handled_us`: the handler's processor time, if a quota counts it. `sliced`: true if the response
    may be long.
    """

    api: Api
    correlation_id: int
    started_us: int
    handled_us: int
    peer: Peer
    context: RequestContext
    request: Message | None
    sliced: bool = False

    @property
    def version(self) -> int:
        return self.context.api_version


@lru_cache(maxsize=512)
def _carries_throttle_time(response: Any, version: int) -> bool:
    return any(
        spec.name == "throttle_time_ms" and version in spec.versions for spec in response.fields
    )


def _unserved(key: int) -> str:
    """The text for the log about an API key that is not served."""
    if key not in _KNOWN_KEYS:
        return f"request of unknown key {key}"
    name = "".join(map(str.capitalize, ApiKey(key).name.split("_")))
    return f"request of {name} (key {key}), which is not served"


async def elements_of(message: object) -> list[Any]:
    """The elements of all lists of a message, so that they can be freed some at a time, from the
    end, when the message is not used any more. The inner ones are first: an element does not free
    what it has."""
    found: list[Any] = []
    level = [message] if isinstance(message, Message) else []
    while level:
        elements: list[Any] = []
        structs: list[Any] = []
        async for some in in_pieces(level):
            for struct in some:
                for spec in struct.fields:
                    each = getattr(struct, spec.name)
                    if isinstance(each, list) and each:
                        elements += each
                        structs += each if isinstance(each[0], Struct) else ()
        found, level = elements + found, structs
    return found


def _resolve(
    peer_log: PeerLog,
    encoded: Deferred[EncodedReply],
    in_flight: _InFlight,
    encode: Callable[[_InFlight, Any], EncodedReply],
    reply: Any,
) -> None:
    answer: EncodedReply
    try:
        answer = encode(in_flight, reply)
    except Exception as error:  # noqa: BLE001 - logged, and the coordinator that has resolved this
        # reply must go on with its other replies.
        peer_log.failed(in_flight.peer.host, in_flight.api.name, error)
        answer = CloseConnection("a request failed in the broker; its log has the cause")
    encoded.resolve(answer)


class Dispatcher:
    """Answers the requests of all connections.

    `control_bytes_max`: the largest size of a request without batches. `handlers`: the handlers; a
    broker that was started for tests has its own (`under_test.py`).
    """

    def __init__(
        self,
        node: Node,
        control_bytes_max: int,
        handlers: Mapping[ApiKey, Handler] = HANDLERS,
    ) -> None:
        self._node = node
        self._quotas = node.quotas
        self._metrics = node.metrics
        self._served = node.served
        self._handlers = handlers
        self._control_bytes_max = control_bytes_max
        # Common forms are not used with handlers that inject faults, because these handlers take
        # only requests of the generated codec. Common forms are not used either if the emulated
        # broker has fewer versions, because `read` accepts all versions. A Fetch has no batches, so
        # the smaller size limit applies to it.
        self._common_shapes = {
            key: shape if shape.api.key in _APPENDS else shape._replace(bytes_max=control_bytes_max)
            for key, shape in _COMMON_SHAPES.items()
            if handlers[shape.api.key] is HANDLERS[shape.api.key]
            and node.served[shape.api.key].versions == shape.api.versions
        }

    def answer(self, peer: Peer, frame: memoryview) -> EncodedReply | Deferred[EncodedReply]:
        """The reply to one request, now or later. Raises CloseConnection if the connection is to be
        closed immediately."""
        frame_bytes = len(frame)
        shape = self._common_shapes.get(frame[1]) if frame_bytes > 1 else None
        # A request quota may set a throttle time after the handler has run, but a handler of a
        # common form has already encoded the response by then.
        if shape is not None and frame_bytes <= shape.bytes_max and self._quotas.request is None:
            common = shape.read(frame)
            if common is not None:
                return self._answer_common(shape, peer, frame_bytes, common)
        return self._answer(peer, frame)

    def _answer_common(
        self, shape: CommonShape, peer: Peer, frame_bytes: int, common: CommonRequest
    ) -> EncodedReply | Deferred[EncodedReply]:
        api, version, client_id = shape.api, common.version, common.client_id
        context = self._context(peer, api, version, client_id)
        self._count(peer, api, client_id)
        if self._quotas.produce is not None:
            header_bytes = frames.request_header_bytes(client_id, version in api.request.flexible)
            context.size_bytes = frame_bytes - header_bytes
        metrics = self._metrics
        started_us = metrics.now_us()
        reply = shape.handle(self._node, context, common)
        if isinstance(reply, list):
            metrics.request_counted(api.name, version, started_us)
            return reply
        in_flight = _InFlight(api, common.correlation_id, started_us, 0, peer, context, None)
        return self._finish(in_flight, reply)

    def _answer(self, peer: Peer, frame: memoryview) -> EncodedReply | Deferred[EncodedReply]:
        """Answer any request by the generated codec."""
        try:
            header, position = frames.decode_request_header(frame)
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        key, version = header.api_key, header.api_version
        served = self._served.get(key)
        if served is None:
            raise UnservedKey(_unserved(key))
        api = served.api
        context = self._context(peer, api, version, header.client_id)
        if version not in served.versions:
            return self._unsupported(api, context, header.correlation_id)
        if len(frame) > self._control_bytes_max and key not in _APPENDS:
            raise CloseConnection(
                f"{api.name} request of {len(frame)} bytes; at most {self._control_bytes_max}"
                " are taken (max.control.request.bytes)"
            )
        try:
            if version in api.request.flexible:
                position = frames.skip_tags(frame, position)
            context.size_bytes = len(frame) - position
            request = codec.decode(api.request, version, frame, position, _ELEMENTS_AT_ONCE)
        except codec.TooManyElements:
            return self._node.slices.run(
                self._answer_in_slices(peer, api, header, context, frame, position), context
            )
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        return self._handle(peer, api, header, context, request)

    async def _answer_in_slices(
        self,
        peer: Peer,
        api: Api,
        header: frames.RequestHeader,
        context: RequestContext,
        frame: memoryview,
        position: int,
    ) -> EncodedReply:
        version = context.api_version
        try:
            request = await with_pauses(
                codec.decode_with_pauses(
                    api.request, version, frame, position, REQUEST_ELEMENTS_MAX
                )
            )
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        reply = self._handle(peer, api, header, context, request, many=True)
        answer = await reply if isinstance(reply, Deferred) else reply
        elements = await elements_of(request)
        del request
        await let_go(elements)
        return answer

    def _handle(
        self,
        peer: Peer,
        api: Api,
        header: frames.RequestHeader,
        context: RequestContext,
        request: Message,
        *,
        many: bool = False,
    ) -> EncodedReply | Deferred[EncodedReply]:
        """Have the request handled. `many`: true if it has many elements."""
        if isinstance(request, ApiVersionsRequest):
            peer.software_name = request.client_software_name[:TEXT_MAX]
            peer.software_version = request.client_software_version[:TEXT_MAX]
        self._count(peer, api, header.client_id)
        started_us = self._node.metrics.now_us()
        reply = self._handlers[api.key](self._node, context, request)
        in_flight = _InFlight(
            api,
            header.correlation_id,
            started_us,
            0,
            peer,
            context,
            None if api.key in _RECORDS else request,
            many or api.key in _SLICED,
        )
        return self._finish(in_flight, reply)

    def _finish(
        self, in_flight: _InFlight, reply: Reply | Deferred[Any]
    ) -> EncodedReply | Deferred[EncodedReply]:
        """Encode the handler's reply, immediately or when it is complete."""
        encode = self._encoded
        if self._quotas.request is not None:
            in_flight.handled_us = self._node.metrics.now_us() - in_flight.started_us
            encode = self._timed
        throttle_ms = in_flight.context.throttle_ms
        if throttle_ms:
            # The throttle time takes effect before the response is complete, because the response
            # may take long, and the client may send more requests before the response arrives.
            in_flight.peer.throttle_ms = max(in_flight.peer.throttle_ms, throttle_ms)
        if in_flight.sliced or isinstance(reply, Work):
            return self._node.slices.run(
                self._finish_in_slices(in_flight, reply), in_flight.context
            )
        if not isinstance(reply, Deferred):
            return encode(in_flight, reply)
        if reply.done:
            return encode(in_flight, reply.result())
        if in_flight.request is None:
            return reply.transform(partial(encode, in_flight))
        encoded: Deferred[EncodedReply] = Deferred()
        encoded.on_abandon = reply.abandon
        reply.then(partial(_resolve, self._node.peer_log, encoded, in_flight, encode))
        return encoded

    def _count(self, peer: Peer, api: Api, client_id: str | None) -> None:
        peer.client_id = client_id
        peer.api_name = api.name
        peer.requests += 1
        # Recorded only after authentication, because events name the user, and unknown clients must
        # not fill the history.
        if not peer.recorded and peer.authentication is None:
            peer.recorded = True
            self._node.connections.first_request(peer)

    def _context(self, peer: Peer, api: Api, version: int, client_id: str | None) -> RequestContext:
        # Arguments by position, because keyword arguments take 50 % longer, in every request.
        return RequestContext(
            version,
            client_id,
            peer.host,
            peer.connection_id,
            0,
            peer.user,
            peer.listener,
            0,
            "",
            peer.authentication,
            api.name,
            peer.by_token,
        )

    def _timed(self, in_flight: _InFlight, reply: Reply) -> EncodedReply:
        """Like `_encoded`, and charge the processor time of the request to the client's quota of
        request time, if there is one (Q-09)."""
        quota = self._quotas.request
        if quota is None or in_flight.api.key in _EXEMPT or not isinstance(reply, Message):
            return self._encoded(in_flight, reply)
        quota.record(in_flight.context, in_flight.handled_us / _PERCENT_US)
        began_us = self._node.metrics.now_us()
        encoded = self._encoded(in_flight, reply)
        took_us = self._node.metrics.now_us() - began_us
        quota.record_only(in_flight.context, took_us / _PERCENT_US)
        return encoded

    async def _finish_in_slices(
        self, in_flight: _InFlight, reply: Reply | Deferred[Any]
    ) -> EncodedReply:
        """Encode a reply that may be long, when it is complete."""
        if isinstance(reply, Work):
            arrived: Reply = await reply
            in_flight.handled_us = reply.busy_us
        else:
            arrived = await reply if isinstance(reply, Deferred) else reply
        quota = self._quotas.request
        if quota is None or in_flight.api.key in _EXEMPT or not isinstance(arrived, Message):
            encoded = await self._encoded_in_slices(in_flight, arrived)
            elements = await elements_of(arrived)
            del arrived, reply
            await let_go(elements)
            return encoded
        quota.record(in_flight.context, in_flight.handled_us / _PERCENT_US)
        began_us = self._node.slices.busy_us()
        encoded = await self._encoded_in_slices(in_flight, arrived)
        took_us = self._node.slices.busy_us() - began_us
        quota.record_only(in_flight.context, took_us / _PERCENT_US)
        return encoded

    async def _encoded_in_slices(self, in_flight: _InFlight, reply: Reply) -> EncodedReply:
        api, version, metrics = in_flight.api, in_flight.version, self._node.metrics
        if not isinstance(reply, Message | AnswerTooLarge):
            return self._encoded(in_flight, reply)
        if in_flight.context.throttle_ms:
            self._throttle(in_flight, reply)
        metrics.request_counted(api.name, version, in_flight.started_us)
        if isinstance(reply, AnswerTooLarge):
            return await self._refused_in_slices(in_flight, reply.least_bytes)
        await with_pauses(metrics.count_errors(api.name, reply))
        bytes_max = INT32_MAX if in_flight.request is None else self._node.config.fetch_max_bytes
        steps = frames.encode_response_with_pauses(
            api, version, in_flight.correlation_id, reply, bytes_max
        )
        try:
            return await with_pauses(steps)
        except frames.ResponseTooLarge as problem:
            return await self._refused_in_slices(in_flight, problem.size_bytes)

    async def _refused_in_slices(self, in_flight: _InFlight, least_bytes: int) -> EncodedReply:
        """The refusal of a request whose response would have at least so many bytes."""
        assert in_flight.request is not None, "what carries records is cut to its size"
        text = self._too_large(in_flight, f"at least {least_bytes}")
        refusal = await too_large.refusal_in_slices(
            in_flight.api, in_flight.version, in_flight.request, text
        )
        self._node.peer_log.warn("refused a request", in_flight.peer.host, text)
        steps = frames.encode_response_with_pauses(
            in_flight.api, in_flight.version, in_flight.correlation_id, refusal, INT32_MAX
        )
        return await with_pauses(steps)

    def _throttle(self, in_flight: _InFlight, reply: HandlerReply) -> None:
        """Set the throttle time in the response, and mute the connection for as long (KIP-219,
        N-11)."""
        throttle_ms = in_flight.context.throttle_ms
        peer = in_flight.peer
        peer.throttle_ms = max(peer.throttle_ms, throttle_ms)
        self._node.metrics.throttled(in_flight.context.throttled_by, throttle_ms)
        peer.throttled_by = in_flight.context.throttled_by
        peer.throttled_until_ms = self._node.clock.monotonic_ms() + throttle_ms
        kind: Any = type(reply)
        if isinstance(reply, Message) and _carries_throttle_time(kind, in_flight.version):
            reply.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]

    def _encoded(self, in_flight: _InFlight, reply: Reply) -> EncodedReply:
        api, version = in_flight.api, in_flight.version
        if isinstance(reply, list):
            self._node.metrics.request_counted(api.name, version, in_flight.started_us)
            return reply
        if in_flight.context.throttle_ms:
            self._throttle(in_flight, reply)
        self._node.metrics.request_finished(api, version, in_flight.started_us, reply)
        if not isinstance(reply, Message):
            return reply if isinstance(reply, CloseConnection) else None
        if in_flight.request is None:
            return frames.encode_response(api, version, in_flight.correlation_id, reply)
        bytes_max = self._node.config.fetch_max_bytes
        try:
            return frames.encode_response(api, version, in_flight.correlation_id, reply, bytes_max)
        except frames.ResponseTooLarge as problem:
            return self._refused(in_flight, problem.size_bytes)

    def _too_large(self, in_flight: _InFlight, size: str) -> str:
        """The reason for the refusal of a request."""
        bytes_max = self._node.config.fetch_max_bytes
        return (
            f"the answer to this {in_flight.api.name} request would have {size} bytes; at most"
            f" {bytes_max} are sent (fetch.max.bytes): ask for fewer at a time"
        )

    def _refused(self, in_flight: _InFlight, size_bytes: int) -> EncodedReply:
        text = self._too_large(in_flight, str(size_bytes))
        try:
            reply = too_large.refusal(in_flight.api, in_flight.version, text)
        except CloseConnection as closing:
            return closing
        self._node.peer_log.warn("refused a request", in_flight.peer.host, text)
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
