"""The client leaves a hung broker as soon as the cluster has elected another leader, and waits for
a slow broker. In these tests an answer is late after a few milliseconds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from odradek_client.config.admin import AdminConfig
from odradek_client.errors import BadAnswer, ConnectionLost
from odradek_client.network import broker_connection, metadata
from odradek_client.network.client import NetworkClient
from odradek_client.producer.producer import Producer
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek_protocol.schemas.join_group import JoinGroupRequest
from scripted_broker import DEFAULT, SILENCE, ScriptedBroker
from waiting import until

DEADLINE_S = 30.0
SETTINGS: dict[str, Any] = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 10,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 10,
    # The request timeout is so long that no test ends because of it.
    "request_timeout_ms": 600_000,
    "socket_connection_setup_timeout_ms": 600_000,
}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(broker_connection, "LATE_S", 0.05)
    monkeypatch.setattr(broker_connection, "LATE_AGAIN_S", 0.02)
    monkeypatch.setattr(metadata, "METADATA_PATIENCE_S", 0.05)
    yield


@pytest.fixture
async def cluster() -> AsyncIterator[list[ScriptedBroker]]:
    """Three brokers; the first leads t-0, the second t-1, and the third t-2."""
    brokers = [ScriptedBroker(node, topics={"t": 3}) for node in (1, 2, 3)]
    for broker in brokers:
        await broker.start()
        broker.peers = brokers
        broker.leaders = {("t", n): n + 1 for n in range(3)}
        broker.leader_epochs = {}
    yield brokers
    for broker in brokers:
        await broker.stop()


def hang(broker: ScriptedBroker) -> None:
    """Let a broker accept connections and requests without answering, like a stopped process."""
    for key in APIS:
        broker.always(key, lambda request, version: SILENCE)


def give_up(hung: ScriptedBroker, others: list[ScriptedBroker]) -> None:
    """Let the other brokers elect another leader, and remove the hung broker from the metadata."""
    for other in others:
        other.peers = others
        other.leaders = {
            at: others[0].node_id if n == hung.node_id else n for at, n in other.leaders.items()
        }
        other.leader_epochs = dict.fromkeys(other.leaders, 1)


def a_producer(brokers: list[ScriptedBroker], **settings: Any) -> Producer:
    servers = [each.address for each in brokers]
    given = {"bootstrap_servers": servers, "linger_ms": 0, "delivery_timeout_ms": 700_000}
    return Producer(**(SETTINGS | given | settings))


@pytest.mark.parametrize("idempotent", [True, False])
async def test_records_for_a_hung_leader_are_sent_to_the_newly_elected_one(
    cluster: list[ScriptedBroker], idempotent: bool
) -> None:
    hung, *others = cluster
    async with a_producer(cluster, enable_idempotence=idempotent) as producer:
        for number in range(3):
            await producer.send_and_wait("t", b"before", partition=number)
        hang(hung)
        delivery = await producer.send("t", b"after", partition=0)
        await until(lambda: bool(hung.received(ApiKey.PRODUCE)[1:]))
        questions = sum(len(each.received(ApiKey.METADATA)) for each in others)
        await until(lambda: sum(len(e.received(ApiKey.METADATA)) for e in others) > questions + 2)
        assert not delivery.done(), "it still leads"
        give_up(hung, others)
        async with asyncio.timeout(DEADLINE_S):
            await delivery
        assert others[0].log("t", 0).values == [b"after"]
        await producer.send_and_wait("t", b"later", partition=0)
        assert others[0].log("t", 0).values == [b"after", b"later"]


async def test_metadata_is_not_delayed_by_produce_requests_that_await_a_hung_broker(
    cluster: list[ScriptedBroker],
) -> None:
    """Brokers answer requests in order, and with acks=all the other brokers wait for the hung
    broker."""
    hung, *others = cluster
    shrunk = asyncio.Event()

    async def when_shrunk(request: Any, version: int) -> object:
        await shrunk.wait()
        return DEFAULT

    async with a_producer(cluster) as producer:
        for number in range(3):
            await producer.send_and_wait("t", b"before", partition=number)
        hang(hung)
        for other in others:
            other.always(ApiKey.PRODUCE, when_shrunk)
        deliveries = [await producer.send("t", b"after", partition=number) for number in range(3)]
        await until(lambda: all(each.received(ApiKey.PRODUCE)[1:] for each in cluster))
        give_up(hung, others)
        network = producer.network
        await until(lambda: network.cluster.leader_of("t", 0) == others[0].node_id)
        shrunk.set()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*deliveries)
        assert others[0].log("t", 0).values == [b"after"]


async def test_a_leader_that_hangs_before_the_first_connection_is_replaced_too(
    cluster: list[ScriptedBroker],
) -> None:
    hung, *others = cluster
    hang(hung)
    async with a_producer(others) as producer:
        delivery = await producer.send("t", b"x", partition=0)
        await until(lambda: hung.connections > 0)
        give_up(hung, others)
        async with asyncio.timeout(DEADLINE_S):
            await delivery
        assert others[0].log("t", 0).values == [b"x"]


async def test_a_client_waits_for_a_slow_broker_on_the_same_connection(
    cluster: list[ScriptedBroker],
) -> None:
    """The late answer is used on the same connection, and no request is sent twice."""
    slow, *_ = cluster
    async with a_producer(cluster, enable_idempotence=False) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        connections = slow.connections
        go_on = asyncio.Event()

        async def answer(request: Any, version: int) -> object:
            await go_on.wait()
            return DEFAULT

        slow.always(ApiKey.PRODUCE, answer)
        delivery = await producer.send("t", b"slow", partition=0)
        others = cluster[1:]
        asked = sum(len(each.received(ApiKey.METADATA)) for each in others)
        await until(lambda: sum(len(e.received(ApiKey.METADATA)) for e in others) > asked + 2)
        go_on.set()
        async with asyncio.timeout(DEADLINE_S):
            assert (await delivery).offset == 1
        assert len(slow.received(ApiKey.PRODUCE)) == 2
        assert slow.connections == connections


async def a_network(*brokers: ScriptedBroker) -> NetworkClient:
    servers = [each.address for each in brokers]
    network = NetworkClient(AdminConfig.from_settings(SETTINGS | {"bootstrap_servers": servers}))
    await network.start()
    return network


@pytest.mark.parametrize("at", range(3))
async def test_metadata_comes_from_another_broker_when_the_first_one_hangs(
    cluster: list[ScriptedBroker], at: int
) -> None:
    network = await a_network(*cluster)
    for broker in cluster:
        broker.always(
            ApiKey.DESCRIBE_CLUSTER,
            lambda request, version: DescribeClusterResponse(cluster_id="c"),
        )
        await network.send(broker.node_id, DescribeClusterRequest())
    hang(cluster[at])
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(4):
            await network.refresh_metadata()
    await network.close()


async def test_brokers_that_fail_together_leave_no_unread_exception(
    cluster: list[ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python complains about tasks whose exception was never read."""
    network = await a_network(*cluster)
    asked: list[int] = []
    fail_now = asyncio.Event()

    async def failing(node_id: int) -> Any:
        asked.append(node_id)
        await fail_now.wait()
        raise BadAnswer(f"of node {node_id}")

    monkeypatch.setattr(network.metadata, "_metadata_of", failing)
    complaints: list[Any] = []
    network.loop.set_exception_handler(lambda loop, context: complaints.append(context))
    question = asyncio.ensure_future(network.metadata._first_metadata())
    await until(lambda: len(asked) >= 3)
    fail_now.set()
    # Raising the exception here would keep all exceptions alive through its traceback.
    await asyncio.wait([question])
    assert isinstance(question.exception(), BadAnswer)
    del question
    gc.collect()
    assert not complaints
    await network.close()


async def test_a_client_starts_though_one_bootstrap_address_hangs(
    cluster: list[ScriptedBroker],
) -> None:
    hung, *others = cluster
    hang(hung)
    give_up(hung, others)
    for _ in range(4):
        async with asyncio.timeout(DEADLINE_S):
            network = await a_network(hung, others[0])
        await network.close()


async def test_a_join_group_request_is_never_late(cluster: list[ScriptedBroker]) -> None:
    network = await a_network(*cluster)
    cluster[0].always(ApiKey.JOIN_GROUP, lambda request, version: SILENCE)
    join = asyncio.ensure_future(
        network.send(1, JoinGroupRequest(group_id="g"), channel="coordinator", timeout_ms=300_000)
    )
    await until(lambda: bool(cluster[0].received(ApiKey.JOIN_GROUP)))
    link = network.ready(1, "coordinator")
    assert link is not None
    await asyncio.sleep(0.3)
    assert not link.is_late
    await network.close()
    with pytest.raises(ConnectionLost):
        await join


async def test_n11_a_broker_that_throttles_is_not_late(cluster: list[ScriptedBroker]) -> None:
    network = await a_network(*cluster)
    cluster[0].always(
        ApiKey.DESCRIBE_CLUSTER,
        lambda request, version: DescribeClusterResponse(cluster_id="c", throttle_time_ms=60_000),
    )
    await network.send(1, DescribeClusterRequest())
    link = network.ready(1, "main")
    assert link is not None
    waiting = asyncio.ensure_future(network.send(1, DescribeClusterRequest()))
    await asyncio.sleep(0.3)
    assert not link.is_late
    await network.close()
    with pytest.raises(ConnectionLost):
        await waiting


async def test_a_hung_single_broker_gets_one_metadata_request(
    cluster: list[ScriptedBroker],
) -> None:
    """There is no other broker, so repeated requests would be useless."""
    lone = cluster[0]
    lone.peers = [lone]
    async with a_producer([lone]) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        connections, asked = lone.connections, len(lone.received(ApiKey.METADATA))
        hang(lone)
        delivery = await producer.send("t", b"x", partition=0)
        await asyncio.sleep(0.4)
        assert lone.connections - connections <= 1
        assert len(lone.received(ApiKey.METADATA)) - asked <= 2
        assert not delivery.done()
        await producer.close(timeout_ms=0)
