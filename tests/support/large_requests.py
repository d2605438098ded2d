"""Large requests of every API, made from the declarations, and a count of the steps that a broker
takes for them in one callback of its loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from node_world import NodeWorld
from odradek_broker.deferred import Deferred
from odradek_broker.request import CloseConnection, EncodedReply, Peer, RequestContext
from odradek_broker.server.dispatch import Dispatcher, import_handler
from odradek_protocol import frames
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import ArrayOf, Message
from odradek_protocol.primitives import WireType

#: A way to an array of a request: the names of the fields, from the outside in.
ArrayPath = tuple[str, ...]
#: The steps that a machine takes in a microsecond, for the clock of the broker.
STEPS_PER_US = 3


def array_paths(cls: Any, version: int) -> Iterator[ArrayPath]:
    """The arrays of a request in one version, also those in other arrays."""
    for spec in cls.fields:
        if version not in spec.versions:
            continue
        kind = spec.type
        if isinstance(kind, ArrayOf):
            yield (spec.name,)
            kind = kind.element
        if not isinstance(kind, WireType | ArrayOf):
            for inner in array_paths(kind, version):
                yield (spec.name, *inner)


def large_request(
    key: ApiKey, path: ArrayPath, count: int, name: Callable[[int], str], *, same: bool = False
) -> Message:
    """A request with `count` elements in one array and one element in every other array. `same`:
    true if all elements have the same name."""
    api = APIS[key]
    named = (lambda _: name(0)) if same else name
    made: Message = _filled(api.request, api.versions.last, path, count, named)
    return made


def _filled(
    cls: Any, version: int, path: ArrayPath, count: int, name: Callable[[int], str], number: int = 0
) -> Any:
    made = cls()
    for spec in cls.fields:
        if version not in spec.versions:
            continue
        inner = path[1:] if path and path[0] == spec.name else ()
        times = count if path == (spec.name,) else 1
        if isinstance(spec.type, ArrayOf):
            element = spec.type.element
            value: Any = [
                _value(element, version, inner, count, name, number if times == 1 else each)
                for each in range(times)
            ]
        else:
            if version in spec.nullable and not inner:
                continue
            value = _value(spec.type, version, inner, count, name, number)
        setattr(made, spec.name, value)
    return made


def _value(
    kind: Any, version: int, path: ArrayPath, count: int, name: Callable[[int], str], number: int
) -> Any:
    if not isinstance(kind, WireType | ArrayOf):
        return _filled(kind, version, path, count, name, number)
    if isinstance(kind, ArrayOf):
        return []
    if kind.name == "string":
        return name(number)
    if kind.name == "uuid":
        return number.to_bytes(16, "big")
    if kind.name in ("bytes", "records"):
        return b""
    if kind.name == "bool":
        return False
    if kind.name == "float64":
        return 1.0
    return number % 100 if kind.name in ("int8", "int16", "uint16") else number


class StepCounter:
    """Counts calls of functions while it is active. `steps_per_us`: for the clock."""

    def __init__(self, steps_per_us: int = STEPS_PER_US) -> None:
        self.steps = 0
        self._steps_per_us = steps_per_us

    def count(self, _frame: FrameType, event: str, _arg: object) -> None:
        if event in ("call", "c_call"):
            self.steps += 1

    def now_us(self) -> int:
        """The time that the steps take."""
        return self.steps // self._steps_per_us

    def steps_of(self, work: Callable[[], Any]) -> tuple[int, Any]:
        """The steps of a call, and its result."""
        before = self.steps
        sys.setprofile(self.count)
        try:
            result = work()
        finally:
            sys.setprofile(None)
        return self.steps - before, result


class CountedBroker:
    """A broker without a network, whose steps are counted. `super_users`: those who may do
    everything; with None there is no authorizer."""

    def __init__(
        self,
        *,
        steps_per_us: int = STEPS_PER_US,
        log_durability: str = "page-cache",
        **settings: str,
    ) -> None:
        self.counter = StepCounter(steps_per_us)
        counter = self.counter

        class World(NodeWorld):
            now_us = staticmethod(counter.now_us)

        self.world = World(log_durability=log_durability, **settings)
        self._dispatcher = Dispatcher(self.world.node, 100_000_000)

    def longest_callback(self, request: Message, version: int, user: str) -> tuple[int, Any]:
        """The most steps of one callback until all work of a request is done, and the answer."""
        frame = b"".join(frames.encode_request(request, version, 1, "client"))
        peer = Peer("127.0.0.1", 1, user=user)
        longest, reply = self.longest_of(
            lambda: self._answer(peer, memoryview(bytearray(frame[4:])))
        )
        return longest, reply.result() if isinstance(reply, Deferred) and reply.done else reply

    def begin(self, request: Message, version: int, user: str = "admin") -> None:
        """Have a request carried out as far as it goes without the disk. Its steps are not
        counted."""
        frame = b"".join(frames.encode_request(request, version, 1, "client"))
        self._answer(Peer("127.0.0.1", 1, user=user), memoryview(bytearray(frame[4:])))
        self.world.soon.run()

    def longest_of(self, work: Callable[[], Any]) -> tuple[int, Any]:
        """The most steps of a call and of the callbacks that follow it, and the call's result."""
        longest, result = self.counter.steps_of(work)
        while (isinstance(result, Deferred) and not result.done) or self.world.soon.waits:
            steps, more = self.counter.steps_of(self.world.soon.turn)
            longest = max(longest, steps)
            if not more:
                steps, _ = self.counter.steps_of(self.world.flush)
                longest = max(longest, steps)
                self.world.clock.now_ms += 1
                if not self.world.soon.waits:
                    break
        return longest, result

    def in_background(
        self, work: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        """Do work that is done in another thread: its steps are not counted."""
        sys.setprofile(None)
        work()
        self.world.soon.call_later(0, lambda: done(None))
        sys.setprofile(self.counter.count)

    def ask(self, request: Message, version: int = -1, user: str = "admin") -> Any:
        """The answer of the request's handler, without a count of steps. `version`: -1 for the
        last."""
        api = APIS[ApiKey(request.api_key)]
        version = api.versions.last if version < 0 else version
        context = RequestContext(version, "client", "127.0.0.1", 1, user=user, api_name=api.name)
        reply = import_handler(api.key)(self.world.node, context, request)
        while isinstance(reply, Deferred) and not reply.done:
            if not self.world.soon.turn():
                self.world.flush()
                assert reply.done or self.world.soon.waits, f"{api.name} gets no answer"
        return reply.result() if isinstance(reply, Deferred) else reply

    def settle(self) -> None:
        """Wait until the disk has everything, and nothing more is due."""
        world = self.world
        while world.soon.waits or world.asked:
            world.soon.run()
            world.flush()

    def _answer(self, peer: Peer, frame: memoryview) -> EncodedReply | Deferred[EncodedReply]:
        try:
            return self._dispatcher.answer(peer, frame)
        except CloseConnection as closing:
            return closing
