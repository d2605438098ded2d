"""Requests of several connections that are in progress at a time, in a broker without a network. A
test takes the turns of the loop one by one, and does between them what it likes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from node_world import NodeWorld, SoonScheduler
from odradek_broker.deferred import Deferred
from odradek_broker.request import CloseConnection, EncodedReply, Peer
from odradek_broker.server.dispatch import Dispatcher
from odradek_protocol import codec, frames
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_testkit.simulation.clock import SimulatedClock

#: The most timers that fire until a request is answered.
_TIMERS_MAX = 100


class _Timer:
    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Timers(SoonScheduler):
    """Keeps timers with a delay until a test fires them."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__()
        self._clock = clock
        self._timers: list[_Timer] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Any:
        if delay_ms == 0:
            return super().call_later(delay_ms, callback)
        timer = _Timer(self._clock.now_ms + delay_ms, callback)
        self._timers.append(timer)
        return timer

    def fire(self) -> None:
        """Let the time pass until the next timer, and fire it. Fails if there is none."""
        self._timers = [timer for timer in self._timers if not timer.cancelled]
        timer = min(self._timers, key=lambda each: each.due_ms)
        self._timers.remove(timer)
        self._clock.now_ms = max(self._clock.now_ms, int(timer.due_ms))
        timer.callback()


class Asked:
    """A request in progress."""

    def __init__(self, request: Message, version: int, reply: Any) -> None:
        self._request = request
        self._version = version
        self._reply: EncodedReply | Deferred[EncodedReply] = reply

    @property
    def done(self) -> bool:
        return not isinstance(self._reply, Deferred) or self._reply.done

    def hang_up(self) -> None:
        """Close the connection."""
        if isinstance(self._reply, Deferred):
            self._reply.abandon()

    @property
    def answer(self) -> Any:
        """The response, None without one, or the CloseConnection. Fails if there is none yet."""
        reply = self._reply.result() if isinstance(self._reply, Deferred) else self._reply
        if not isinstance(reply, list):
            return reply
        api, version = api_of(self._request), self._version
        frame = memoryview(b"".join(reply))[8:]
        position = frames.skip_tags(frame, 0) if version in api.response.flexible else 0
        return codec.decode(api.response, version, frame, position)


class InterleavedBroker(NodeWorld):
    """A broker whose requests are in progress until a test lets them go on. Nothing is flushed
    before the test says so, unless `log_durability` is page-cache. Its clock moves `STEP_US` each
    time when it is asked, so a slice has few steps."""

    STEP_US = 200

    def __init__(self, **settings: str) -> None:
        self._us = 0
        self.now_us = self._now_us
        self.timers: _Timers
        super().__init__(**settings)

    def _now_us(self) -> int:
        self._us += self.STEP_US
        return self._us

    def start(self) -> Any:
        self.scheduler = self.timers = _Timers(self.clock)
        report = super().start()
        self.soon = self.timers
        self._dispatcher = Dispatcher(self.node, 100_000_000)
        return report

    def begin(self, request: Message, version: int | None = None, user: str = "admin") -> Asked:
        """Give a request to the broker, on a connection of its own."""
        if version is None:
            version = api_of(request).versions.last
        parts = frames.encode_request(request, version, 1, "client")
        frame = memoryview(bytearray(b"".join(parts)))[4:]
        try:
            reply: Any = self._dispatcher.answer(Peer("127.0.0.1", 1, user=user), frame)
        except CloseConnection as closing:
            reply = closing
        return Asked(request, version, reply)

    def go_on(self) -> None:
        """Let everything go on that can, without a flush."""
        self.soon.run()

    def finish(self, *asked: Asked) -> list[Any]:
        """Let everything go on, flush, let the time pass if nothing else happens, and return the
        answers."""
        for _ in range(_TIMERS_MAX):
            while self.soon.turn() or self.asked:
                self.soon.run()
                self.flush()
            if all(each.done for each in asked):
                break
            self.timers.fire()
        return [each.answer for each in asked]

    def ask(self, request: Message, version: int | None = None, user: str = "admin") -> Any:
        """The answer to a request."""
        return self.finish(self.begin(request, version, user))[0]
