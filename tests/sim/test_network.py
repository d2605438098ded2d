"""Connections without sockets: order, pieces, limits, ends; and real clients and brokers that use
these connections."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from logs import make_batch
from node_world import NodeWorld
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.server.session import ConnectionSession
from odradek_broker.server.session_limits import SessionLimits
from odradek_client.network.transport import Transport
from odradek_protocol.frames import SCRATCH_BYTES, FrameReceiver, encode_request
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_testkit.simulation.clock import SimulatedClock
from odradek_testkit.simulation.network import SimulatedNetwork, SimulatedTransport, Weather
from odradek_testkit.simulation.simulate import run


class Recorder(asyncio.Protocol):
    """A protocol that records its calls."""

    def __init__(self) -> None:
        self.received = b""
        self.told: list[str] = []
        self.problem: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def eof_received(self) -> bool | None:
        self.told.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")
        self.problem = exc


async def connected(
    network: SimulatedNetwork, port: int = 9092
) -> tuple[Recorder, Recorder, SimulatedTransport]:
    """(client, server, the client's transport)."""
    loop = asyncio.get_running_loop()
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    await loop.create_server(accept, "broker", port)
    transport, client = await loop.create_connection(Recorder, "broker", port)
    assert isinstance(transport, SimulatedTransport)
    return client, accepted[0], transport


def test_bytes_arrive_whole_and_in_order() -> None:
    network = SimulatedNetwork(Random(7), Weather(delay_ms=(1, 50), piece_bytes_max=9))
    sent = [bytes([number]) * (number % 40) for number in range(200)]

    async def story() -> None:
        client, server, transport = await connected(network)
        transport.writelines(sent)
        server.transport.write(b"answer")
        await asyncio.sleep(10)
        assert server.received == b"".join(sent)
        assert client.received == b"answer"

    run(story, network)


def test_the_same_seed_gives_the_same_pieces_at_the_same_times() -> None:
    def trace(seed: int) -> list[tuple[float, bytes]]:
        network = SimulatedNetwork(Random(seed), Weather(delay_ms=(1, 50), piece_bytes_max=9))
        seen: list[tuple[float, bytes]] = []

        async def story() -> None:
            _, server, transport = await connected(network)
            loop = asyncio.get_running_loop()
            server.data_received = lambda data: seen.append((loop.time(), data))  # type: ignore[method-assign]
            for number in range(20):
                transport.write(bytes([number]) * 30)
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)

        run(story, network)
        return seen

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_virtual_time_passes_at_once() -> None:
    async def story() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert run(story) >= 86_400


def test_connections_without_a_listener_or_to_a_dead_host_are_refused() -> None:
    network = SimulatedNetwork()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "broker", 9092)
        server = await loop.create_server(Recorder, "broker", 9092)
        with pytest.raises(OSError, match="in use"):
            await loop.create_server(Recorder, "broker", 9092)
        network.unreachable.add(("broker", 9092))
        with pytest.raises(TimeoutError):
            await loop.create_connection(Recorder, "broker", 9092)
        network.unreachable.clear()
        await loop.create_connection(Recorder, "broker", 9092)
        server.close()
        assert not server.is_serving()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "broker", 9092)

    run(story, network)


def test_a_writer_pauses_while_its_peer_does_not_read() -> None:
    network = SimulatedNetwork()

    async def story() -> None:
        client, server, transport = await connected(network)
        transport.set_write_buffer_limits(high=1_000)
        server.transport.pause_reading()
        for _ in range(30):
            transport.write(bytes(100))
        await asyncio.sleep(1)
        assert server.received == b""
        assert (client.told, transport.get_write_buffer_size()) == (["made", "pause"], 3_000)
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert len(server.received) == 3_000
        assert (client.told, transport.get_write_buffer_size()) == (["made", "pause", "resume"], 0)

    run(story, network)


def test_close_delivers_written_bytes_and_abort_drops_them() -> None:
    network = SimulatedNetwork(weather=Weather(delay_ms=(5, 5)))

    async def story(end: str) -> Recorder:
        client, server, transport = await connected(network, port=1 if end == "close" else 2)
        transport.write(b"last words")
        getattr(transport, end)()
        transport.write(b"too late")
        await asyncio.sleep(1)
        assert client.told == ["made", "lost"]
        assert not network.transports
        return server

    closed = run(lambda: story("close"), network)
    assert (closed.received, closed.told, closed.problem) == (
        b"last words",
        ["made", "eof", "lost"],
        None,
    )
    aborted = run(lambda: story("abort"), network)
    assert (aborted.received, aborted.told) == (b"", ["made", "lost"])
    assert isinstance(aborted.problem, ConnectionResetError)


def test_cut_connections_end_for_both_sides_and_silent_ones_for_neither() -> None:
    network = SimulatedNetwork()

    async def story() -> None:
        client, server, transport = await connected(network)
        transport.silent = True
        transport.write(b"into the void")
        server.transport.write(b"heard")
        await asyncio.sleep(1)
        assert (server.received, client.received) == (b"", b"heard")
        assert (server.told, client.told) == (["made"], ["made"])
        assert network.cut_all(("broker", 1)) == 0
        assert network.cut_all(("broker", 9092)) == 2
        assert (server.told, client.told) == (["made", "lost"], ["made", "lost"])

    run(story, network)


def test_a_monotonic_clock_never_goes_back_while_its_wall_clock_jumps() -> None:
    clock = SimulatedClock(5)
    clock.advance(10)
    clock.jump(-60_000)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (15, 1_700_000_000_015 - 60_000)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def produce(topic: str, batch: memoryview) -> ProduceRequest:
    """One batch for partition 0, acks=1."""
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


class Client:
    """The owner of a client's transport; it records the calls that it gets."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost: list[str] = []

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def connection_lost(self, reason: str, *, certain: bool = False) -> None:
        self.lost.append(reason)

    def writable_again(self) -> None: ...


@pytest.mark.parametrize("piece_bytes_max", [0, 1, 7])
def test_the_shipped_client_and_broker_use_the_simulated_network(piece_bytes_max: int) -> None:
    """Session and transport are the shipped ones; only the event loop differs."""
    network = SimulatedNetwork(Random(3), Weather((0.1, 2), piece_bytes_max))

    async def story() -> None:
        world = NodeWorld(log_durability="page-cache")
        world.create("orders")
        dispatcher = Dispatcher(world.node, 1_000_000)
        limits = SessionLimits(5, 1_000_000, 10_000_000)
        gone: list[ConnectionSession] = []
        scratch = memoryview(bytearray(SCRATCH_BYTES))

        def accept() -> ConnectionSession:
            receiver = FrameReceiver(1_000_000, scratch)
            return ConnectionSession(
                dispatcher, 1, receiver, limits, world.node.metrics, gone.append
            )

        await asyncio.get_running_loop().create_server(accept, "broker", 9092)
        client = Client()
        transport = await Transport.connect(client, "broker", 9092, 1_000_000)
        for correlation_id in range(3):
            transport.write(
                encode_request(produce("orders", make_batch(10)), 3, correlation_id, "me")
            )
        await asyncio.sleep(60)
        assert world.end("orders") == 30
        assert [int.from_bytes(frame[:4], "big") for frame in client.frames] == [0, 1, 2]
        network.cut_all()
        assert (len(gone), len(client.lost)) == (1, 1)

    run(story, network)
