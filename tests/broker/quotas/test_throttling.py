"""Throttled connections in virtual time: their answers, and the end of their wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from logs import make_batch
from node_world import NodeWorld
from odradek_broker.quotas.client_quotas import QuotaKey, quota_entity
from odradek_broker.quotas.managers import QuotaManagers
from odradek_broker.quotas.rates import Windows
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.server.session import ConnectionSession
from odradek_broker.server.session_limits import SessionLimits
from odradek_protocol import codec, frames
from odradek_protocol.frames import SCRATCH_BYTES, FrameReceiver
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    MirroredPartition,
    MirroredTopic,
)
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_testkit.simulation.clock import LoopClock
from odradek_testkit.simulation.network import SimulatedNetwork
from odradek_testkit.simulation.simulate import run

CLIENT = quota_entity([("client-id", "c")])


class Peer(asyncio.Protocol):
    """A client that sends any requests, and records the times of the answers in seconds of the
    loop."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.sent: list[tuple[Any, int]] = []
        self.answers: list[tuple[float, Any]] = []
        self.lost = False
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, request: Message, version: int, client_id: str = "c") -> None:
        self.transport.write(self.frame(request, version, client_id))

    def frame(self, request: Message, version: int, client_id: str = "c") -> bytes:
        """Encode a request whose answer the client expects."""
        api = api_of(request)
        self.sent.append((api, version))
        parts = frames.encode_request(request, version, len(self.sent), client_id)
        return b"".join(bytes(part) for part in parts)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            frame, self._buffer = self._buffer[4:end], self._buffer[end:]
            api, version = self.sent[int.from_bytes(frame[:4], "big") - 1]
            at_s = asyncio.get_running_loop().time()
            self.answers.append((at_s, frames.decode_response(api, version, frame)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Broker:
    """A node, its dispatcher and its sessions on virtual time; `peer` connects a client."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.world = NodeWorld(log_durability="page-cache")
        self.node = self.world.node
        windows = Windows(11, 1000)
        self.node.quotas = QuotaManagers(LoopClock(loop), windows, windows)
        self.world.create("orders")
        self.dispatcher = Dispatcher(self.node, 1_000_000)
        self.limits = SessionLimits(100, 1_000_000, 10_000_000)
        self.sessions: list[ConnectionSession] = []
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))

    def accept(self) -> ConnectionSession:
        receiver = FrameReceiver(1_000_000, self.scratch)
        metrics = self.node.metrics
        session = ConnectionSession(
            self.dispatcher, 1, receiver, self.limits, metrics, self.sessions.remove
        )
        self.sessions.append(session)
        return session

    async def peer(self) -> Peer:
        loop = asyncio.get_running_loop()
        if not self.sessions:
            await loop.create_server(self.accept, "broker", 9092)
        _, peer = await loop.create_connection(Peer, "broker", 9092)
        return peer

    def quota(self, key: QuotaKey, limit: float | None) -> None:
        self.node.quotas.update(CLIENT, key, limit)


def played(story: Callable[[Broker, Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = Broker()
        await story(broker, await broker.peer())

    run(main, SimulatedNetwork())


def produce(acks: int = -1, records: int = 10) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=make_batch(records))
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="orders", partition_data=[data])],
    )


def body_bytes(request: Message, version: int) -> int:
    return len(codec.encode_bytes(request, version))


def fetch(offset: int = 0, session: tuple[int, int] = (0, -1)) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="orders", partitions=[asked])],
    )


def test_n11_a_throttled_request_is_answered_at_once_and_the_next_one_waits() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        # The request is twice the quota of ten seconds, so the wait is ten seconds.
        broker.quota(QuotaKey.PRODUCER_BYTE_RATE, body_bytes(produce(), 9) / 20)
        start_s = asyncio.get_running_loop().time()
        peer.send(produce(), 9)
        peer.send(ApiVersionsRequest(), 0)
        await asyncio.sleep(60)
        (produced_s, produced), (later_s, _) = peer.answers
        assert produced.throttle_time_ms == 10_000
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert (produced_s, later_s) == pytest.approx((start_s, start_s + 10), abs=0.001)
        assert broker.node.metrics.throttled_requests == {"Produce": 1}
        assert broker.node.metrics.throttle_time_ms == {"Produce": 10_000}

    played(story)


def test_n11_a_produce_with_acks_0_throttles_its_connection() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        broker.quota(QuotaKey.PRODUCER_BYTE_RATE, body_bytes(produce(0), 9) / 20)
        start_s = asyncio.get_running_loop().time()
        peer.send(produce(0), 9)
        peer.send(ApiVersionsRequest(), 0)
        await asyncio.sleep(60)
        assert [at_s for at_s, _ in peer.answers] == pytest.approx([start_s + 10], abs=0.001)
        assert broker.world.end("orders") == 10

    played(story)


def test_q07_requests_after_a_throttled_request_are_handled_after_its_wait() -> None:
    """The broker handles requests in advance until one exceeds the quota."""

    async def story(broker: Broker, peer: Peer) -> None:
        size = body_bytes(produce(), 9)
        broker.quota(QuotaKey.PRODUCER_BYTE_RATE, 3 * size / 10)
        for _ in range(6):
            peer.send(produce(), 9)
        await asyncio.sleep(1)
        assert broker.world.end("orders") == 40
        throttled = [answer.throttle_time_ms for _, answer in peer.answers]
        assert throttled == [0, 0, 0, 3333]
        await asyncio.sleep(600)
        assert broker.world.end("orders") == 60
        times_s = [at_s for at_s, _ in peer.answers]
        assert times_s[4] - times_s[3] == pytest.approx(3.333, abs=0.001)

    played(story)


def test_n11_a_throttled_client_does_not_delay_other_clients() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        broker.quota(QuotaKey.PRODUCER_BYTE_RATE, 1)
        other = await broker.peer()
        peer.send(produce(), 9)
        for turn in range(3):
            other.send(produce(), 9, client_id="d")
            await asyncio.sleep(1)
            assert len(other.answers) == turn + 1
        assert [answer.throttle_time_ms for _, answer in other.answers] == [0, 0, 0]

    played(story)


def test_n11_a_throttled_connection_is_not_read() -> None:
    """The data of a throttled connection stays in the network. The broker's only memory for the
    data is a receive buffer."""

    async def story(broker: Broker, peer: Peer) -> None:
        broker.quota(QuotaKey.PRODUCER_BYTE_RATE, 1)
        peer.send(produce(), 9)
        await asyncio.sleep(1)
        for _ in range(50):
            peer.send(MetadataRequest(topics=None), 9)
            await asyncio.sleep(0.01)
        assert len(peer.answers) == 1
        assert broker.limits.bytes_held == 0
        assert peer.transport.get_write_buffer_size() > 49 * 20

    played(story)


def test_n11_a_stop_answers_the_requests_of_a_throttled_connection() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        broker.quota(QuotaKey.PRODUCER_BYTE_RATE, 1)
        both = peer.frame(produce(), 9) + peer.frame(MetadataRequest(topics=None), 9)
        peer.transport.write(both)
        await asyncio.sleep(1)
        assert len(peer.answers) == 1
        broker.sessions[0].close_after_answers()
        await asyncio.sleep(1)
        # The stop ends the throttling: the second request is answered immediately.
        assert len(peer.answers) == 2
        assert peer.lost
        assert broker.sessions == []

    played(story)


def test_n11_an_aborted_connection_is_no_longer_throttled() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        broker.quota(QuotaKey.PRODUCER_BYTE_RATE, 1)
        peer.send(produce(), 9)
        peer.send(produce(), 9)
        await asyncio.sleep(1)
        peer.transport.abort()
        await asyncio.sleep(3600 * 24)
        assert broker.sessions == []
        assert broker.world.end("orders") == 10

    played(story)


@pytest.mark.parametrize("version", [4, 7, 12])
def test_q08_a_fetch_answer_over_the_quota_is_withheld_and_not_counted(version: int) -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        broker.world.produce("orders", 100)
        peer.send(fetch(), version)
        await asyncio.sleep(1)
        records = len(peer.answers[0][1].responses[0].partitions[0].records)
        broker.quota(QuotaKey.CONSUMER_BYTE_RATE, records / 20)
        peer.send(fetch(), version)
        await asyncio.sleep(1)
        _, withheld = peer.answers[1]
        assert withheld.responses == []
        assert withheld.throttle_time_ms > 10_000
        assert [rate for *_, rate in broker.node.quotas.fetch.usages()] == [0.0]  # type: ignore[union-attr]
        broker.quota(QuotaKey.CONSUMER_BYTE_RATE, None)
        await asyncio.sleep(60)
        peer.send(fetch(), version)
        await asyncio.sleep(1)
        assert len(peer.answers[2][1].responses[0].partitions[0].records) == records

    played(story)


def test_q08_a_withheld_answer_leaves_its_fetch_session_unchanged() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        peer.send(fetch(session=(0, 0)), 11)
        await asyncio.sleep(1)
        session_id = peer.answers[0][1].session_id
        assert session_id
        broker.world.produce("orders", 100)
        broker.quota(QuotaKey.CONSUMER_BYTE_RATE, 20)
        incremental = FetchRequest(
            max_bytes=1 << 20, session_id=session_id, session_epoch=1, topics=[]
        )
        peer.send(incremental, 11)
        await asyncio.sleep(1)
        withheld = peer.answers[1][1]
        assert (withheld.session_id, withheld.error_code) == (session_id, 0)
        assert withheld.responses == []
        broker.quota(QuotaKey.CONSUMER_BYTE_RATE, None)
        await asyncio.sleep(3600)
        incremental.session_epoch = 2
        peer.send(incremental, 11)
        await asyncio.sleep(1)
        assert len(peer.answers[2][1].responses[0].partitions[0].records) > 0

    played(story)


def test_q08_a_withheld_answer_begins_no_fetch_session() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        broker.world.produce("orders", 100)
        broker.quota(QuotaKey.CONSUMER_BYTE_RATE, 20)
        peer.send(fetch(session=(0, 0)), 11)
        await asyncio.sleep(1)
        assert peer.answers[0][1].session_id == 0
        assert len(broker.node.fetch_sessions) == 0

    played(story)


def test_q08_a_fetch_reads_no_more_than_the_quota_allows() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        for _ in range(10):
            broker.world.produce("orders", 100)
        peer.send(fetch(), 11)
        await asyncio.sleep(1)
        whole = len(peer.answers[0][1].responses[0].partitions[0].records)
        # The quota of ten seconds is two and a half batches.
        broker.quota(QuotaKey.CONSUMER_BYTE_RATE, whole / 40)
        peer.send(fetch(), 11)
        await asyncio.sleep(1)
        answer = peer.answers[1][1]
        assert answer.throttle_time_ms == 0
        assert len(answer.responses[0].partitions[0].records) == whole // 5

    played(story)


def test_q09_the_request_quota_counts_the_time_of_all_requests() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        ticks = iter(range(0, 10**12, 300_000))
        broker.node.metrics.now_us = lambda: next(ticks)
        broker.quota(QuotaKey.REQUEST_PERCENTAGE, 2)
        peer.send(MetadataRequest(topics=None), 9)
        await asyncio.sleep(1)
        # The request took 3 % of ten seconds, and the quota is 2 %. The wait would be 5 s, but is
        # limited to one window.
        assert peer.answers[0][1].throttle_time_ms == 1000
        assert broker.node.metrics.throttled_requests == {"Request": 1}

    played(story)


def test_q09_append_mirror_records_is_exempt_from_quotas() -> None:
    """Kafka exempts the requests of followers in the same way. `odradek mirror` has a setting that
    limits its rate."""

    async def story(broker: Broker, peer: Peer) -> None:
        ticks = iter(range(0, 10**12, 300_000))
        broker.node.metrics.now_us = lambda: next(ticks)
        broker.quota(QuotaKey.REQUEST_PERCENTAGE, 2)
        broker.quota(QuotaKey.PRODUCER_BYTE_RATE, 1)
        part = MirroredPartition(partition_index=0, records=b"x" * 10_000)
        topics = [MirroredTopic(name="t", topic_id=bytes(16), source="", partitions=[part])]
        peer.send(AppendMirrorRecordsRequest(timeout_ms=1_000, topics=topics), 0)
        await asyncio.sleep(1)
        assert peer.answers[0][1].throttle_time_ms == 0
        assert broker.node.metrics.throttled_requests == {}

    played(story)


def test_q10_topics_auto_created_by_metadata_count_towards_the_quota() -> None:
    async def story(broker: Broker, peer: Peer) -> None:
        # The bucket has tokens for 0.55 partitions; one partition overdraws it by 0.45.
        broker.quota(QuotaKey.CONTROLLER_MUTATION_RATE, 0.05)
        peer.send(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 9)
        await asyncio.sleep(1)
        broker.world.flush()
        await asyncio.sleep(1)
        _, answer = peer.answers[0]
        assert answer.throttle_time_ms == 9_000
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("new", 0)]

    played(story)
