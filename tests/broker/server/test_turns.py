"""The turns of connections: no connection delays the others for long (rule N-56)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from logs import make_batch
from node_world import NodeWorld
from odradek.simulation.network import SimulatedNetwork
from odradek.simulation.simulate import run
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.server.session import Session
from odradek_broker.server.session_limits import SessionLimits
from odradek_protocol import frames
from odradek_protocol.frames import FrameReceiver
from odradek_protocol.message import Message
from odradek_protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def _size_at(frames: bytes, at: int) -> int:
    return int.from_bytes(frames[at : at + 4], "big")


class Wire(asyncio.Transport):
    """Counts the complete answers that a session has sent; `reading`: False while the session is
    paused."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self._unfinished = b""
        self.reading = True
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: Any) -> None:
        sent, at = self._unfinished + bytes(data), 0
        while len(sent) >= at + 4 and len(sent) >= (end := at + 4 + _size_at(sent, at)):
            self.answers += 1
            at = end
        self._unfinished = sent[at:]

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0


class Connection:
    """A session without a network. `arrive` passes requests to the session in one turn of the loop,
    until the session pauses reading."""

    def __init__(self) -> None:
        world = NodeWorld(log_durability="page-cache")
        world.create("orders")
        self.wire = Wire()
        self._waiting = b""
        self.session = Session(
            Dispatcher(world.node, 10_000_000),
            1,
            FrameReceiver(10_000_000),
            SessionLimits(100, 100_000_000, 100_000_000),
            world.node.metrics,
            lambda _: None,
        )
        self.session.connection_made(self.wire)

    def arrive(self, requests: Sequence[tuple[Message, int]]) -> None:
        for number, (request, version) in enumerate(requests):
            self._waiting += b"".join(frames.encode_request(request, version, number, "c"))
        self.read()

    def read(self) -> None:
        while self._waiting and self.wire.reading:
            buffer = self.session.get_buffer(-1)
            size = min(len(buffer), len(self._waiting))
            buffer[:size] = self._waiting[:size]
            self._waiting = self._waiting[size:]
            self.session.buffer_updated(size)


def played(story: Callable[[Connection], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(Connection())

    run(main, SimulatedNetwork())


def elections(times: int) -> tuple[Message, int]:
    topics = [TopicPartitions(topic="orders", partitions=[0] * times)]
    return ElectLeadersRequest(topic_partitions=topics), 2


def moves(times: int) -> tuple[Message, int]:
    partitions = [ReassignablePartition(partition_index=0, replicas=[1]) for _ in range(times)]
    topics = [ReassignableTopic(name="orders", partitions=partitions)]
    return AlterPartitionReassignmentsRequest(topics=topics), 1


@pytest.mark.full
@pytest.mark.parametrize("request_of", [elections, moves])
def test_n56_other_connections_get_a_turn_between_large_requests(
    request_of: Callable[[int], tuple[Message, int]],
) -> None:
    """The requests name one partition 5,000 times in an election and 20,000 times in a move,
    because the answer to a move is smaller."""
    times = 5_000 if request_of is elections else 20_000

    async def story(connection: Connection) -> None:
        wire = connection.wire
        connection.arrive([request_of(times)] * 4)
        for answered in (1, 2, 3):
            assert (wire.answers, wire.reading) == (answered, False)
            await asyncio.sleep(0)
            connection.read()
        assert wire.answers == 4
        await asyncio.sleep(0)
        assert wire.reading and not wire.closed

    played(story)


@pytest.mark.full
def test_n56_other_connections_get_a_turn_between_many_small_requests() -> None:
    async def story(connection: Connection) -> None:
        wire = connection.wire
        connection.arrive([(ApiVersionsRequest(), 0)] * 100)
        assert (wire.answers, wire.reading) == (100, True)
        connection.arrive([(ApiVersionsRequest(), 0)] * 10_000)
        assert 100 < wire.answers < 2_100 and not wire.reading
        for _ in range(30):
            await asyncio.sleep(0)
            connection.read()
        assert (wire.answers, wire.reading) == (10_100, True)

    played(story)


@pytest.mark.full
def test_n56_produce_and_fetch_requests_take_no_turns() -> None:
    async def story(connection: Connection) -> None:
        data = PartitionProduceData(index=0, records=make_batch(1, value=b"x" * 200_000))
        produce = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="orders", partition_data=[data])],
        )
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        fetch = FetchRequest(
            max_bytes=1 << 20, topics=[FetchTopic(topic="orders", partitions=[asked])]
        )
        connection.arrive([(produce, 9)] * 5 + [(fetch, 11)] * 5)
        assert connection.wire.answers == 10 and connection.wire.reading

    played(story)


@pytest.mark.full
def test_n56_a_stop_answers_the_requests_that_have_arrived() -> None:
    async def story(connection: Connection) -> None:
        wire = connection.wire
        connection.arrive([elections(5_000)] * 3)
        connection.session.close_after_answers()
        assert (wire.answers, wire.closed) == (1, False)
        for _ in range(3):
            await asyncio.sleep(0)
        assert (wire.answers, wire.closed) == (3, True)

    played(story)


@pytest.mark.full
def test_n56_a_lost_connection_has_no_further_turn() -> None:
    async def story(connection: Connection) -> None:
        connection.arrive([elections(5_000)] * 3)
        connection.session.connection_lost(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert connection.wire.answers == 1

    played(story)
