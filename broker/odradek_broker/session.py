"""One connection: frames in, answers out, in the order of the requests (rule N-03).

Requests are worked on as they arrive; an answer that is not there yet holds back those behind it.
Whatever stands behind a Produce sees its records: other requests wait until it is finished, also
where it has no answer (acks=0).
Back pressure goes both ways: while too much is unanswered, or the peer does not read, nothing more
is read from it (rule N-14).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

from odradek_broker.context import CloseConnection
from odradek_broker.dispatch import Dispatcher, Peer, Reply
from odradek_broker.later import Later
from odradek_protocol.codec import gather
from odradek_protocol.connection import FrameReceiver, FrameTooLarge

log = structlog.get_logger("odradek.session")

#: How long a connection that is given up may take for the answers it is still owed.
_HANG_UP_S = 5.0
#: Answers that wait for each other are sent at the latest when they are this many bytes.
_SEND_BYTES = 64 * 1024


class _Slot:
    """The place of an answer in the order."""

    __slots__ = ("bytes_held", "later", "produces", "ready", "reply")

    def __init__(self) -> None:
        self.bytes_held = 0
        self.produces = False
        self.later: Later[Reply] | None = None
        self.ready = False
        self.reply: Reply = None


def _size(reply: Reply) -> int:
    return sum(map(len, reply)) if isinstance(reply, list) else 0


def _is_produce(frame: memoryview) -> bool:
    """Is this a request with the key of Produce, 0?"""
    return len(frame) >= 2 and not (frame[0] or frame[1])


class SessionLimits:
    """What one connection may hold, and all of them together."""

    __slots__ = ("bytes_held", "in_flight_bytes_max", "in_flight_max", "total_bytes_max")

    def __init__(self, in_flight_max: int, in_flight_bytes_max: int, total_bytes_max: int) -> None:
        self.in_flight_max = in_flight_max
        self.in_flight_bytes_max = in_flight_bytes_max
        self.total_bytes_max = total_bytes_max
        #: Bytes of requests in work, and of answers that peers are slow to take, all connections.
        self.bytes_held = 0

    @property
    def room_bytes(self) -> int:
        """How much more may be held before answers must be small."""
        return max(self.total_bytes_max - self.bytes_held, 0)


class Session(asyncio.BufferedProtocol):
    """Owns a transport. `on_closed` is called once, when the connection is gone."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        peer_id: int,
        receiver: FrameReceiver,
        limits: SessionLimits,
        metrics: Any,
        on_closed: Callable[[Session], None],
        *,
        refuse: bool = False,
    ) -> None:
        self._dispatcher = dispatcher
        self._receiver = receiver
        self._limits = limits
        self._metrics = metrics
        self._on_closed = on_closed
        self._peer = Peer("", peer_id)
        self._transport: Any = None
        self._slots: deque[_Slot] = deque()
        self._backlog: deque[memoryview] = deque()
        self._bytes_held = 0
        #: Produce requests whose records are not on disk yet.
        self._producing = 0
        self._peer_reads = True
        self._reading = True
        self._draining = False
        self._refuse = refuse
        self._working = False
        #: Loop time of the last bytes in or out.
        self.last_active = 0.0
        self._unsent_seen = 0
        #: Bytes of answers that the peer has not taken, as far as they are counted.
        self._unsent = 0
        # Answers that go out together. Each write would be a system call, and wake the peer.
        self._outgoing: list[Any] = []
        self._outgoing_bytes = 0
        self._send_is_due = False

    @property
    def quiet(self) -> bool:
        """No request is waiting for its answer."""
        return not self._slots and not self._backlog

    # --- What the transport calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        name = transport.get_extra_info("peername")
        self._peer.host = str(name[0]) if name else "?"
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()
        if self._refuse:
            log.warning(
                "refused a connection: too many are open (max.connections, ulimit -n), or the"
                " broker is stopping",
                peer=self._peer.host,
            )
            transport.abort()  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._metrics.received_bytes(nbytes)
        self.last_active = self._loop.time()
        try:
            frames = self._receiver.received(nbytes)
        except FrameTooLarge as error:
            self._hang_up(str(error))
            return
        if frames:
            self._backlog.extend(frames)
            self._work()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._peer_reads = False
        self._balance()

    def resume_writing(self) -> None:
        self._peer_reads = True
        self._count_unsent(0)
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._backlog.clear()
        slots, self._slots = self._slots, deque()
        self._limits.bytes_held -= self._bytes_held
        self._bytes_held = 0
        self._count_unsent(0)
        for slot in slots:
            if slot.later is not None:
                slot.later.abandon()
        self._on_closed(self)

    # --- Work ---

    def close_if_idle(self, idle_s: float) -> None:
        """Close if no byte has moved for so long and no request is in work (N-04).

        A peer that takes no answers is cut off: a polite close would wait for it for ever.
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
            log.warning("closed a connection: it takes no answers", peer=self._peer.host)
            transport.abort()
        else:
            self.close_after_answers()

    def close_after_answers(self) -> None:
        """Read nothing more; close once everything asked so far is answered."""
        self._draining = True
        self._balance()
        if self.quiet and self._transport is not None:
            self._send()
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def _work(self) -> None:
        """Handle what has arrived, as far as the limits allow."""
        if self._working:
            # A request has answered one that waited before it. Its own answer is still to come,
            # and has its place before those of the requests behind it.
            return
        self._working = True
        try:
            if not self._work_off():
                return
        finally:
            self._working = False
            self._send()
        self._balance()

    def _work_off(self) -> bool:
        """False if the connection is over."""
        backlog = self._backlog
        limits = self._limits
        while backlog and self._transport is not None:
            if (
                not self._peer_reads
                or len(self._slots) >= limits.in_flight_max
                or (self._bytes_held >= limits.in_flight_bytes_max and self._slots)
                or (limits.bytes_held >= limits.total_bytes_max and self._slots)
                or (self._producing and not _is_produce(backlog[0]))
            ):
                break
            if not self._handle(backlog.popleft()):
                return False
        return True

    def _handle(self, frame: memoryview) -> bool:
        """Answer one request or begin to; False if the connection is over."""
        try:
            reply = self._dispatcher.answer(self._peer, frame)
        except CloseConnection as error:
            self._hang_up(str(error))
            return False
        except Exception:
            log.exception("a request failed unexpectedly", peer=self._peer.host)
            self.abort()
            return False
        if isinstance(reply, CloseConnection):
            self._hang_up(str(reply))
            return False
        if not isinstance(reply, Later):
            if not self._slots:
                if reply is not None:
                    self._write(reply)
                return True
            slot = _Slot()
            slot.ready, slot.reply = True, reply
            self._slots.append(slot)
            self._hold(slot, _size(reply))
            return True
        slot = _Slot()
        slot.later = reply
        slot.produces = _is_produce(frame)
        self._producing += slot.produces
        self._slots.append(slot)
        self._hold(slot, len(frame))
        reply.then(lambda value: self._answered(slot, value))
        return True

    def _answered(self, slot: _Slot, reply: Reply) -> None:
        if self._transport is None:
            # The peer is gone, and what was held for it is not counted any more (N-10).
            return
        slot.ready, slot.reply, slot.later = True, reply, None
        self._producing -= slot.produces
        slots = self._slots
        if not slots or slots[0] is not slot:
            self._hold(slot, _size(reply))
            if self._backlog:
                self._work()
            return
        while slots and slots[0].ready:
            slot = slots.popleft()
            self._hold(slot, -slot.bytes_held)
            if isinstance(slot.reply, CloseConnection):
                self._hang_up(str(slot.reply))
            elif slot.reply is not None:
                self._write(slot.reply)
        if self._backlog:
            self._work()
        else:
            self._balance()

    def _hold(self, slot: _Slot, size_bytes: int) -> None:
        """Count bytes kept in memory for a request that others wait behind."""
        slot.bytes_held += size_bytes
        self._bytes_held += size_bytes
        self._limits.bytes_held += size_bytes

    def _write(self, reply: list[Any]) -> None:
        """Send an answer, together with those that are due at the same time."""
        self._outgoing += reply
        self._outgoing_bytes += _size(reply)
        if self._outgoing_bytes >= _SEND_BYTES:
            self._send()
        elif not self._working and not self._send_is_due:
            # One flush to disk answers many requests, one after the other.
            self._send_is_due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._send_is_due = False
        if not self._outgoing:
            return
        parts, self._outgoing = self._outgoing, []
        size_bytes, self._outgoing_bytes = self._outgoing_bytes, 0
        transport = self._transport
        if transport is None:
            return
        self.last_active = self._loop.time()
        # Not writelines: that of asyncio in CPython 3.12 and 3.13 never pauses the protocol.
        for part in gather(parts):
            transport.write(part)
        if not self._peer_reads:
            self._count_unsent(transport.get_write_buffer_size())
        self._metrics.sent_bytes(size_bytes)

    def _count_unsent(self, size_bytes: int) -> None:
        self._limits.bytes_held += size_bytes - self._unsent
        self._unsent = size_bytes

    def _balance(self) -> None:
        """Read exactly while there is room for what would come."""
        transport = self._transport
        if transport is None:
            return
        wanted = not self._backlog and self._peer_reads and not self._draining
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()
        if self._draining and self.quiet:
            self._send()
            transport.close()

    def _hang_up(self, reason: str) -> None:
        """Take nothing more from this peer; what it asked before is still answered."""
        log.warning("closed a connection", peer=self._peer.host, reason=reason)
        self._metrics.connection_refused()
        self._backlog.clear()
        if self._transport is not None:
            self._loop.call_later(_HANG_UP_S, self.abort)
            self.close_after_answers()
