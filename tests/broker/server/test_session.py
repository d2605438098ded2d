"""Connections: order, back pressure, closing (rules N-01..N-10, N-14)."""

from __future__ import annotations

import asyncio
import os
import socket
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_in_loop import RunningBroker, StartBroker
from mirror_world import SOURCE
from node_world import NodeWorld
from odradek_broker.deferred import Deferred
from odradek_broker.handlers.fetch import ERRORS_KEPT_MAX
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.request import CloseConnection
from odradek_broker.server.dispatch import _resolve
from odradek_broker.server.host import divide_files
from odradek_broker.server.session import ConnectionSession, Pause
from odradek_protocol import frames, repeated_lines
from odradek_protocol.constants import RESOURCE_BROKER
from odradek_protocol.errors import ErrorCode
from odradek_protocol.frames import SCRATCH_BYTES
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    MirroredPartition,
    MirroredTopic,
)
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.metadata import MetadataRequest
from odradek_testkit.simulation.network import SimulatedNetwork
from odradek_testkit.simulation.simulate import run
from raw_client import RawClient, batch_of, produce_request
from session_in_memory import Connection
from waiting import until


def long_poll(topic: str, offset: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )


def ends_of(topic: str) -> ListOffsetsRequest:
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[latest])]
    )


async def test_n03_requests_behind_a_parked_fetch_are_carried_out_after_it(
    client: RawClient, broker: RunningBroker
) -> None:
    await client.create_topic("t")
    client.send(long_poll("t", 0), 11)
    client.send(produce_request("t", batch_of(b"late")), 9)
    client.send(MetadataRequest(topics=None), 9)
    await until(lambda: len(broker.node.parked_fetches) == 1)
    other = await broker.client()
    assert (await other.call(ends_of("t"), 7)).topics[0].partitions[0].offset == 0
    await other.call(produce_request("t", batch_of(b"first")), 9)
    fetched = await client.receive()
    assert b"first" in bytes(fetched.responses[0].partitions[0].records)
    produced = await client.receive()
    assert produced.responses[0].partition_responses[0].base_offset == 1
    metadata = await client.receive()
    assert [topic.name for topic in metadata.topics] == ["t"]


async def test_n03_a_produce_behind_the_creation_of_its_topic_finds_it(client: RawClient) -> None:
    for name in ("one", "two", "three"):
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        client.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        client.send(produce_request(name, batch_of(b"a")), 9)
        client.send(ends_of(name), 7)
    for _ in range(3):
        assert (await client.receive()).topics[0].error_code == 0
        produced = await client.receive()
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert (await client.receive()).topics[0].partitions[0].offset == 1


async def test_n03_transactional_ids_are_initialised_one_after_the_other(client: RawClient) -> None:
    await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 6)
    for _ in range(5):
        client.send(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
    answers = [await client.receive() for _ in range(5)]
    assert [answer.error_code for answer in answers] == [0] * 5
    assert [answer.producer_epoch for answer in answers] == [0, 1, 2, 3, 4]


async def test_n03_many_pipelined_produces_keep_their_order(client: RawClient) -> None:
    await client.create_topic("t")
    for index in range(300):
        client.send(produce_request("t", batch_of(b"%d" % index)), 9)
    answers = [await client.receive() for _ in range(300)]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(300))


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_n03_a_request_sees_earlier_produces_of_its_connection(
    client: RawClient, acks: int
) -> None:
    await client.create_topic("t")
    for turn in range(5):
        for value in (b"a", b"b"):
            client.send(produce_request("t", batch_of(value), acks=acks), 9)
        client.send(ends_of("t"), 7)
        client.send(long_poll("t", 2 * turn), 11)
        if acks:
            assert [await client.receive() for _ in range(2)]
        else:
            client.expect_no_answer(2)
        ends = await client.receive()
        assert ends.topics[0].partitions[0].offset == 2 * turn + 2
        fetched = await client.receive()
        assert fetched.responses[0].partitions[0].high_watermark == 2 * turn + 2


def test_n14_requests_over_the_in_flight_limit_wait() -> None:
    async def main() -> None:
        world = NodeWorld()
        world.create("t")
        world.flush()
        connection = Connection(world, in_flight_max=2)
        connection.arrive([(produce_request("t", batch_of(b"a")), 9)] * 5)
        for appended, answered in ((2, 0), (4, 2), (5, 4)):
            await asyncio.sleep(0)
            assert (world.end("t"), connection.wire.answers) == (appended, answered)
            world.flush()
        await asyncio.sleep(0)
        assert connection.wire.answers == 5

    run(main, SimulatedNetwork())


def test_n14_many_small_requests_behind_another_wait_as_the_bytes_that_arrived() -> None:
    async def main() -> None:
        world = NodeWorld()
        world.create("t")
        world.flush()
        connection = Connection(world)
        small = [(ApiVersionsRequest(), 0)] * 8_000
        tracemalloc.start()
        connection.arrive([(produce_request("t", batch_of(b"a")), 9), *small])
        held_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held_bytes < 8 * SCRATCH_BYTES
        assert (connection.wire.answers, connection.wire.reading) == (0, False)
        world.flush()
        while connection.wire.answers <= len(small):
            before = connection.wire.answers
            await asyncio.sleep(0)
            connection.read()
            assert connection.wire.answers > before
        assert connection.wire.reading

    run(main, SimulatedNetwork())


async def test_g164_what_is_kept_of_errors_in_answers_to_fetches_is_small(
    broker: RunningBroker,
) -> None:
    client = await broker.client()
    await client.create_topic("t")
    names = [f"missing-{number}" for number in range(200)]
    longer = [f"{number:030000}" for number in range(10)]
    topics = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=0)])
        for name in (*names, *longer)
    ]
    for _ in range(2):
        await client.call(FetchRequest(topics=topics, max_wait_ms=0, session_epoch=-1), 11)
    (peer,) = broker.node.connections.peers.values()
    assert list(peer.fetch_errors) == [(name, 0) for name in names[-ERRORS_KEPT_MAX:]]


async def test_n14_no_request_is_read_from_a_peer_that_reads_no_answers(
    broker: RunningBroker,
) -> None:
    client = await broker.client()
    await client.create_topic("t")
    await client.call(produce_request("t", batch_of(b"x" * 900_000)), 9)
    for _ in range(200):
        request = long_poll("t", 0)
        client.send(request, 11)
    await client.writer.drain()

    def stalled() -> list[ConnectionSession]:
        return [one for one in broker.server.sessions if Pause.PEER_DOES_NOT_READ in one._pauses]

    await until(stalled)
    (session,) = stalled()
    assert session._transport is not None
    assert session._transport.get_write_buffer_size() < 4_000_000
    for _ in range(200):
        answer = await client.receive()
        assert len(answer.responses[0].partitions[0].records) > 900_000


async def test_n01_a_frame_above_the_limit_closes_its_connection_only(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(socket_request_max_bytes="10000")
    bystander = await broker.client()
    for size in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x27\x11"):
        client = await broker.client()
        client.writer.write(size)
        assert await client.closed()
    assert (await bystander.call(ApiVersionsRequest(), 2)).error_code == 0


async def test_n06_unknown_keys_and_versions_close_the_connection(broker: RunningBroker) -> None:
    for key, version in ((999, 0), (0, 2), (0, 14), (1, 3), (3, -1), (-1, 0)):
        client = await broker.client()
        head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
        body = head + (7).to_bytes(4, "big") + b"\xff\xff" + bytes(40)
        client.writer.write(len(body).to_bytes(4, "big") + body)
        assert await client.closed(), (key, version)


async def test_n06_each_api_key_that_is_not_served_is_logged_once(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All lines about peers can be repeated immediately, except those about API keys.
    monkeypatch.setattr(repeated_lines, "AGAIN_S", 0.0)
    assert ApiKey.VOTE not in APIS
    with capture_logs() as lines:
        for key in (ApiKey.VOTE, 999, ApiKey.VOTE, 999, ApiKey.VOTE):
            client = await broker.client()
            body = int(key).to_bytes(2, "big") + bytes(5) + b"\1\xff\xff"
            client.writer.write(len(body).to_bytes(4, "big") + body)
            assert await client.closed()
    reasons = [line["reason"] for line in lines if line["event"] == "closed a connection"]
    assert reasons == [
        "request of Vote (key 52), which is not served",
        "request of unknown key 999",
    ]


async def test_n06_a_truncated_body_closes_the_connection(broker: RunningBroker) -> None:
    client = await broker.client()
    whole = b"".join(frames.encode_request(MetadataRequest(topics=[]), 9, 1, "x"))[4:]
    cut = whole[:-2]
    client.writer.write(len(cut).to_bytes(4, "big") + cut)
    assert await client.closed()


async def test_n07_an_unknown_version_of_api_versions_is_answered_in_version_0(
    client: RawClient,
) -> None:
    body = (18).to_bytes(2, "big") + (99).to_bytes(2, "big") + (7).to_bytes(4, "big")
    body += b"\xff\xff" + b"what is this"
    client.writer.write(len(body).to_bytes(4, "big") + body)
    frame = await client.receive_frame()
    assert frames.decode_correlation_id(frame) == 7
    answer = frames.decode_response(APIS[ApiKey.API_VERSIONS], 0, frame)
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    (row,) = [one for one in answer.api_keys if one.api_key == ApiKey.API_VERSIONS]
    assert (row.min_version, row.max_version) == (0, 4)
    assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_n08_bytes_after_the_request_body_are_ignored(client: RawClient) -> None:
    whole = b"".join(frames.encode_request(ApiVersionsRequest(), 0, 5, "x"))[4:] + b"more"
    client.writer.write(len(whole).to_bytes(4, "big") + whole)
    assert frames.decode_correlation_id(await client.receive_frame()) == 5


async def test_d11_requests_without_records_have_a_lower_size_limit(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(max_control_request_bytes="4096")
    client = await broker.client()
    await client.create_topic("t")
    big = await client.call(produce_request("t", batch_of(b"x" * 50_000)), 9)
    assert big.responses[0].partition_responses[0].error_code == 0
    await client.create_topic("m", mirror_source=SOURCE)
    part = MirroredPartition(
        partition_index=0,
        expected_end_offset=0,
        fetch_offset=0,
        source_leader_epoch=0,
        records=batch_of(b"x" * 50_000),
    )
    topic_id = broker.node.metadata.topic_id("m")
    topic = MirroredTopic(name="m", topic_id=topic_id, source=SOURCE, partitions=[part])
    mirrored = AppendMirrorRecordsRequest(timeout_ms=5_000, topics=[topic])
    assert (await client.call(mirrored, 0)).topics[0].partitions[0].log_end_offset == 1
    request = MetadataRequest(topics=None)
    request.unknown_tags = {9: b"x" * 5000}
    client.send(request, 9)
    assert await client.closed()


async def test_d11_q11_connections_beyond_the_limit_wait_until_others_end(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(max_connections="2")
    first, second, third = [await broker.client() for _ in range(3)]
    for client in (first, second):
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
    third.send(ApiVersionsRequest(), 0)
    await until(lambda: broker.server._acceptors._open["PLAINTEXT"].full)
    assert len(broker.server.sessions) == 2
    first.close()
    assert (await third.receive()).error_code == 0


async def test_q11_a_lowered_connection_limit_closes_the_longest_idle_connections(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    first, second, third = [await broker.client() for _ in range(3)]
    for client in (third, second, first):
        await client.call(ApiVersionsRequest(), 0)
    await first.set_for_brokers(max_connections="2")
    assert await third.closed()
    assert (await second.call(ApiVersionsRequest(), 0)).error_code == 0
    fourth = await broker.client()
    fourth.send(ApiVersionsRequest(), 0)
    await first.set_for_brokers(max_connections="3")
    assert (await fourth.receive()).error_code == 0


async def test_q12_the_connections_of_an_address_are_limited(start_broker: StartBroker) -> None:
    broker = await start_broker(max_connections_per_ip="1")
    first, second = await broker.client(), await broker.client()
    assert await second.closed()
    await first.set_for_brokers(max_connections_per_ip_overrides="127.0.0.1:2,[::1]:7")
    third = await broker.client()
    assert (await third.call(ApiVersionsRequest(), 0)).error_code == 0
    fourth = await broker.client()
    assert await fourth.closed()
    third.close()
    await until(lambda: len(broker.server.sessions) == 1)
    fifth = await broker.client()
    assert (await fifth.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_accepted_connections_send_small_answers_at_once(start_broker: StartBroker) -> None:
    broker = await start_broker()
    await (await broker.client()).call(ApiVersionsRequest(), 0)
    (session,) = broker.server.sessions
    accepted = session._transport.get_extra_info("socket")  # type: ignore[union-attr]
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_session_refuses_an_illegal_change_of_state(
    client: RawClient, broker: RunningBroker
) -> None:
    await client.create_topic("t")
    (session,) = broker.server.sessions
    client.writer.close()
    await until(lambda: not broker.server.sessions)
    with pytest.raises(RuntimeError, match="DRAINING after the state CLOSED"):
        session.close_after_answers()


@pytest.mark.parametrize("open_files", [64, 256, 1024, 10_240])
def test_d11_connections_leave_file_descriptors_for_the_logs(open_files: int) -> None:
    budget = divide_files(open_files)
    assert budget.segments >= open_files // 8 or budget.segments == 512
    assert budget.connections >= open_files // 4
    assert budget.segments + budget.connections < open_files


def test_d11_the_last_file_descriptors_are_for_flushes() -> None:
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(80)]
    try:
        assert divide_files(64).scarce()
        assert not divide_files(10_000).scarce()
    finally:
        for each in opened:
            os.close(each)


async def test_n04_an_idle_connection_is_closed_unless_a_fetch_is_parked(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(connections_max_idle_ms="200")
    idle, parked = await broker.client(), await broker.client()
    await parked.create_topic("t")
    parked.send(long_poll("t", 0), 11)
    assert await idle.closed()
    other = await broker.client()
    await other.call(produce_request("t", batch_of(b"a")), 9)
    assert len((await parked.receive()).responses[0].partitions[0].records) > 0


async def test_n15_a_clean_stop_keeps_all_records_and_writes_its_marker_file(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    await client.call(produce_request("t", batch_of(b"a", b"b")), 9)
    await broker.stop()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    again = await start_broker()
    answer = await (await again.client()).call(produce_request("t", batch_of(b"c")), 9)
    assert answer.responses[0].partition_responses[0].base_offset == 2


async def test_n15_a_stop_answers_fetches_behind_a_parked_fetch(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    for _ in range(3):
        client.send(long_poll("t", 0), 11)
    await until(lambda: len(broker.node.parked_fetches) == 1)
    await broker.server.stop()
    for _ in range(3):
        assert (await client.receive()).responses[0].partitions[0].error_code == ErrorCode.NONE


async def test_n15_a_stop_completes_what_a_closed_connection_has_begun_to_change(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(max_partitions="1000")
    client = await broker.client()
    names = [f"t{number}" for number in range(300)]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    client.send(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
    await until(lambda: "t0" in broker.node.metadata.topics)
    assert names[-1] not in broker.node.metadata.topics
    client.close()
    await broker.stop()
    again = await start_broker()
    assert set(names) <= again.node.metadata.topics.keys()
    assert all(again.node.partition(name, 0) is not None for name in names)


async def test_n15_a_stop_answers_parked_joins(start_broker: StartBroker) -> None:
    """Parked joins would delay the stop until the limit for slow peers, and would get no answer."""
    broker = await start_broker(group_initial_rebalance_delay_ms="600000")
    client = await broker.client()
    await client.call(FindCoordinatorRequest(key="g"), 2)
    client.send(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=600_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        3,
    )
    await until(lambda: any(group.members for group in broker.node.groups.groups()))
    await broker.server.stop()
    assert (await client.receive()).error_code == ErrorCode.NOT_COORDINATOR


async def test_n06_requests_before_an_invalid_request_are_answered(client: RawClient) -> None:
    await client.create_topic("t")
    client.send(produce_request("t", batch_of(b"a")), 9)
    client.writer.write((12).to_bytes(4, "big") + (999).to_bytes(2, "big") + bytes(10))
    answer = await client.receive()
    assert answer.responses[0].partition_responses[0].base_offset == 0
    assert await client.closed()


async def test_n04_an_idle_peer_that_reads_no_answers_is_disconnected(
    start_broker: StartBroker,
) -> None:
    """A clean close would wait until the peer reads the buffered answers, but the peer never reads
    them."""
    broker = await start_broker(connections_max_idle_ms="200")
    client = await broker.client()
    await client.create_topic("t")
    await client.call(produce_request("t", batch_of(b"x" * 900_000)), 9)
    for _ in range(50):
        client.send(long_poll("t", 0), 11)
    await until(lambda: not broker.server.sessions)


async def test_d11_unread_answers_make_later_fetch_answers_smaller(
    start_broker: StartBroker,
) -> None:
    """A consumer could otherwise request 50 MB at a time without reading the answers."""
    limit_bytes = 10_000_000
    broker = await start_broker(queued_max_request_bytes=str(limit_bytes))
    client = await broker.client()
    await client.create_topic("t", 20)
    for index in range(20):
        await client.call(produce_request("t", batch_of(b"x" * 900_000), partition=index), 9)
    everything = FetchRequest(
        max_bytes=1 << 30,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(20)
                ],
            )
        ],
    )

    async def fetched_bytes() -> int:
        answer = await client.call(everything, 11)
        return sum(len(data.records or b"") for data in answer.responses[0].partitions)

    assert await fetched_bytes() > limit_bytes * 9 // 10
    limits = broker.server.limits
    assert limits.bytes_held == 0
    silent = await broker.client()
    silent.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(5):
        silent.send(everything, 11)
    await until(lambda: limits.bytes_held > 1_000_000)
    assert limits.room_bytes() < limit_bytes - 1_000_000
    silent.writer.transport.abort()
    await until(lambda: limits.bytes_held == 0)
    limits.bytes_held = limit_bytes
    assert 900_000 <= await fetched_bytes() <= 1_000_000, "one batch, so that everyone gets on"
    limits.bytes_held = 0
    assert await fetched_bytes() > limit_bytes * 9 // 10


async def test_n10_n14_answers_for_a_closed_connection_occupy_no_memory(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await broker.client()
    await client.create_topic("t")
    held: list[Any] = []
    monkeypatch.setattr(broker.node.partition("t", 0), "_request_flush", held.append)
    client.send(produce_request("t", batch_of(b"a")), 9)
    await until(lambda: held)
    assert broker.server.limits.bytes_held > 0
    client.close()
    await until(lambda: not broker.server.sessions)
    broker.server.group_commit.request(held[0])
    await until(lambda: broker.node.partition("t", 0).log.high_watermark == 1)
    assert broker.server.limits.bytes_held == 0


async def test_n12_the_advertised_address_is_described(broker: RunningBroker) -> None:
    client = await broker.client()
    resource = DescribeConfigsResource(
        resource_type=RESOURCE_BROKER,
        resource_name="1",
        configuration_keys=["advertised.listeners"],
    )
    answer = await client.call(DescribeConfigsRequest(resources=[resource]), 4)
    (entry,) = answer.results[0].configs
    assert entry.value == f"PLAINTEXT://{broker.host}:{broker.port}"


def test_d11_a_response_that_cannot_be_encoded_closes_only_its_connection() -> None:
    """The code that resolves a parked reply resolves the replies of other connections after it."""

    def encode(_: object, __: object) -> Any:
        raise ValueError("surrogates not allowed")

    encoded: Deferred[Any] = Deferred()
    in_flight: Any = SimpleNamespace(peer=SimpleNamespace(host="client"), api=APIS[ApiKey.METADATA])
    with capture_logs() as lines:
        _resolve(PeerLog(lambda: 0), encoded, in_flight, encode, object())
    assert isinstance(encoded.result(), CloseConnection)
    assert [line["event"] for line in lines] == ["a request failed unexpectedly"]
