"""A broker whose steps are counted, and whose timers fire when virtual time passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

from large_requests import STEPS_PER_US, StepCounter
from node_world import NodeWorld
from odradek_broker.deferred import Deferred
from odradek_broker.request import CloseConnection, EncodedReply, Peer
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.storage.startup import StartReport
from odradek_protocol import frames
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_testkit.simulation.clock import SimulatedClock


class _Timer:
    """A timer of `TimedScheduler`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class TimedScheduler:
    """A scheduler that runs one callback at a time, when its time has come."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, _Timer]] = []
        self._made = 0

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> _Timer:
        timer = _Timer(callback)
        self._made += 1
        heappush(self._heap, (self._clock.monotonic_ms() + delay_ms, self._made, timer))
        return timer

    def turn(self) -> bool:
        """Run the next callback. False if none is due."""
        while self._heap and self._heap[0][0] <= self._clock.monotonic_ms():
            timer = heappop(self._heap)[2]
            if timer.callback is not None:
                timer.callback()
                return True
        return False


class TimedBroker:
    """A broker without a network. `longest`: the most steps of one callback since it was set.
    `patience_ms`: the time without a callback after which requests are given up."""

    def __init__(self, *, patience_ms: int, **settings: str) -> None:
        self._patience_ms = patience_ms
        self.longest = 0
        self._counter = counter = StepCounter(STEPS_PER_US)

        class World(NodeWorld):
            now_us = staticmethod(counter.now_us)

            def start(self) -> StartReport:
                self.timers = self.scheduler = TimedScheduler(self.clock)
                return super().start()

        self.world = World(**{"log_durability": "page-cache", **settings})
        self._dispatcher = Dispatcher(self.world.node, 100_000_000)

    def ask(self, request: Message, version: int | None = None) -> Any:
        (answer,) = self.ask_all([request], version)
        return answer

    def ask_all(self, requests: Iterable[Message], version: int | None = None) -> list[Any]:
        """Send requests on connections of their own. Returns the responses; None for a request that
        is not answered."""
        asked = [
            (each, api_of(each).versions.last if version is None else version) for each in requests
        ]
        replies = [self._counted(self._sending(*each)) for each in asked]
        waits = 0
        while waits < self._patience_ms and not all(map(_is_there, replies)):
            waits = 0 if self._turn() else waits + 1
        return [
            _decoded(*each, reply) if _is_there(reply) else None
            for each, reply in zip(asked, replies, strict=True)
        ]

    def do(self, work: Callable[[], object]) -> None:
        """Do something in a callback."""
        self._counted(work)

    def wait(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.world.clock.now_ms + duration_ms
        while self.world.clock.now_ms < end_ms:
            self._turn()

    def _turn(self) -> bool:
        """Run one callback. Without a callback, False, and a millisecond passes."""
        if self._counted(self.world.timers.turn):
            return True
        self._counted(self.world.flush)
        self.world.clock.now_ms += 1
        return False

    def _counted(self, work: Callable[[], Any]) -> Any:
        steps, result = self._counter.steps_of(work)
        self.longest = max(self.longest, steps)
        return result

    def _sending(
        self, request: Message, version: int
    ) -> Callable[[], EncodedReply | Deferred[EncodedReply]]:
        frame = b"".join(frames.encode_request(request, version, 1, "client"))
        buffer = memoryview(bytearray(frame[4:]))

        def send() -> EncodedReply | Deferred[EncodedReply]:
            try:
                return self._dispatcher.answer(Peer("127.0.0.1", 1, user="admin"), buffer)
            except CloseConnection as closing:
                return closing

        return send


def _is_there(reply: Any) -> bool:
    return not isinstance(reply, Deferred) or reply.done


def _decoded(request: Message, version: int, reply: Any) -> Any:
    frame = reply.result() if isinstance(reply, Deferred) else reply
    assert isinstance(frame, list), frame
    return frames.decode_response(api_of(request), version, b"".join(frame)[4:])
