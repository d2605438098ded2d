"""A whole node without sockets: it gets the frames of one connection, while virtual time passes.

An input is a sequence of frames, each prefixed by its length in two bytes. A length L of at least
`PASSES_FROM` has no frame: it is a pause of L - `PASSES_FROM` tenths of a second.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from struct import error as StructError
from struct import unpack_from
from typing import Any

from tests.adversity.fuzz.target import Broken

from counting_randomness import CountingRandomness
from node_world import NodeWorld
from odradek_broker.coordinator.runtime import RuntimeState
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.request import CloseConnection, EncodedReply, Peer
from odradek_broker.server.dispatch import Dispatcher
from odradek_protocol import codec, frames
from odradek_protocol.keys import APIS, Api, ApiKey, api_of
from odradek_protocol.message import Message

PASSES_FROM = 0xF000
_TENTH_MS = 100
#: A node is replaced after this number of inputs, or when it has more partitions than the limit.
INPUTS_MAX = 50
_PARTITIONS_MAX = 300
_CONTROL_BYTES_MAX = 64 * 1024
_SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "0",
}
_TIMERS_MAX = 10_000


class _Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _Timers:
    """The timers of a node, which fire when time passes."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._number = 0
        self._due: list[tuple[float, int, _Timer]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> _Timer:
        timer = _Timer(callback)
        self._number += 1
        heapq.heappush(self._due, (self.now_ms + delay_ms, self._number, timer))
        return timer

    def fire(self, now_ms: float) -> None:
        """Fire the due timers. Raises Broken if they set new due timers without end."""
        self.now_ms = now_ms
        for _ in range(_TIMERS_MAX):
            if not self._due or self._due[0][0] > now_ms:
                return
            _, _, timer = heapq.heappop(self._due)
            if timer.callback is not None:
                timer.callback()
        raise Broken("timers set timers without end")


class World(NodeWorld):
    """A node with some topics and groups, a connection to it, and the frames sent so far."""

    def __init__(self) -> None:
        self.randomness = CountingRandomness()
        super().__init__(**_SETTINGS)
        self.create("t", 2)
        for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            self.node.ensure_internal_topic(name)
        self.flush()
        self.produce("t", 3)
        self.history = b""
        self.inputs = 0

    def start(self) -> Any:
        self.scheduler = self.timers = _Timers()
        report = super().start()
        self.node.set_advertised({"PLAINTEXT": ("localhost", 9092)})
        self.dispatcher = Dispatcher(self.node, _CONTROL_BYTES_MAX)
        self.settle()
        return report

    def settle(self) -> None:
        """Flush the logs and fire the due timers, until nothing is left to flush."""
        for _ in range(100):
            self.flush()
            self.timers.fire(self.clock.now_ms)
            if not self.asked:
                return
        raise Broken("flushes ask for flushes without end")

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.settle()

    @property
    def worn(self) -> bool:
        topics = self.node.metadata.topics.values()
        count = sum(len(topic.partitions) for topic in topics)
        return self.inputs >= INPUTS_MAX or count > _PARTITIONS_MAX

    def check_restart(self) -> None:
        """Crash the node, start it again, and check that nothing is damaged."""
        if self.fatal:
            raise Broken(f"the broker would stop: {self.fatal}")
        report = self.crash()
        problems = report.problems + [found.problem for found in report.recovered if found.problem]
        if problems or self.fatal:
            raise Broken(f"after a crash: {problems} {self.fatal}")
        for shards in (self.node.groups.shards, self.node.transactions.shards):
            states = {runtime.state for runtime in shards}
            if states - {RuntimeState.ACTIVE}:
                raise Broken(f"after a crash a coordinator is {states}")


def split(data: bytes) -> Iterator[bytes | int]:
    """The frames as bytes, and the pauses between them in milliseconds."""
    position = 0
    while position + 2 <= len(data):
        (size,) = unpack_from(">H", data, position)
        position += 2
        if size >= PASSES_FROM:
            yield (size - PASSES_FROM) * _TENTH_MS
            continue
        yield data[position : position + size]
        position += size


def _check_reply(api: Api, version: int, correlation_id: int, reply: EncodedReply) -> None:
    if reply is None or isinstance(reply, CloseConnection):
        return
    whole = b"".join(bytes(part) for part in reply)
    frame = whole[4:]
    if len(frame) != int.from_bytes(whole[:4], "big"):
        raise Broken(f"{api.name} v{version}: a frame of {len(frame)} bytes says {whole[:4].hex()}")
    if frames.decode_correlation_id(frame) != correlation_id:
        raise Broken(f"{api.name} v{version}: another correlation id")
    if api.key is ApiKey.API_VERSIONS and frames.is_unsupported_version(frame):
        version = 0
    answer = frames.decode_response(api, version, frame)
    again = b"".join(map(bytes, frames.encode_response(api, version, correlation_id, answer)))
    if again != whole:
        raise Broken(f"{api.name} v{version}: the answer changes when it is read and written")


def _send(world: World, frame: bytes) -> None:
    try:
        key, version, correlation_id = unpack_from(">hhi", frame)
    except StructError:
        key, version, correlation_id = -1, 0, 0
    try:
        reply = world.dispatcher.answer(Peer("peer", 1), memoryview(bytearray(frame)))
    except CloseConnection:
        return
    api = APIS[ApiKey(key)]
    version = min(version, api.versions.last)
    if isinstance(reply, Deferred):
        reply.then(lambda value: _check_reply(api, version, correlation_id, value))
    else:
        _check_reply(api, version, correlation_id, reply)
    world.settle()


def play(world: World, data: bytes) -> None:
    for step in split(data):
        if isinstance(step, int):
            world.pass_time(step)
        else:
            _send(world, step)


def framed(step: bytes | int) -> bytes:
    """A step in the encoding of inputs: a pause, or a frame with its length in front."""
    if isinstance(step, int):
        return (PASSES_FROM + step // _TENTH_MS).to_bytes(2, "big")
    return len(step).to_bytes(2, "big") + step


class Conversation:
    """Sends frames to its own node, and records them as an input."""

    def __init__(self) -> None:
        self.world = World()
        self.data = b""

    def ask(self, request: Message, version: int) -> Any:
        """The answer; None if it does not come immediately."""
        api = api_of(request)
        frame = request_frame(api, version, codec.encode_bytes(request, version))
        self.data += framed(frame)
        reply = self.world.dispatcher.answer(Peer("peer", 1), memoryview(bytearray(frame)))
        self.world.settle()
        if isinstance(reply, Deferred):
            reply = reply.result() if reply.done else None
        if reply is None or isinstance(reply, CloseConnection):
            return None
        return frames.decode_response(api, version, b"".join(map(bytes, reply))[4:])

    def pass_time(self, duration_ms: int) -> None:
        self.data += framed(duration_ms)
        self.world.pass_time(duration_ms)


def request_frame(api: Api, version: int, body: bytes) -> bytes:
    """A request without a length prefix: header and body."""
    tags = b"\0" if api.request_header_version(version) == 2 else b""
    return api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\1f" + tags + body
