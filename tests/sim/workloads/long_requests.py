"""Requests of several clients that interleave: each has many names, and its slices are short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.sim.checkers.in_some_order import Operation, in_some_order
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_broker.server.server import Server
from odradek_broker.storage.errors import StorageError
from odradek_protocol import frames
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from odradek_protocol.stored.cluster_metadata import TopicRecord
from odradek_testkit.simulation.world import World

_E = ErrorCode
_CLIENTS = 3
_SHARED = [f"shared{number}" for number in range(8)]
#: The topics at each end of a creation that no other request names.
_OWN = 12
_PARTITIONS_MAX = 3
#: The virtual time of a look at the clock and of a turn of the loop.
_LOOK_US = 2_000
_TURN_MS = 0.1
_WAIT_S = 5.0
#: The most looks at the broker while a client waits for its first topic.
_LOOKS_MAX = 2_000
_CERTAIN = {
    "create": {_E.NONE: True, _E.TOPIC_ALREADY_EXISTS: False},
    "delete": {_E.NONE: True, _E.UNKNOWN_TOPIC_OR_PARTITION: False},
    "grow": {_E.NONE: True, _E.UNKNOWN_TOPIC_OR_PARTITION: False, _E.INVALID_PARTITIONS: False},
    "look": {_E.NONE: True, _E.UNKNOWN_TOPIC_OR_PARTITION: True},
}


class _SlowTurns:
    """A scheduler whose turns of the loop take time, so that requests and faults come between."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Any:
        return self._scheduler.call_later(max(delay_ms, _TURN_MS), callback)


class _Ticks:
    """A clock that moves when it is asked."""

    def __init__(self) -> None:
        self._now_us = 0

    def __call__(self) -> int:
        self._now_us += _LOOK_US
        return self._now_us


@dataclass(slots=True)
class _Request:
    """A request with its operations by topic. `starts`: the starts of the broker before it."""

    message: Message
    kind: str
    operations: dict[str, Operation]
    starts: int
    own: list[str]
    answered: bool = False


class LongRequestsWorkload:
    """Clients create, grow, delete and look at the same topics in requests for all of them, some
    of them pipelined, and close connections without waiting for answers."""

    name: ClassVar[str] = "long-requests"
    settings: ClassVar[dict[str, object]] = {"auto.create.topics.enable": "false"}
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._time = 0
        self._requests: list[_Request] = []
        #: The topics whose records the disk did not take.
        self._refused: set[str] = set()
        world.on_broker_ready = self._broker_ready

    def _broker_ready(self, server: Server) -> None:
        slices = server.node.slices
        slices._scheduler = _SlowTurns(slices._scheduler)
        slices._now_us = _Ticks()
        self._note_refused(server.node.metadata_log)
        # What has not happened before a start never happens.
        now = self._tick()
        for request in self._requests:
            for each in request.operations.values():
                if each.done is None:
                    each.ended = min(each.ended, now)

    def _note_refused(self, log: Any) -> None:
        commit = log.commit

        def noting(records: Sequence[Any]) -> Any:
            try:
                return commit(records)
            except StorageError:
                self._refused.update(each.name for each in records if isinstance(each, TopicRecord))
                raise

        log.commit = noting

    def _tick(self) -> int:
        self._time += 1
        return self._time

    async def prepare(self) -> None:
        """Prepare nothing: the clients create the topics."""

    async def work(self) -> None:
        """Run the clients until the faults are over."""
        await keep_running(self._world, "client", _CLIENTS, self._client)

    async def _client(self, name: str) -> None:
        host, _, port = self._world.broker.bootstrap.partition(":")
        try:
            async with asyncio.timeout(_WAIT_S):
                reader, writer = await asyncio.open_connection(host, int(port))
        except (OSError, TimeoutError):
            await self._world.sleep(50)
            return
        random = self._random
        try:
            for _ in range(random.randint(1, 6)):
                sent = [self._drawn() for _ in range(random.choice((1, 1, 2, 3)))]
                self._world.note(name, "sends " + ", ".join(each.kind for each in sent))
                self._send(sent, writer)
                if random.random() < 0.2:
                    await self._world.sleep(random.choice((0.3, 1, 3, 10)))
                    return
                if random.random() < 0.1 and sent[0].own:
                    await self._cut_in_the_middle(sent[0])
                for each in sent:
                    async with asyncio.timeout(_WAIT_S):
                        self._answered(each, await _received(reader, each.message))
                await self._world.sleep(random.choice((1, 50, 200, 400)))
        except (OSError, TimeoutError, EOFError) as problem:
            self._world.note(name, f"does not know what became of it: {problem!r}")
        finally:
            writer.close()

    async def _cut_in_the_middle(self, request: _Request) -> None:
        """Cut all connections when the first topic of a request exists."""
        for _ in range(_LOOKS_MAX):
            broker = self._world.broker
            if not broker.running:
                break
            if any(map(broker.server.node.metadata.has_topic, request.own)):
                self._world.network.cut_all()
                break
            await self._world.sleep(_TURN_MS / 2)

    # --- Requests ---

    def _drawn(self) -> _Request:
        random = self._random
        kind = random.choice(("create", "create", "delete", "grow", "look"))
        names = random.sample(_SHARED, len(_SHARED))
        own: list[str] = []
        if kind == "create" and random.random() < 0.4:
            own = [f"own{len(self._requests)}-{number}" for number in range(2 * _OWN)]
        return self._made(kind, own[:_OWN] + names + own[_OWN:], own)

    def _made(self, kind: str, names: list[str], own: list[str]) -> _Request:
        count = 1 if own else self._random.randint(1, _PARTITIONS_MAX)
        message: Message
        if kind == "create":
            message = CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=name, num_partitions=count, replication_factor=1)
                    for name in names
                ],
                timeout_ms=30_000,
            )
        elif kind == "delete":
            topics = [DeleteTopicState(name=name) for name in names]
            message = DeleteTopicsRequest(topics=topics, timeout_ms=30_000)
        elif kind == "grow":
            grown = [
                CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names
            ]
            message = CreatePartitionsRequest(topics=grown, timeout_ms=30_000)
        else:
            message = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        operations = {name: Operation(kind, self._tick(), count=count) for name in names}
        request = _Request(message, kind, operations, self._world.broker.starts, own)
        self._requests.append(request)
        return request

    def _send(self, requests: list[_Request], writer: asyncio.StreamWriter) -> None:
        for number, request in enumerate(requests):
            if number:
                before = requests[number - 1].operations
                for name, each in request.operations.items():
                    each.after = before.get(name)
            version = api_of(request.message).versions.last
            writer.writelines(frames.encode_request(request.message, version, number, "long"))

    def _answered(self, request: _Request, response: Any) -> None:
        request.answered = True
        now = self._tick()
        rows = {
            "create": lambda: response.topics,
            "delete": lambda: response.responses,
            "grow": lambda: response.results,
            "look": lambda: response.topics,
        }[request.kind]()
        for row in rows:
            each = request.operations.get(row.name)
            if each is None or row.error_code not in _CERTAIN[request.kind]:
                continue
            each.done, each.ended = _CERTAIN[request.kind][row.error_code], now
            if row.error_code == _E.NONE and request.kind == "create":
                each.topic = (row.topic_id, each.count)
            elif row.error_code == _E.NONE and request.kind == "look":
                each.topic = (row.topic_id, len(row.partitions))

    # --- Checks ---

    async def check(self) -> Iterator[str]:
        """The answers about each topic are those of some order, and a request whose connection was
        closed has been carried out as a whole or not at all, apart from what the disk refused."""
        host, _, port = self._world.broker.bootstrap.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        own = [name for request in self._requests for name in request.own]
        last = self._made("look", _SHARED + own, [])
        self._send([last], writer)
        self._answered(last, await _received(reader, last.message))
        writer.close()
        return self._problems(last)

    def _problems(self, last: _Request) -> Iterator[str]:
        for name in _SHARED:
            operations = [
                request.operations[name]
                for request in self._requests
                if name in request.operations
                and (request.kind != "look" or request.operations[name].done)
            ]
            if not in_some_order(operations):
                yield f"the answers about {name} are not those of any order"
                break  # The search takes long where there is no order.
        for request in self._requests:
            made = [name for name in request.own if last.operations[name].topic is not None]
            whole = request.answered or self._world.broker.starts == request.starts
            if whole and made and not self._refused.issuperset({*request.own} - {*made}):
                yield f"of {len(request.own)} topics of one request there are {len(made)}"


async def _received(reader: asyncio.StreamReader, request: Message) -> Any:
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(size)
    api = api_of(request)
    return frames.decode_response(api, api.versions.last, memoryview(frame))
