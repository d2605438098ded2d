"""A connection to a broker: handshake, the window of unanswered requests, timeouts.

A broken connection is replaced, never reopened. Requests wait in one queue, in order, while the
connection is being opened, while the window is full, while the broker throttles (N-11) or the send
buffer is full; so requests are sent in the order of `submit`.

Answers come in the order of the requests (N-03). A request that is not answered in time closes the
connection, because later requests could only be answered after it (N-16). The connection counts as
late long before this timeout. The owner is then called repeatedly, so that it can request metadata
from other brokers.

With SASL the connection is ready once the broker has accepted the client. Before the session of
such a connection ends, the client authenticates again on the same connection (C-73), after all
requests on it are answered and before new requests are written.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal, Protocol

from odradek_client.errors import (
    AuthenticationFailed,
    BadAnswer,
    Closed,
    ConnectionLost,
    OdradekError,
    RequestTimedOut,
    TlsFailed,
    UnsupportedByBroker,
)
from odradek_client.network import mismatches
from odradek_client.network.authentication import authenticate, reauthentication_ms
from odradek_client.network.handshake import (
    Versions,
    negotiate,
    served_versions,
    versions_refused,
)
from odradek_client.network.probe import mechanisms_wanted, speaks_plaintext, speaks_tls
from odradek_client.network.throttle_times import ThrottleTimes
from odradek_client.network.transport import (
    SPEAKS_TLS,
    Transport,
    reason,
)
from odradek_client.sasl.exchange import SaslClient
from odradek_protocol.errors import ErrorCode
from odradek_protocol.frames import (
    decode_correlation_id,
    decode_response,
    encode_request,
    is_unsupported_version,
)
from odradek_protocol.keys import APIS, Api, ApiKey, api_of
from odradek_protocol.message import Message
from odradek_protocol.primitives import DecodeError, WireError
from odradek_protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_protocol.tls.problems import at_client, is_certain

#: The limit of requests that wait to be written; `submit` refuses more.
QUEUE_MAX = 10_000
#: The time after which an answer is late (which is no error), and the interval between later calls
#: of `connection_late`.
LATE_S = 2.0
LATE_AGAIN_S = 0.5
#: The requests that a broker answers only when other members of the group have sent theirs.
_WAIT_FOR_OTHERS = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_CORRELATION_RANGE = 2**31

Channel = Literal["main", "coordinator", "fetch", "metadata"]

#: Returns the client's side of one authentication; the argument is the timeout in ms. Raises
#: AuthenticationFailed if there are no credentials.
Login = Callable[[float], Awaitable[SaslClient]]


#: The errors for which a retry does not help. Callers that wait for the connection get these errors
#: immediately.
_FINAL = (TlsFailed, AuthenticationFailed)


class ConnectionState(Enum):
    """The state of a connection: OPENING -> READY -> CLOSED, or OPENING -> CLOSED."""

    OPENING = auto()
    READY = auto()
    CLOSED = auto()


class _InFlightRequest:
    """A request that is queued or unanswered."""

    __slots__ = (
        "answered",
        "api",
        "correlation_id",
        "deadline",
        "late_at",
        "max_version",
        "request",
        "version",
    )

    def __init__(
        self,
        request: Message,
        api: Api,
        deadline: float,
        answered: asyncio.Future[Any],
        version: int | None = None,
        max_version: int | None = None,
        late_at: float = float("inf"),
    ) -> None:
        self.late_at = late_at
        self.request: Message | None = request
        self.api = api
        self.deadline = deadline
        self.answered = answered
        self.version = version
        self.max_version = max_version
        self.correlation_id = -1


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The settings that all connections of a client share. `tls` is None without TLS, `login`
    without SASL."""

    client_id: str
    max_in_flight: int
    receive_max_bytes: int
    setup_timeout_ms: int
    tls: ssl.SSLContext | None
    login: Login | None


class ConnectionOwner(Protocol):
    """The client as the owner of its connections."""

    random: random.Random
    throttle_times: ThrottleTimes
    #: True once a broker has answered a request, which proves that the listener has the client's
    #: security protocol. Before that, the cause is probed if a connection ends without an answer.
    reached: bool

    def spawn(self, connection: BrokerConnection, work: Coroutine[Any, Any, None]) -> object:
        """Run work for a connection in a task that is awaited on closing. If the work fails, the
        connection is closed."""

    def connection_closed(self, connection: BrokerConnection, reason: str) -> None:
        """Called once, when the connection has ended."""

    def connection_late(self, connection: BrokerConnection) -> None:
        """Called when the connection becomes late, then every LATE_AGAIN_S, and when it is no
        longer late."""


class BrokerConnection:
    """A connection to `host:port`, for one channel of a node. Call `open` once, then `submit`."""

    def __init__(
        self,
        settings: ConnectionSettings,
        owner: ConnectionOwner,
        loop: asyncio.AbstractEventLoop,
        node: tuple[int, Channel],
        host: str,
        port: int,
    ) -> None:
        self._settings = settings
        self._owner = owner
        self._loop = loop
        self.node = node
        self.host = host
        self.port = port
        self.state = ConnectionState.OPENING
        self.versions: Versions = {}
        #: The finalized level of each feature of the cluster, and the epoch of these levels (-1:
        #: unknown).
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self.last_used = loop.time()
        #: True if the cause must be probed when the broker ends the connection without an answer.
        #: The cause may be that only one side uses TLS, or that the listener requires SASL.
        self._curious = not owner.reached
        #: The failed authentication that ended the connection; None if the connection has not
        #: ended, or has ended for another reason.
        self.refusal: AuthenticationFailed | None = None
        self._authenticating = False
        self._session_timer: asyncio.TimerHandle | None = None
        #: The error that ended the connection before it was ready, while `open` probes for the
        #: cause.
        self._ended: ConnectionLost | None = None
        self._late = False
        self._transport: Transport | None = None
        self._attempt: asyncio.Task[Any] | None = None
        self.queued: deque[_InFlightRequest] = deque()
        self.unanswered: deque[_InFlightRequest] = deque()
        self._correlation_id = -1
        self._throttled_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._throttle_timer: asyncio.TimerHandle | None = None
        self.ready: asyncio.Future[None] = loop.create_future()
        # This future may never be awaited, and a failure also calls `connection_closed`.
        self.ready.add_done_callback(_retrieve_exception)
        self._set_timer(loop.time() + LATE_S)  # the opening of the connection may be late, too

    def __repr__(self) -> str:
        return f"<BrokerConnection {self.host}:{self.port} {self.state.name.lower()}>"

    # --- life -------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, with all handshakes. Raises only CancelledError, also when `close` cancels it;
        see `ready` and `connection_closed` for failures."""
        if self.ready.done():
            return  # closed before it began
        self._attempt = asyncio.current_task()
        login, timeout_ms = self._settings.login, self._settings.setup_timeout_ms
        try:
            exchange = None if login is None else await login(timeout_ms)
            async with asyncio.timeout(timeout_ms / 1000):
                self._transport = await Transport.connect(
                    self, self.host, self.port, self._settings.receive_max_bytes, self._settings.tls
                )
                if self.state is ConnectionState.CLOSED:
                    self._transport.close()
                    return
                self.versions = await self._handshake()
                if exchange is not None:
                    await self._authenticate(exchange)
        except TimeoutError:
            silent = "" if self._transport is None else " (it was made, and nobody answered)"
            if self._authenticating:
                silent = (
                    " (the broker does not answer the authentication; it lets wait whose password was"
                    " wrong several times)"
                )
            self._close(f"no connection to {self.host}:{self.port} within {timeout_ms} ms{silent}")
        except OSError as error:
            await self._not_made(error)
        except (OverflowError, UnicodeError) as error:
            self._fail(f"this is no address: {error}")
        except OdradekError as error:
            why = error if self._ended is None else await self._explained(self._ended)
            self._fail(str(why), type(why), why.code)
        else:
            if self.state is ConnectionState.OPENING:
                self.state = ConnectionState.READY
                self._late = False
                self.ready.set_result(None)
                self._pump()

    async def _not_made(self, error: OSError) -> None:
        """The error of a connection that was not opened, or on which TLS failed."""
        if self._settings.tls is None or not isinstance(error, ssl.SSLError | ConnectionResetError):
            self._fail(reason(error))
            return
        certain = is_certain(error)
        text = at_client(error, self.host)
        if not certain and self._curious and await speaks_plaintext(self.host, self.port):
            text, certain = mismatches.speaks_plaintext(sasl=self._settings.login is not None), True
        self._fail(text, TlsFailed if certain else ConnectionLost)

    async def _explained(self, ended: ConnectionLost) -> ConnectionLost:
        """The error of a plaintext connection that ended before any answer of the broker."""
        if await speaks_tls(self.host, self.port):
            return TlsFailed(mismatches.speaks_tls(sasl=self._settings.login is not None))
        return ended

    def _fail(
        self, why: str, kind: type[OdradekError] = ConnectionLost, code: ErrorCode | None = None
    ) -> None:
        text = f"no connection to {self.host}:{self.port}: {why}"
        self._close(text, kind(text, code=code) if kind in _FINAL else None)

    def close(self, reason: str = "the client was closed") -> None:
        """Close. All unanswered requests fail with ConnectionLost, the oldest request first."""
        self._close(reason)

    def _close(self, reason: str, failure: OdradekError | None = None) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        self.state = ConnectionState.CLOSED
        if self._transport is not None:
            self._transport.close()
        elif self._attempt is not None and self._attempt is not asyncio.current_task(self._loop):
            self._attempt.cancel()  # the attempt would open a socket that is not needed any more
        for timer in (self._timer, self._throttle_timer, self._session_timer):
            if timer is not None:
                timer.cancel()
        if isinstance(failure, AuthenticationFailed):
            self.refusal = failure
        if not self.ready.done():
            final = failure if isinstance(failure, _FINAL) else ConnectionLost(reason)
            self.ready.set_exception(type(final)(reason, code=final.code))
        lost = [*self.unanswered, *self.queued]
        self.unanswered.clear()
        self.queued.clear()
        for pending in lost:
            if not pending.answered.done():
                pending.answered.set_exception(failure or ConnectionLost(reason))
        self._owner.connection_closed(self, reason)

    async def _handshake(self) -> Versions:
        answer = await negotiate(self._ask_versions)
        self.features_epoch = answer.finalized_features_epoch
        self.features = {
            feature.name: feature.max_version_level for feature in answer.finalized_features
        }
        return served_versions(answer)

    async def _ask_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        answer: ApiVersionsResponse = await self._ask(request, version)
        return answer

    async def _ask(self, request: Message, version: int) -> Any:
        """Send a request before all queued requests, and return its answer. Raises ConnectionLost,
        BadAnswer."""
        if self.state is ConnectionState.CLOSED:
            raise ConnectionLost(f"{self.host}:{self.port} was closed")
        answered: asyncio.Future[Any] = self._loop.create_future()
        api = api_of(request)
        self._write(_InFlightRequest(request, api, float("inf"), answered, version), version)
        return await answered

    # --- authentication ---------------------------------------------------------------------------

    async def _authenticate(self, exchange: SaslClient) -> None:
        """Authenticate. Raises AuthenticationFailed, ConnectionLost, BadAnswer."""
        self._authenticating = True
        lifetime_ms = await authenticate(
            self._ask, self.versions, exchange, tls=self._settings.tls is not None
        )
        self._authenticating = False
        if lifetime_ms > 0 and self.state is not ConnectionState.CLOSED:
            wait_ms = reauthentication_ms(lifetime_ms, self._owner.random.random())
            self._session_timer = self._loop.call_later(
                wait_ms / 1000, lambda: self._owner.spawn(self, self._reauthenticate())
            )

    async def _reauthenticate(self) -> None:
        """Authenticate again (C-73), or end the connection. Raises only on cancellation."""
        where = f"the session at {self.host}:{self.port}"
        timeout_ms = self._settings.setup_timeout_ms
        try:
            assert self._settings.login is not None
            exchange = await self._settings.login(timeout_ms)
            if self.state is ConnectionState.READY:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._authenticate(exchange)
        except TimeoutError:
            self._close(f"{where} was not renewed within {timeout_ms} ms")
        except OdradekError as error:
            if error.code is ErrorCode.ILLEGAL_SASL_STATE:
                # Brokers refuse a re-authentication within a second after the last authentication.
                # In that case the connection is replaced.
                self._close(f"{where} could not be renewed: the broker does not do that now")
                return
            text = f"{where} could not be renewed: {error}"
            final = isinstance(error, AuthenticationFailed)
            self._close(text, AuthenticationFailed(text, code=error.code) if final else None)
        else:
            self._pump()

    # --- requests ---------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of requests that are not answered yet, including those in the queue."""
        return len(self.unanswered) + len(self.queued)

    @property
    def is_late(self) -> bool:
        """True if an answer, or the connection itself, is late: nothing has arrived for LATE_S."""
        return self._late

    @property
    def is_ready(self) -> bool:
        """True if a request would be written immediately if it were submitted now."""
        return (
            self.state is ConnectionState.READY
            and not self.queued
            and self._transport is not None
            and self._transport.writable
            and not self._authenticating
            and len(self.unanswered) < self._settings.max_in_flight
            and (self._throttled_until == 0.0 or self._loop.time() >= self._throttled_until)
        )

    def version_for(self, key: ApiKey, max_version: int | None = None) -> int:
        """The highest version of an API that both sides have, but at most `max_version`.

        Raises UnsupportedByBroker if there is no such version. The version is known only when the
        connection is ready.
        """
        api = APIS[key]
        served = self.versions.get(key)
        if served is None:
            raise UnsupportedByBroker(
                f"the broker at {self.host}:{self.port} does not serve {api.name}; "
                "it is too old, or it has that switched off"
            )
        version = min(api.versions.last, served[1])
        if max_version is not None:
            version = min(version, max_version)
        if version < max(api.versions.first, served[0]):
            raise UnsupportedByBroker(
                f"the broker at {self.host}:{self.port} serves {api.name} {served[0]} to "
                f"{served[1]}, this client can use {api.versions.first} to "
                f"{min(api.versions.last, max_version or api.versions.last)}"
            )
        return version

    def submit(
        self,
        request: Message,
        timeout_ms: float,
        *,
        version: int | None = None,
        max_version: int | None = None,
    ) -> asyncio.Future[Any]:
        """Send a request; the future has the response.

        If the connection is not ready, the version is chosen when it becomes ready. The future
        fails with ConnectionLost, RequestTimedOut, UnsupportedByBroker, BadAnswer, or EncodeError
        for a request that cannot be encoded in its version.
        """
        now = self._loop.time()
        self.last_used = now
        answered: asyncio.Future[Any] = self._loop.create_future()
        if self.state is ConnectionState.CLOSED:
            answered.set_exception(ConnectionLost(f"{self.host}:{self.port} was closed"))
            return answered
        if len(self.queued) >= QUEUE_MAX:
            answered.set_exception(
                Closed(f"{QUEUE_MAX} requests already wait for {self.host}:{self.port}")
            )
            return answered
        api = api_of(request)
        deadline = now + timeout_ms / 1000
        late_at = now + LATE_S + getattr(request, "max_wait_ms", 0) / 1000
        if api.key in _WAIT_FOR_OTHERS:
            late_at = float("inf")
        pending = _InFlightRequest(request, api, deadline, answered, version, max_version, late_at)
        self.queued.append(pending)
        due_at = min(deadline, late_at)
        if self._timer is None or due_at < self._timer_at:
            self._set_timer(due_at)
        if self.state is ConnectionState.READY:
            self._pump()
        return answered

    def _pump(self) -> None:
        """Write queued requests as long as the state of the connection allows it."""
        queued = self.queued
        while queued and self.state is ConnectionState.READY:
            if self._transport is None or not self._transport.writable or self._authenticating:
                return
            if len(self.unanswered) >= self._settings.max_in_flight or self._wait_for_throttle():
                return
            pending = queued.popleft()
            if pending.answered.done():
                continue  # cancelled by its caller before it was sent
            try:
                version = pending.version
                if version is None:
                    version = self.version_for(pending.api.key, pending.max_version)
                self._write(pending, version)
            except (OdradekError, WireError) as error:
                pending.answered.set_exception(error)

    def _write(self, pending: _InFlightRequest, version: int) -> None:
        assert self._transport is not None and pending.request is not None
        correlation_id = (self._correlation_id + 1) % _CORRELATION_RANGE
        request = pending.request
        buffers = encode_request(request, version, correlation_id, self._settings.client_id)
        pending.request = None  # its records need not stay in memory after sending
        pending.version = version
        self._correlation_id = pending.correlation_id = correlation_id
        if pending.api.key is ApiKey.PRODUCE and getattr(request, "acks", -1) == 0:
            pending.answered.set_result(None)  # there will be no response (C-26, N-09)
        else:
            self.unanswered.append(pending)
        self._transport.write(buffers)

    def _wait_for_throttle(self) -> bool:
        if self._throttled_until == 0.0:
            return False
        if self._loop.time() >= self._throttled_until:
            self._throttled_until = 0.0
            return False
        if self._throttle_timer is None:
            self._throttle_timer = self._loop.call_at(self._throttled_until, self._throttle_over)
        return True

    def _throttle_over(self) -> None:
        self._throttle_timer = None
        self._pump()

    # --- called by the transport ---

    def frame_received(self, frame: memoryview) -> None:
        """Pass an answer to its request."""
        try:
            self._answer(frame)
        except (DecodeError, BadAnswer) as error:
            reason = f"{self.host}:{self.port} sent an answer that makes no sense: {error}"
            self._close(reason, BadAnswer(reason))
            return
        if self.queued:
            self._pump()

    def _answer(self, frame: memoryview) -> None:
        correlation_id = decode_correlation_id(frame)
        if not self.unanswered or self.unanswered[0].correlation_id != correlation_id:
            raise BadAnswer(f"correlation id {correlation_id} was not asked next")
        pending = self.unanswered[0]
        response: Any
        if pending.api.key is ApiKey.API_VERSIONS and is_unsupported_version(frame):
            response = versions_refused(pending.api, frame)
        else:
            response = decode_response(pending.api, pending.version or 0, frame)
        self.unanswered.popleft()
        if self._late:
            self._late = False
            self._owner.connection_late(
                self
            )  # the cause of the delay is over, perhaps after an election
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        now = self._loop.time()
        self._owner.throttle_times.record(throttle_ms, now * 1000)
        if throttle_ms > 0:
            self._throttled_until = now + throttle_ms / 1000
        if self._curious and self.state is ConnectionState.READY:
            self._curious = False
            self._owner.reached = True
        if not pending.answered.done():
            pending.answered.set_result(response)

    def connection_lost(self, reason: str, *, certain: bool = False) -> None:
        """End the connection, because the transport has lost it."""
        silent = self._transport is not None and not self._transport.heard
        opening = self.state is ConnectionState.OPENING
        if opening and silent and self._curious and self._settings.tls is None and self.unanswered:
            # `open` continues, and probes the cause.
            self._ended = ConnectionLost(reason)
            self.unanswered.popleft().answered.set_exception(self._ended)
        elif opening and certain:
            if reason == SPEAKS_TLS:
                reason = mismatches.speaks_tls(sasl=self._settings.login is not None)
            self._fail(reason, TlsFailed)
        elif self._curious and self._settings.login is None and self.unanswered and not opening:
            # The broker has answered nothing but ApiVersions, and ApiVersions needs no
            # authentication, so the listener may require SASL.
            self._owner.spawn(self, self._look_into(reason))
        else:
            while_what = " while authenticating" if self._authenticating else ""
            self._close(f"the connection to {self.host}:{self.port} was lost{while_what}: {reason}")

    async def _look_into(self, reason: str) -> None:
        """Find out by a probe if the broker has ended the connection because the listener requires
        SASL."""
        where = f"{self.host}:{self.port}"
        mechanisms = await mechanisms_wanted(self.host, self.port, self._settings.tls)
        if mechanisms is None:
            self._close(f"the connection to {where} was lost: {reason}")
            return
        text = f"no connection to {where}: {mismatches.wants_sasl(mechanisms, tls=self._settings.tls is not None)}"
        self._close(text, AuthenticationFailed(text))

    def writable_again(self) -> None:
        """Write more, because the send buffer has room."""
        self._pump()

    # --- timeouts ---------------------------------------------------------------------------------

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._check_timeouts)

    def _check_timeouts(self) -> None:
        self._timer = None
        if self.state is ConnectionState.CLOSED:
            return
        now = self._loop.time()
        for pending in self.unanswered:
            if pending.deadline <= now:
                reason = (
                    f"{self.host}:{self.port} did not answer {pending.api.name} in time; "
                    "the connection was closed"
                )
                late = RequestTimedOut(reason)
                if not pending.answered.done():
                    pending.answered.set_exception(late)
                self._close(reason)
                return
        for pending in [pending for pending in self.queued if pending.deadline <= now]:
            self.queued.remove(pending)
            if not pending.answered.done():
                pending.answered.set_exception(
                    RequestTimedOut(
                        f"{pending.api.name} could not be sent to {self.host}:{self.port} in time"
                    )
                )
        waiting = (*self.unanswered, *self.queued)
        overdue = [pending for pending in waiting if pending.late_at <= now]
        for pending in overdue:
            pending.late_at = now + LATE_AGAIN_S
        opening = self.state is ConnectionState.OPENING
        # While the broker throttles the client, missing answers are not overdue.
        if opening or (overdue and now >= self._throttled_until):
            self._late = True
            self._owner.connection_late(self)
        due = [min(pending.deadline, pending.late_at) for pending in waiting]
        if opening:
            due.append(now + LATE_AGAIN_S)
        if due and min(due) != float("inf"):
            self._set_timer(min(due))


def _retrieve_exception(future: asyncio.Future[None]) -> None:
    """Retrieve the exception, so that asyncio does not complain about a failure without a
    waiter."""
    if not future.cancelled():
        future.exception()
