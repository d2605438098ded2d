"""Limits of the bytes and requests in flight, for a connection and for all connections (N-14).

The bytes of unfinished requests are included. While all connections together hold too many bytes,
connections with a large unfinished request are not read, except the connection whose request began
first. So one request can always arrive completely and release its memory. If its request takes too
long, this connection is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Protocol

#: The size up to which requests are always read completely.
_SMALL_BYTES = 64 * 1024
#: All unauthenticated peers together may use the memory limit divided by this number.
_UNAUTHENTICATED_SHARE = 8
#: The maximum number of waiting connections that resume reading at a time. There is a limit because
#: the requests of these connections may exceed the memory limit again.
_READ_ON_MAX = 16
#: The maximum time in which a request has to arrive while other connections wait for memory.
ARRIVAL_S = 60.0


class Receiving(Protocol):
    """A connection on which a request is arriving."""

    @property
    def known(self) -> bool:
        """True if the peer is authenticated, or its listener needs no authentication."""
        ...

    def read_on(self) -> None:
        """Resume reading, because the memory limit may allow it again."""
        ...


class Answering(Protocol):
    """A connection with a response that may be written."""

    def write_ready(self) -> None: ...


#: The most responses that are written in a turn of the event loop for requests that have waited.
ANSWERS_AT_ONCE = 64


class AnswerTurns:
    """Spreads responses over turns of the event loop (N-57). One event may answer the waiting
    requests of thousands of connections: the end of a rebalance, or a record that many fetches wait
    for. Each write is a system call."""

    __slots__ = ("_has_begun", "_left", "_waiting")

    def __init__(self) -> None:
        self._has_begun = False
        self._left = 0
        self._waiting: deque[Answering] = deque()

    def may_answer(self, answering: Answering, call_soon: Callable[..., Any]) -> bool:
        """True if a response may be written now. Otherwise `write_ready` is called in a later
        turn."""
        if not self._has_begun:
            self._begin(call_soon)
        if self._left > 0:
            self._left -= 1
            return True
        self._waiting.append(answering)
        return False

    def _begin(self, call_soon: Callable[..., Any]) -> None:
        self._has_begun, self._left = True, ANSWERS_AT_ONCE
        call_soon(self._end, call_soon)

    def _end(self, call_soon: Callable[..., Any]) -> None:
        """End the turn. If responses wait, begin the next one with them."""
        self._has_begun = False
        if self._waiting:
            self._begin(call_soon)
        while self._waiting and self._left > 0:
            self._left -= 1
            self._waiting.popleft().write_ready()


class SessionLimits:
    """The limits of each connection and of all connections together, and the bytes that the
    connections hold.

    `waiting`: the connections that are not read because memory is short. `answers`: the turns in
    which responses are written.
    """

    __slots__ = (
        "_first",
        "_first_since_s",
        "_unfinished",
        "answers",
        "bytes_held",
        "in_flight_bytes_max",
        "in_flight_max",
        "total_bytes_max",
        "unfinished_bytes",
        "waiting",
    )

    def __init__(self, in_flight_max: int, in_flight_bytes_max: int, total_bytes_max: int) -> None:
        self.in_flight_max = in_flight_max
        self.in_flight_bytes_max = in_flight_bytes_max
        self.total_bytes_max = total_bytes_max
        self.answers = AnswerTurns()
        #: Bytes of requests in flight and of responses that the peer has not read, of all
        #: connections.
        self.bytes_held = 0
        #: The received bytes of unfinished requests, of all connections.
        self.unfinished_bytes = 0
        #: The received bytes of the unfinished request of each connection, in the order in which
        #: the requests began.
        self._unfinished: dict[Receiving, int] = {}
        self.waiting: dict[Receiving, None] = {}
        #: The connection that had the oldest unfinished request at the last call of `stalled`.
        self._first: Receiving | None = None
        #: The start of the time that `stalled` compares with ARRIVAL_S.
        self._first_since_s = 0.0

    def room_bytes(self) -> int:
        """The number of bytes that all connections together may still take."""
        return max(self.total_bytes_max - self.bytes_held, 0)

    def arriving(self, receiving: Receiving, held_bytes: int, size_bytes: int) -> bool:
        """Called when `held_bytes` of a request of `size_bytes` have arrived on a connection;
        `held_bytes` is 0 if the connection has no unfinished request. Returns False if the
        connection must not be read until `read_on` is called."""
        before = self._unfinished.get(receiving, 0)
        self.unfinished_bytes += held_bytes - before
        if not held_bytes:
            self._unfinished.pop(receiving, None)
            self.waiting.pop(receiving, None)
            self.released()
            return True
        self._unfinished[receiving] = held_bytes
        if size_bytes <= _SMALL_BYTES or self._has_room(receiving):
            return True
        self.waiting[receiving] = None
        return False

    def released(self) -> None:
        """Let waiting connections resume reading. To be called when memory was released, and also
        periodically."""
        if not self.waiting:
            return
        able = list(islice(filter(self._has_room, self.waiting), _READ_ON_MAX))
        for each in able:
            self.waiting.pop(each, None)
            each.read_on()

    def stalled(self, now_s: float) -> Receiving | None:
        """The connection whose unfinished request has been the oldest of all for more than
        ARRIVAL_S while connections wait for memory; None if there is no such connection. To be
        called periodically."""
        first = next(iter(self._unfinished), None)
        if first is not self._first or not self.waiting:
            self._first, self._first_since_s = first, now_s
            return None
        return first if now_s - self._first_since_s > ARRIVAL_S else None

    def _has_room(self, receiving: Receiving) -> bool:
        most = self.total_bytes_max
        if not receiving.known:
            most //= _UNAUTHENTICATED_SHARE
        if self.bytes_held + self.unfinished_bytes <= most:
            return True
        return next(iter(self._unfinished), None) is receiving
