"""Several listeners: each advertises its own address. Limits count over all listeners, and each
listener can also have its own limits."""

from __future__ import annotations

import asyncio

import pytest

from broker_in_loop import RunningBroker, StartBroker
from odradek_broker.server.host import StartError
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.describe_cluster import DescribeClusterRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.metadata import MetadataRequest
from raw_client import RawClient
from waiting import until

PAIR = {
    "listeners": "INTERNAL://127.0.0.1:0,HOST://127.0.0.1:0",
    "listener_security_protocol_map": "INTERNAL:PLAINTEXT,HOST:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}


async def client_of(broker: RunningBroker, listener: str) -> RawClient:
    return RawClient(*await asyncio.open_connection(*broker.server.addresses[listener]))


async def told(client: RawClient) -> set[tuple[str, int]]:
    """The addresses in all answers that have addresses."""
    metadata = await client.call(MetadataRequest(topics=[]), 9)
    cluster = await client.call(DescribeClusterRequest(), 1)
    found = await client.call(FindCoordinatorRequest(key="g", key_type=0), 3)
    return {
        *((each.host, each.port) for each in metadata.brokers),
        *((each.host, each.port) for each in cluster.brokers),
        (found.host, found.port),
    }


async def test_n12_each_listener_advertises_its_own_address(start_broker: StartBroker) -> None:
    broker = await start_broker(
        **PAIR, advertised_listeners="INTERNAL://broker:9092,HOST://localhost:29092"
    )
    assert await told(await client_of(broker, "INTERNAL")) == {("broker", 9092)}
    assert await told(await client_of(broker, "HOST")) == {("localhost", 29092)}


async def test_n12_a_listener_without_an_advertised_address_advertises_its_own(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(**PAIR, advertised_listeners="INTERNAL://broker:0")
    addresses = broker.server.addresses
    assert await told(await client_of(broker, "HOST")) == {addresses["HOST"]}
    assert await told(await client_of(broker, "INTERNAL")) == {("broker", addresses["INTERNAL"][1])}


async def test_q11_connections_count_over_all_listeners(start_broker: StartBroker) -> None:
    broker = await start_broker(**PAIR, max_connections="2")
    first = await client_of(broker, "INTERNAL")
    second = await client_of(broker, "HOST")
    for client in (first, second):
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
    third = await client_of(broker, "HOST")
    third.send(ApiVersionsRequest(), 0)
    await until(lambda: len(broker.server.sessions) == 2)
    first.close()
    assert (await third.receive()).error_code == 0


@pytest.mark.full
async def test_q11_a_listener_may_have_its_own_limit_of_connections(
    start_broker: StartBroker,
) -> None:
    key = "listener_name_host_max_connections"
    broker = await start_broker(**PAIR, **{key: "1"})
    first, second = await client_of(broker, "HOST"), await client_of(broker, "HOST")
    assert (await first.call(ApiVersionsRequest(), 0)).error_code == 0
    second.send(ApiVersionsRequest(), 0)
    others = [await client_of(broker, "INTERNAL") for _ in range(2)]
    for client in others:
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
    assert [each.listener for each in broker.server.sessions].count("HOST") == 1
    await others[0].set_for_brokers(**{key: "2"})
    assert (await second.receive()).error_code == 0
    # When the limit of the listener HOST is lowered, its connection that was idle longest is
    # closed.
    await second.call(ApiVersionsRequest(), 0)
    await others[0].set_for_brokers(**{key: "1"})
    assert await first.closed()
    assert (await second.call(ApiVersionsRequest(), 0)).error_code == 0
    assert (await others[1].call(ApiVersionsRequest(), 0)).error_code == 0


async def test_q13_a_listener_may_have_its_own_connection_creation_rate(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(
        **PAIR,
        quota_window_num="2",
        listener_name_host_max_connection_creation_rate="1",
    )
    quotas = broker.node.connection_quotas
    for _ in range(4):
        client = await client_of(broker, "HOST")
    await until(lambda: quotas.pause_ms("HOST") > 0)
    assert quotas.pause_ms("INTERNAL") == 0
    other = await client_of(broker, "INTERNAL")
    assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0
    client.close()


async def test_a_start_fails_if_the_address_of_a_listener_is_in_use(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    taken = broker.server.addresses["PLAINTEXT"][1]
    with pytest.raises(StartError, match=f"{taken} is in use"):
        await start_broker(
            "other",
            listeners=f"A://127.0.0.1:0,B://127.0.0.1:{taken}",
            listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
        )
