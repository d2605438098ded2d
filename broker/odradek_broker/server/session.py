"""A session: one connection that reads requests and sends the responses in the order of the
requests (rule N-03).

The requests of a connection are carried out one after the other, as in Kafka: a request begins
when the response to the request before it is complete, and sees all its effects. Only a Produce may
begin while earlier Produce requests wait for the disk, because their batches are appended already,
in order. While too many requests or bytes are unanswered, the session reads nothing more (N-14).

`SessionState` is the state of the connection; `SESSION_STATE_STEPS` has the legal steps. The
session reads only in the state OPEN. An open connection may be paused for several reasons at a
time; `PAUSES` lists the reasons, and whether complete requests are handled during such a pause.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, cast

from odradek_broker.deferred import Deferred
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.quotas.connections import ConnectionAdmission
from odradek_broker.request import CloseConnection, EncodedReply, Peer, UnservedKey
from odradek_broker.server.authentication import FailedAuthenticationClose, SaslServerAuthenticator
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.server.session_limits import ARRIVAL_S, SessionLimits
from odradek_broker.slices import Work
from odradek_protocol.codec import Buffer, gather
from odradek_protocol.frames import FrameReceiver, FrameTooLarge, TlsBytes
from odradek_protocol.keys import APIS, ApiKey

if TYPE_CHECKING:
    from odradek_broker.server.sasl_listeners import SaslListener

Answer = Callable[[memoryview], EncodedReply | Deferred[EncodedReply]]

#: The time that a connection that is being closed has for the responses to its earlier requests.
_HANG_UP_S = 5.0
#: The bytes of requests and responses of one connection after which other connections get their
#: turn. Produce and Fetch are not counted.
_TURN_BYTES = 256 * 1024
#: The time of requests of one connection after which other connections get their turn.
_TURN_S = 0.002
#: The bytes that are counted for each request in addition to its size.
_REQUEST_BYTES = 1_024
#: The most received requests that are kept apart. More of them wait as bytes.
_BACKLOG_MAX = 256
#: Responses are collected up to this many bytes before they are sent.
_SEND_BYTES = 64 * 1024


class SessionState(Enum):
    """The state of a connection: open, or a state on the way to its end."""

    OPEN = "requests are read and handled"
    REFUSED = "aborted after a delay; nothing is read"
    AUTHENTICATION_FAILED = "the client gets the error after a delay; nothing is read"
    DRAINING = "closed when every request has its response; nothing is read"
    CLOSED = "the connection is gone"


SESSION_STATE_STEPS: dict[SessionState, frozenset[SessionState]] = {
    SessionState.OPEN: frozenset(SessionState) - {SessionState.OPEN},
    SessionState.REFUSED: frozenset({SessionState.DRAINING, SessionState.CLOSED}),
    SessionState.AUTHENTICATION_FAILED: frozenset({SessionState.DRAINING, SessionState.CLOSED}),
    # DRAINING may follow itself: the broker may stop, or a request in flight may fail, while the
    # connection is already draining.
    SessionState.DRAINING: frozenset({SessionState.DRAINING, SessionState.CLOSED}),
    SessionState.CLOSED: frozenset(),
}


class Pause(Enum):
    """A reason to read nothing from an open connection for a while."""

    PEER_DOES_NOT_READ = "the peer does not read its responses"
    MUTED = "a quota is exceeded"
    TURN_OVER = "it is the turn of other connections"
    NO_MEMORY = "the rest of an unfinished request does not fit into the memory"


#: For each reason to read nothing: whether complete requests are still handled.
PAUSES: dict[Pause, bool] = {
    Pause.PEER_DOES_NOT_READ: False,
    Pause.MUTED: False,
    Pause.TURN_OVER: False,
    Pause.NO_MEMORY: True,
}
_READING_ONLY = frozenset(pause for pause, handles in PAUSES.items() if handles)
#: A separate constant, because access to a member of an enumeration in each request is slow.
_OPEN = SessionState.OPEN


class _Slot:
    """A request that is in flight, or whose response waits for the responses to earlier
    requests."""

    __slots__ = ("bytes_held", "deferred", "ready", "reply")

    def __init__(self) -> None:
        self.bytes_held = 0
        self.deferred: Deferred[EncodedReply] | None = None
        self.ready = False
        self.reply: EncodedReply = None


def _size(reply: EncodedReply | Deferred[EncodedReply]) -> int:
    if not isinstance(reply, list):
        return 0
    return len(reply[0]) if len(reply) == 1 else sum(map(len, reply))


def _is_produce(frame: memoryview) -> bool:
    """True for a request with the key of Produce, 0."""
    return len(frame) >= 2 and not (frame[0] or frame[1])


def _api_name(frame: memoryview) -> str:
    """The API of a request, for the log."""
    key = int.from_bytes(frame[:2])
    return APIS[ApiKey(key)].name if key in APIS else ""


class ConnectionSession(asyncio.BufferedProtocol):
    """The protocol of one connection; it owns the transport.

    `on_closed` is called once, when the connection is closed. `listener`: the name of the listener
    that accepted the connection. `admit` gets the session and the transport; it sets the user of
    the peer, and decides whether the connection may stay. `sasl`: the listener's SASL; None if
    clients need not authenticate by SASL. `peer_log`: the log of misbehaving peers of all
    connections.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        peer_id: int,
        receiver: FrameReceiver,
        limits: SessionLimits,
        metrics: BrokerMetrics,
        on_closed: Callable[[ConnectionSession], None],
        *,
        listener: str = "",
        sasl: SaslListener | None = None,
        peer_log: PeerLog | None = None,
        admit: Callable[
            [ConnectionSession, asyncio.BaseTransport], ConnectionAdmission
        ] = lambda *_: ConnectionAdmission(),
    ) -> None:
        self._receiver = receiver
        receiver.frames_at_once = _BACKLOG_MAX
        self._limits = limits
        self._metrics = metrics
        self._on_closed = on_closed
        self.peer = Peer("", peer_id, listener)
        self._peer_log = peer_log or PeerLog(asyncio.get_running_loop().time)
        self._sasl = sasl
        self._authentication: SaslServerAuthenticator | None = None
        self._authentication_timer: asyncio.TimerHandle | None = None
        if sasl is not None:
            self._max_frame_bytes = receiver.max_frame_bytes
            receiver.max_frame_bytes = sasl.receive_bytes_max
            self._authentication = SaslServerAuthenticator(
                sasl, self.peer, dispatcher.answer, self._authenticated
            )
            self._answer: Answer = self._authentication.answer
        else:
            self._answer = partial(dispatcher.answer, self.peer)
        self._transport: asyncio.Transport | None = None
        self._slots: deque[_Slot] = deque()
        self._backlog: deque[memoryview] = deque()
        self._bytes_held = 0
        #: The received bytes of the request that has arrived only in part.
        self._unfinished_bytes = 0
        #: True if all requests in flight are Produce requests that only wait for the disk.
        self._only_flushes = False
        self._state = _OPEN
        self._pauses: set[Pause] = set()
        #: True while the transport reads.
        self._reading = True
        self._admit = admit
        #: True during `_work`, because `_work` must not call itself, not even indirectly.
        self._working = False
        #: True if `_work` will be called soon.
        self._will_work = False
        #: Bytes of requests and responses in this turn (N-56).
        self._turn_bytes = 0
        self._turn_ends_s = 0.0
        #: Loop time until which a quota mutes the peer; 0 if the peer is not muted.
        self._muted_until = 0.0
        self._unmute_timer: asyncio.TimerHandle | None = None
        #: Loop time of the last bytes in or out.
        self.last_active = 0.0
        #: Bytes in the transport's buffer when `close_if_idle` was called last.
        self._unsent_seen = 0
        #: The part of `SessionLimits.bytes_held` that is in this transport's buffer.
        self._unsent = 0
        # Responses that will be sent in one write, because each write is a system call and wakes
        # the peer.
        self._outgoing: list[Buffer] = []
        self._outgoing_bytes = 0

    @property
    def listener(self) -> str:
        return self.peer.listener

    @property
    def known(self) -> bool:
        """True if the peer is authenticated, or its listener needs no authentication."""
        return self._authentication is None or self._authentication.known

    @property
    def quiet(self) -> bool:
        """True if no request waits for its response."""
        return not self._slots and not self._backlog

    # --- What the transport calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop have the methods of asyncio.Transport, but not that base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.peer.host = str(name[0]) if name else "?"
        self.peer.port = int(name[1]) if name else 0
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()
        admission = self._admit(self, transport)
        if not admission.reason and self._sasl is not None:
            self._begin_authentication(self._sasl)
        elif admission.reason:
            self._peer_log.warn("refused a connection", self.peer.host, admission.reason)
            self._move(SessionState.REFUSED)
            self._update_reading()
            self._loop.call_later(admission.hold_ms / 1000, self.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._metrics.received_bytes(nbytes)
        self.last_active = self._loop.time()
        if self._received(nbytes) and self._backlog:
            self._work()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._pauses.add(Pause.PEER_DOES_NOT_READ)
        self._update_reading()

    def resume_writing(self) -> None:
        self._pauses.discard(Pause.PEER_DOES_NOT_READ)
        self._count_unsent(0)
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self.peer.end:
            self.peer.end = f"it was lost: {exc}"
        self._move(SessionState.CLOSED)
        self._transport = None
        self._end_muting()
        self._end_authentication_period()
        self._backlog.clear()
        slots, self._slots = self._slots, deque()
        self._limits.bytes_held -= self._bytes_held
        self._bytes_held = 0
        self._count_unsent(0)
        self._count_unfinished(0, 0)
        # What refers to this session is dropped: else only a collection of garbage would free it.
        for slot in slots:
            deferred, slot.deferred = slot.deferred, None
            if deferred is not None:
                deferred.abandon()
        self._on_closed(self)
        self._authentication = None
        del self._answer

    # --- Work ---

    def _received(self, size_bytes: int) -> bool:
        """Add the requests in received bytes to the backlog; False if the connection is closed."""
        try:
            frames = self._receiver.received(size_bytes)
        except TlsBytes:
            self._hang_up("it sends TLS to a PLAINTEXT listener")
            return False
        except FrameTooLarge as error:
            self._hang_up(str(error))
            return False
        unfinished_bytes, length_bytes = self._receiver.unfinished
        if unfinished_bytes != self._unfinished_bytes:
            self._count_unfinished(unfinished_bytes, length_bytes)
        self._backlog.extend(frames)
        return True

    def close_if_idle(self, idle_s: float) -> None:
        """Close the connection if it has been idle for `idle_s` and no request is in flight (N-04).

        If the peer does not read its responses, the connection is aborted, because `close` would
        wait for the peer for ever.
        """
        transport = self._transport
        if transport is None or self._slots:
            return
        unsent = transport.get_write_buffer_size()
        if unsent != self._unsent_seen:
            self._unsent_seen = unsent
            self.last_active = self._loop.time()
        elif self._loop.time() - self.last_active <= idle_s:
            return
        elif unsent:
            self._peer_log.warn(
                "closed a connection: the client does not read its answers", self.peer.host
            )
            self.peer.end = "the client read no responses (connections.max.idle.ms)"
            transport.abort()
        else:
            self.peer.end = "nothing was sent for long (connections.max.idle.ms)"
            self.close_after_answers()

    def close_after_answers(self) -> None:
        """Read nothing more, and close the connection when every request has its response."""
        self._move(SessionState.DRAINING)
        if self._muted_until:
            self._end_muting()
            self._work()
        self._update_reading()
        if self.quiet and self._transport is not None:
            self._send()
            self._transport.close()

    def close_as_stalled(self) -> None:
        """Close the connection, because its unfinished request takes too long to arrive while other
        connections wait for memory."""
        self._hang_up(f"its request did not arrive within {ARRIVAL_S:g} s, and memory is short")

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _work(self) -> None:
        """Handle the backlog, send the responses, and read on if nothing prevents it."""
        if self._working:
            # The handler that is running has completed an earlier request. The outer call of
            # `_work` handles the next requests, and sends the responses, after this handler has
            # returned.
            return
        self._working = True
        self._will_work = False
        self._turn_ends_s = self._loop.time() + _TURN_S
        try:
            if not self._handle_backlog():
                return
        finally:
            self._working = False
            self._send()
        self._update_reading()

    def _handle_backlog(self) -> bool:
        """Handle requests as far as the limits allow; False if the connection is closed."""
        backlog = self._backlog
        limits = self._limits
        while backlog and self._transport is not None:
            if self._pauses and not self._pauses <= _READING_ONLY:
                break
            if self._slots and (
                len(self._slots) >= limits.in_flight_max
                or self._bytes_held >= limits.in_flight_bytes_max
                or limits.bytes_held >= limits.total_bytes_max
                or not (self._only_flushes and _is_produce(backlog[0]))
            ):
                break
            if self._authentication is not None and self._authentication.busy:
                break
            if not self._handle(backlog.popleft()):
                return False
            if not backlog and self._receiver.uncut and not self._received(0):
                return False
        return True

    def _handle(self, frame: memoryview) -> bool:
        """Handle one request; False if the connection is closed."""
        try:
            reply = self._answer(frame)
        except CloseConnection as error:
            self._end(error)
            return False
        except Exception as error:  # noqa: BLE001 - logged, and others are served
            self.peer.end = "a request failed in the broker; its log has the cause"
            self._peer_log.failed(self.peer.host, _api_name(frame), error)
            self.abort()
            return False
        if isinstance(reply, CloseConnection):
            self._end(reply)
            return False
        if self.peer.throttle_ms:
            self._mute()
        # True for all requests except Produce and Fetch, the APIs with the keys 0 and 1.
        if len(frame) < 2 or frame[0] or frame[1] > 1:
            self._count_turn(len(frame) + _size(reply))
        if not isinstance(reply, Deferred):
            self._write_in_order(reply)
            return True
        slot = _Slot()
        slot.deferred = reply
        self._only_flushes = _is_produce(frame) and not isinstance(reply, Work)
        self._slots.append(slot)
        self._hold(slot, len(frame))
        reply.then(lambda value: self._answered(slot, value))
        return True

    def _answered(self, slot: _Slot, reply: EncodedReply) -> None:
        if self._transport is None:
            # The connection is closed, and `connection_lost` has released the bytes of the request
            # (N-10).
            return
        if self.peer.throttle_ms:
            self._mute()
        slot.ready, slot.reply, slot.deferred = True, reply, None
        slots = self._slots
        if not slots or slots[0] is not slot:
            self._hold(slot, _size(reply))
            self._work_soon()
        elif self._limits.answers.may_answer(self, self._loop.call_soon):
            self.write_ready()
        else:
            self._hold(slot, _size(reply))

    def write_ready(self) -> None:
        """Write the responses to the oldest requests, as far as they are ready."""
        if self._transport is None:
            return
        slots = self._slots
        while slots and slots[0].ready:
            slot = slots.popleft()
            self._hold(slot, -slot.bytes_held)
            if isinstance(slot.reply, CloseConnection):
                self._end(slot.reply)
            elif slot.reply is not None:
                self._write(slot.reply)
        if self._backlog:
            self._work_soon()
        else:
            self._update_reading()

    def _work_soon(self) -> None:
        """Handle the backlog in a callback of its own: the next request may be what another
        connection waits for, whose next request may be what a third one waits for, and so on."""
        if self._backlog and not self._working and not self._will_work:
            self._will_work = True
            self._loop.call_soon(self._work)

    def _count_turn(self, size_bytes: int) -> None:
        """Count the bytes of a request that was handled, and end the turn of this connection if
        they reach _TURN_BYTES or its time is over (N-56)."""
        self._turn_bytes += size_bytes + _REQUEST_BYTES
        over = self._turn_bytes >= _TURN_BYTES or self._loop.time() >= self._turn_ends_s
        if over and Pause.TURN_OVER not in self._pauses:
            self._pauses.add(Pause.TURN_OVER)
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._turn_bytes = 0
        self._pauses.discard(Pause.TURN_OVER)
        self._work()

    def _mute(self) -> None:
        """Handle no requests of the peer until its throttle time is over (KIP-219)."""
        until = self._loop.time() + self.peer.throttle_ms / 1000
        self.peer.throttle_ms = 0
        if self._state is SessionState.DRAINING or until <= self._muted_until:
            return
        self._end_muting()
        self._pauses.add(Pause.MUTED)
        self._muted_until = until
        self._unmute_timer = self._loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._end_muting()
        self._work()

    def _end_muting(self) -> None:
        self._pauses.discard(Pause.MUTED)
        self._muted_until = 0.0
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
            self._unmute_timer = None

    def _hold(self, slot: _Slot, size_bytes: int) -> None:
        """Add bytes of a slot to the counts for the limits. A negative number is subtracted."""
        slot.bytes_held += size_bytes
        self._bytes_held += size_bytes
        limits = self._limits
        limits.bytes_held += size_bytes
        if size_bytes < 0 and limits.waiting:
            limits.released()

    def _write_in_order(self, reply: EncodedReply) -> None:
        """Send a response after the responses to all earlier requests (N-03)."""
        if self._slots:
            slot = _Slot()
            slot.ready, slot.reply = True, reply
            self._slots.append(slot)
            self._hold(slot, _size(reply))
        elif isinstance(reply, list):
            self._write(reply)

    def _write(self, reply: list[Buffer]) -> None:
        """Send a response, together with others of this turn of the loop."""
        first = not self._outgoing
        self._outgoing += reply
        self._outgoing_bytes += len(reply[0]) if len(reply) == 1 else sum(map(len, reply))
        if self._outgoing_bytes >= _SEND_BYTES:
            self._send()
        elif first and not self._working:
            # One flush to disk completes many requests, one directly after the other; their
            # responses are sent together.
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        if not self._outgoing:
            return
        parts, self._outgoing = self._outgoing, []
        size_bytes, self._outgoing_bytes = self._outgoing_bytes, 0
        transport = self._transport
        if transport is None:
            return
        self.last_active = self._loop.time()
        # The writelines of asyncio in CPython 3.12 and 3.13 never pauses the protocol, so it is not
        # used.
        for part in gather(parts) if len(parts) > 1 else parts:
            transport.write(part)
        if self._pauses and Pause.PEER_DOES_NOT_READ in self._pauses:
            self._count_unsent(transport.get_write_buffer_size())
        self._metrics.sent_bytes(size_bytes)

    def _count_unsent(self, size_bytes: int) -> None:
        self._limits.bytes_held += size_bytes - self._unsent
        self._unsent = size_bytes
        if not size_bytes:
            self._limits.released()

    def _count_unfinished(self, unfinished_bytes: int, size_bytes: int) -> None:
        self._unfinished_bytes = unfinished_bytes
        fits = self._limits.arriving(self, unfinished_bytes, size_bytes)
        if fits and not self._pauses:
            return
        if fits is (Pause.NO_MEMORY in self._pauses):
            self._pauses ^= {Pause.NO_MEMORY}
            self._update_reading()

    def read_on(self) -> None:
        """Read the rest of an unfinished request, because it may fit into the memory now (see
        `SessionLimits`)."""
        self._pauses.discard(Pause.NO_MEMORY)
        if self._state is not SessionState.DRAINING:
            self._update_reading()

    def _update_reading(self) -> None:
        """Pause or resume reading, depending on the backlog, the pauses and the state; close a
        drained connection."""
        transport = self._transport
        if transport is None:
            return
        wanted = not self._backlog and not self._pauses and self._state is _OPEN
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()
        if not wanted and self._state is SessionState.DRAINING and self.quiet:
            self._send()
            transport.close()

    def _move(self, state: SessionState) -> None:
        if state not in SESSION_STATE_STEPS[self._state]:
            raise RuntimeError(f"{state.name} after the state {self._state.name}")
        self._state = state

    # --- Authentication ---

    def _begin_authentication(self, sasl: SaslListener) -> None:
        if sasl.begin(self.peer.host, self._cut):
            self._authentication_timer = self._loop.call_later(sasl.timeout_s, self._too_late)
        else:
            self._metrics.connection_refused()
            self.abort()

    def _cut(self) -> None:
        """Close the connection, because too many connections have not authenticated."""
        self.peer.end = "too many connections had not authenticated"
        if self._sasl is not None:
            self._sasl.cut(self.peer.host)
        self._metrics.connection_refused()
        self.abort()

    def _too_late(self) -> None:
        if self._sasl is not None:
            self.peer.end = "the client did not authenticate in time"
            self._sasl.late(self.peer.host)
            self.abort()

    def _authenticated(self) -> None:
        """Accept requests of full size, because the client has authenticated."""
        self._receiver.max_frame_bytes = self._max_frame_bytes
        self._end_authentication_period()

    def _end_authentication_period(self) -> None:
        if self._authentication_timer is not None:
            self._authentication_timer.cancel()
            self._authentication_timer = None
            assert self._sasl is not None
            self._sasl.ended(self._cut)

    def _end(self, reason: CloseConnection) -> None:
        """Close the connection. After a failed authentication, first send the client the error,
        after a delay."""
        if not isinstance(reason, FailedAuthenticationClose):
            self._hang_up(str(reason), once=isinstance(reason, UnservedKey))
            return
        self.peer.end = str(reason)
        if self._state is _OPEN:
            self._move(SessionState.AUTHENTICATION_FAILED)
        if self._authentication_timer is not None:
            self._authentication_timer.cancel()
            assert self._sasl is not None
            self._sasl.keep(self._cut)
        self._backlog.clear()
        self._metrics.connection_refused()
        self._update_reading()
        self._loop.call_later(reason.delay_ms / 1000, self._tell_failure, reason.reply)

    def _tell_failure(self, reply: EncodedReply) -> None:
        if self._transport is not None:
            if isinstance(reply, list):
                self._write_in_order(reply)
            self._loop.call_later(_HANG_UP_S, self.abort)
            self.close_after_answers()

    def _hang_up(self, reason: str, *, once: bool = False) -> None:
        """Close the connection when earlier requests have their responses, but at the latest after
        _HANG_UP_S.

        `once`: true if the log gets only one line for this reason, however many peers cause it.
        """
        self.peer.end = reason
        warn = self._peer_log.warn_once if once else self._peer_log.warn
        warn("closed a connection", self.peer.host, reason)
        self._metrics.connection_refused()
        self._backlog.clear()
        if self._transport is not None:
            self._loop.call_later(_HANG_UP_S, self.abort)
            self.close_after_answers()
