"""The turns of connections: no connection delays the others for long (rules N-56, N-57)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from logs import make_batch
from node_world import NodeWorld
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.message import Message
from odradek_protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.elect_leaders import ElectLeadersRequest
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from odradek_testkit.simulation.network import SimulatedNetwork
from odradek_testkit.simulation.simulate import run
from session_in_memory import Connection


def played(story: Callable[[Connection], Awaitable[None]]) -> None:
    async def main() -> None:
        world = NodeWorld(log_durability="page-cache")
        world.create("orders")
        await story(Connection(world))

    run(main, SimulatedNetwork())


def large() -> tuple[Message, int]:
    """A request of 300 KB with a single field, which is handled at once."""
    return SaslAuthenticateRequest(auth_bytes=bytes(300_000)), 2


def elections(times: int) -> tuple[Message, int]:
    topics = [PartitionsOfTopic(topic="orders", partitions=[0] * times)]
    return ElectLeadersRequest(topic_partitions=topics), 2


def moves(times: int) -> tuple[Message, int]:
    partitions = [ReassignablePartition(partition_index=0, replicas=[1]) for _ in range(times)]
    topics = [ReassignableTopic(name="orders", partitions=partitions)]
    return AlterPartitionReassignmentsRequest(topics=topics), 1


@pytest.mark.full
def test_n56_other_connections_get_a_turn_between_large_requests() -> None:
    async def story(connection: Connection) -> None:
        wire = connection.wire
        connection.arrive([large()] * 4)
        for answered in (1, 2, 3):
            assert (wire.answers, wire.reading) == (answered, False)
            await asyncio.sleep(0)
            connection.read()
        assert wire.answers == 4
        await asyncio.sleep(0)
        assert wire.reading and not wire.closed

    played(story)


@pytest.mark.full
@pytest.mark.parametrize("request_of", [elections, moves])
def test_n57_other_connections_are_served_during_a_long_request(
    request_of: Callable[[int], tuple[Message, int]],
) -> None:
    async def story(connection: Connection) -> None:
        other = Connection(connection.world)
        connection.arrive([request_of(5_000)] * 4)
        turns = 0
        while connection.wire.answers < 4:
            assert connection.world.soon.turn()
            turns += 1
            other.arrive([(ApiVersionsRequest(), 0)])
            assert other.wire.answers == turns
            await asyncio.sleep(0)
            connection.read()
        assert turns > 20

    played(story)


@pytest.mark.full
def test_n56_other_connections_get_a_turn_between_many_small_requests() -> None:
    async def story(connection: Connection) -> None:
        wire = connection.wire
        connection.arrive([(ApiVersionsRequest(), 0)] * 100)
        assert (wire.answers, wire.reading) == (100, True)
        connection.arrive([(ApiVersionsRequest(), 0)] * 10_000)
        assert 100 < wire.answers < 400 and not wire.reading
        for _ in range(100):
            await asyncio.sleep(0)
            connection.read()
        assert (wire.answers, wire.reading) == (10_100, True)

    played(story)


def test_n56_other_connections_get_a_turn_between_slow_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(connection: Connection) -> None:
        times = count(1.0, 0.001)  # Each look at the clock takes a millisecond.
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: next(times))
        connection.arrive([(ApiVersionsRequest(), 0)] * 100)
        assert connection.wire.answers < 5 and not connection.wire.reading
        for _ in range(100):
            await asyncio.sleep(0)
            connection.read()
        assert (connection.wire.answers, connection.wire.reading) == (100, True)

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
        connection.arrive([(ApiVersionsRequest(), 0)] * 1_500)
        connection.session.close_after_answers()
        assert wire.answers < 1_500 and not wire.closed
        for _ in range(20):
            await asyncio.sleep(0)
        assert (wire.answers, wire.closed) == (1_500, True)

    played(story)


@pytest.mark.full
def test_n57_a_stop_answers_the_long_requests_that_have_arrived() -> None:
    async def story(connection: Connection) -> None:
        wire = connection.wire
        connection.arrive([elections(5_000)] * 3)
        connection.session.close_after_answers()
        assert (wire.answers, wire.closed) == (0, False)
        while not wire.closed:
            assert connection.world.soon.turn()
            await asyncio.sleep(0)
        assert wire.answers == 3

    played(story)


@pytest.mark.full
@pytest.mark.parametrize("request_of", [large, lambda: elections(5_000)])
def test_n56_n57_a_lost_connection_has_no_further_turn(
    request_of: Callable[[], tuple[Message, int]],
) -> None:
    async def story(connection: Connection) -> None:
        connection.arrive([request_of()] * 3)
        answered = connection.wire.answers
        assert answered < 2
        connection.session.connection_lost(None)
        for _ in range(3):
            await asyncio.sleep(0)
            connection.world.soon.run()
        assert connection.wire.answers == answered

    played(story)


def test_n03_a_chain_of_connections_that_wait_for_each_other_needs_no_deep_stack() -> None:
    count = 300

    def fetch(partition: int) -> tuple[Message, int]:
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="chain", partitions=[asked])]
        return FetchRequest(max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20, topics=topics), 11

    def produce(partition: int) -> tuple[Message, int]:
        data = PartitionProduceData(index=partition, records=make_batch(1))
        topics = [TopicProduceData(name="chain", partition_data=[data])]
        return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9

    async def story(first: Connection) -> None:
        world = first.world
        world.create("chain", count + 1)
        world.soon.run()
        connections = [Connection(world) for _ in range(count)]
        for number, connection in enumerate(connections):
            connection.arrive([fetch(number), produce(number + 1)])
        deepest = 0

        def deep(*_: object) -> None:
            nonlocal deepest
            deepest = max(deepest, len(inspect.stack(0)))

        last = world.node.partition("chain", count)
        assert last is not None
        last.data_waiters[deep] = None
        first.arrive([produce(0)])
        for _ in range(2 * count):
            await asyncio.sleep(0)
        assert [connection.wire.answers for connection in connections] == [2] * count
        assert 0 < deepest < 100

    played(story)
