"""Connections and metadata, against scripted brokers: rules N-01 to N-16 for the client."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import Any

import pytest

from odradek_client.config.admin import AdminConfig
from odradek_client.errors import (
    BadAnswer,
    Closed,
    ConnectionLost,
    CoordinatorUnavailable,
    GroupAuthorizationFailed,
    InvalidTopic,
    MetadataTimeout,
    RequestTimedOut,
    UnsupportedByBroker,
)
from odradek_client.network.broker_connection import BrokerConnection
from odradek_client.network.client import NetworkClient
from odradek_client.network.transport import Transport
from odradek_protocol.constants import GROUP_COORDINATOR
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek_protocol.schemas.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataResponse
from scripted_broker import DEFAULT, HANG_UP, SILENCE, ScriptedBroker
from waiting import until

PROBE = DescribeClusterRequest


def answer_probe(request: Any, version: int) -> DescribeClusterResponse:
    return DescribeClusterResponse(cluster_id="probe")


class Connected:
    """A network client that is connected to some scripted brokers, as a context manager."""

    def __init__(self, *brokers: ScriptedBroker, **settings: Any) -> None:
        self.brokers = brokers
        self.settings = settings

    async def __aenter__(self) -> NetworkClient:
        for broker in self.brokers:
            await broker.start()
        for broker in self.brokers:
            broker.peers = list(self.brokers)
            broker.always(ApiKey.DESCRIBE_CLUSTER, answer_probe)
        settings: dict[str, Any] = {
            "bootstrap_servers": [broker.address for broker in self.brokers],
            "reconnect_backoff_ms": 1,
            "reconnect_backoff_max_ms": 10,
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 10,
            "default_api_timeout_ms": 5000,
        }
        self.network = NetworkClient(AdminConfig.from_settings(settings | self.settings))
        await self.network.start()
        return self.network

    async def __aexit__(self, *_: object) -> None:
        await self.network.close()
        for broker in self.brokers:
            await broker.stop()


# --- versions -------------------------------------------------------------------------------------


async def test_the_highest_common_version_is_used() -> None:
    broker = ScriptedBroker(versions={ApiKey.METADATA: (0, 7)}, topics={"t": 2})
    async with Connected(broker) as network:
        assert await network.version_for(1, ApiKey.METADATA) == 7
        assert await network.version_for(1, ApiKey.PRODUCE) == 13
        assert await network.version_for(1, ApiKey.PRODUCE, max_version=9) == 9
        assert {v for key, v, _ in broker.requests if key is ApiKey.METADATA} == {7}


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
async def test_n07_api_versions_falls_back_to_the_newest_version_of_the_broker(newest: int) -> None:
    broker = ScriptedBroker(versions={ApiKey.API_VERSIONS: (0, newest)})
    async with Connected(broker) as network:
        asked = [v for key, v, _ in broker.requests if key is ApiKey.API_VERSIONS]
        # The client begins with version 3, because Azure Event Hubs closes the connection on a
        # request of version 4.
        assert asked[:2] == ([3] if newest == 3 else [3, newest])
        assert await network.version_for(1, ApiKey.METADATA) == 13


async def test_n07_api_versions_falls_back_to_version_0_without_a_version_list() -> None:
    broker = ScriptedBroker()
    refusal = struct.pack(">ihi", 0, ErrorCode.UNSUPPORTED_VERSION, 0)
    broker.on(ApiKey.API_VERSIONS, struct.pack(">i", len(refusal)) + refusal)
    async with Connected(broker) as network:
        asked = [v for key, v, _ in broker.requests if key is ApiKey.API_VERSIONS]
        assert asked[:2] == [3, 0]
        assert network.cluster.brokers


async def test_api_versions_requests_name_the_client_software() -> None:
    broker = ScriptedBroker()
    async with Connected(broker):
        (request, *_) = broker.received(ApiKey.API_VERSIONS)
        assert isinstance(request, ApiVersionsRequest)
        assert request.client_software_name == "odradek"


async def test_apis_that_the_broker_does_not_serve_are_an_error() -> None:
    broker = ScriptedBroker(
        versions={ApiKey.CREATE_TOPICS: None, ApiKey.FETCH: (0, 3), ApiKey.DESCRIBE_CLUSTER: (9, 9)}
    )
    async with Connected(broker) as network:
        with pytest.raises(UnsupportedByBroker, match="does not serve CreateTopics"):
            await network.version_for(1, ApiKey.CREATE_TOPICS)
        with pytest.raises(UnsupportedByBroker, match="Fetch 0 to 3"):
            await network.version_for(1, ApiKey.FETCH)
        with pytest.raises(UnsupportedByBroker):
            await network.send(1, PROBE())


# --- requests -------------------------------------------------------------------------------------


async def test_n03_many_requests_in_flight_are_answered_in_order() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        for index in range(20):
            broker.on(ApiKey.DESCRIBE_CLUSTER, DescribeClusterResponse(cluster_id=str(index)))
        answers = await asyncio.gather(*(network.send(1, PROBE()) for _ in range(20)))
        assert [answer.cluster_id for answer in answers] == [str(i) for i in range(20)]


async def test_max_in_flight_requests_delays_requests_and_keeps_their_order() -> None:
    broker = ScriptedBroker()
    async with Connected(broker, max_in_flight_requests_per_connection=2) as network:
        gate = asyncio.Event()

        async def slow(request: Any, version: int) -> Any:
            await gate.wait()
            return answer_probe(request, version)

        await network.send(1, PROBE())
        before = len(broker.received(ApiKey.DESCRIBE_CLUSTER))
        broker.on(ApiKey.DESCRIBE_CLUSTER, slow)
        tasks = [asyncio.create_task(network.send(1, PROBE())) for _ in range(5)]
        await until(lambda: len(broker.received(ApiKey.DESCRIBE_CLUSTER)) == before + 1)
        assert network.in_flight(1) == 5 and not network.is_ready(1)
        gate.set()
        await asyncio.gather(*tasks)
        assert network.is_ready(1) and network.in_flight(1) == 0


async def test_n04_each_channel_has_its_own_connection() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        broker.on(ApiKey.DESCRIBE_CLUSTER, SILENCE)
        parked = asyncio.create_task(network.send(1, PROBE(), channel="fetch"))
        await until(lambda: broker.received(ApiKey.DESCRIBE_CLUSTER))
        answer = await network.send(1, PROBE(), channel="coordinator")
        assert answer.cluster_id == "probe"
        assert not parked.done()
        parked.cancel()


async def test_n05_an_unexpected_correlation_id_closes_the_connection() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        broker.on(ApiKey.DESCRIBE_CLUSTER, struct.pack(">ii", 4, 12345))
        with pytest.raises(BadAnswer, match="correlation id 12345"):
            await network.send(1, PROBE())
        assert (await network.send(1, PROBE())).cluster_id == "probe", "on a new connection"


async def test_an_undecodable_answer_closes_the_connection() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        await network.send(1, PROBE())
        link = network.connections.nodes[(1, "main")].connection
        assert isinstance(link, BrokerConnection)
        broker.on(
            ApiKey.DESCRIBE_CLUSTER,
            lambda request, version: struct.pack(">iib", 5, link._correlation_id, 0),
        )
        with pytest.raises(BadAnswer, match="makes no sense"):
            await network.send(1, PROBE())


@pytest.mark.parametrize("size", [-1, 2_000_000])
async def test_n01_a_frame_of_impossible_size_closes_the_connection(size: int) -> None:
    broker = ScriptedBroker()
    async with Connected(broker, receive_max_bytes=1_000_000) as network:
        broker.on(ApiKey.DESCRIBE_CLUSTER, struct.pack(">i", size))
        with pytest.raises(ConnectionLost, match=str(size)):
            await network.send(1, PROBE())


async def test_n16_a_timed_out_request_closes_its_connection_and_fails_later_ones() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        await network.send(1, PROBE())
        connections = broker.connections
        broker.on(ApiKey.DESCRIBE_CLUSTER, SILENCE)
        late = asyncio.create_task(network.send(1, PROBE(), timeout_ms=50))
        behind = asyncio.create_task(network.send(1, HeartbeatRequest(), timeout_ms=9999))
        broker.on(ApiKey.HEARTBEAT, SILENCE)
        with pytest.raises(RequestTimedOut, match="DescribeCluster in time"):
            await late
        with pytest.raises(ConnectionLost):
            await behind
        await network.send(1, PROBE())
        assert broker.connections > connections


async def test_a_cancelled_request_does_not_disturb_the_others() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        await network.send(1, PROBE())
        gate = asyncio.Event()

        async def slow(request: Any, version: int) -> Any:
            await gate.wait()
            return answer_probe(request, version)

        broker.on(ApiKey.DESCRIBE_CLUSTER, slow, DescribeClusterResponse(cluster_id="second"))
        first = asyncio.create_task(network.send(1, PROBE()))
        second = asyncio.create_task(network.send(1, PROBE()))
        await until(lambda: network.in_flight(1) == 2)
        first.cancel()
        gate.set()
        assert (await second).cluster_id == "second"


async def test_n11_throttling_delays_the_next_request() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        broker.on(
            ApiKey.DESCRIBE_CLUSTER, DescribeClusterResponse(cluster_id="x", throttle_time_ms=80)
        )
        await network.send(1, PROBE())
        assert not network.is_ready(1)
        metrics = network.throttle_metrics("produce")
        assert metrics["produce-throttle-time-max"] == 80
        assert 0 < metrics["produce-throttle-time-avg"] < 80, "others were answered at once"
        loop = asyncio.get_running_loop()
        began = loop.time()
        await network.send(1, PROBE())
        assert loop.time() - began >= 0.06


# --- connections ----------------------------------------------------------------------------------


async def test_n16_a_lost_connection_is_made_again() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        for _ in range(3):
            broker.on(ApiKey.DESCRIBE_CLUSTER, HANG_UP)
            with pytest.raises(ConnectionLost):
                await network.send(1, PROBE())
            assert (await network.send(1, PROBE())).cluster_id == "probe"


async def test_the_error_without_a_broker_names_the_tried_addresses() -> None:
    broker = ScriptedBroker()
    await broker.start()
    await broker.stop()
    network = NetworkClient(
        AdminConfig.from_settings(
            {"bootstrap_servers": broker.address, "default_api_timeout_ms": 150}
        )
    )
    with pytest.raises(MetadataTimeout, match=broker.address) as caught:
        await network.start()
    assert "check bootstrap_servers" in str(caught.value)
    with pytest.raises(Closed):
        await network.start()


async def test_a_client_starts_with_one_reachable_bootstrap_address() -> None:
    dead = ScriptedBroker()
    await dead.start()
    await dead.stop()
    broker = ScriptedBroker()
    async with Connected(broker) as _:
        servers = [dead.address, broker.address]
        network = NetworkClient(AdminConfig.from_settings({"bootstrap_servers": servers}))
        await network.start()
        assert set(network.cluster.brokers) == {1}
        await network.close()


async def test_start_waits_for_a_broker_that_starts_later() -> None:
    broker = ScriptedBroker()
    await broker.start()
    await broker.stop()
    network = NetworkClient(
        AdminConfig.from_settings({"bootstrap_servers": broker.address, "retry_backoff_ms": 5})
    )
    starting = asyncio.create_task(network.start())
    await asyncio.sleep(0.05)
    await broker.start()
    await starting
    await network.close()
    await broker.stop()


async def test_a_client_rebootstraps_when_every_known_broker_is_gone() -> None:
    first, second = ScriptedBroker(1), ScriptedBroker(2, topics={"t": 1})
    await second.start()
    async with Connected(first) as network:
        # The second broker now answers at the bootstrap address of the first broker.
        port = first.port
        await first.stop()
        await second.stop()
        second.port = port
        await second.start()
        await until(lambda: network.connections.address(1) is not None)
        await network.wait_for_metadata(["t"], 5000)
        assert set(network.cluster.brokers) == {2}
        assert (await network.version_for(2, ApiKey.METADATA)) == 13
        await second.stop()
        await first.start()


async def test_a_broker_is_found_at_its_new_address() -> None:
    one, two = ScriptedBroker(1), ScriptedBroker(2)
    async with Connected(one, two) as network:
        two.always(ApiKey.DESCRIBE_CLUSTER, answer_probe)
        await network.send(2, PROBE())
        await two.stop()
        two.port = 0
        await two.start()
        await network.refresh_metadata()
        assert (await network.send(2, PROBE())).cluster_id == "probe"


async def test_a_node_missing_in_the_metadata_is_an_error() -> None:
    async with Connected(ScriptedBroker()) as network:
        with pytest.raises(ConnectionLost, match="node 77"):
            await network.send(77, PROBE())


async def test_idle_connections_are_closed_and_made_again() -> None:
    broker = ScriptedBroker()
    async with Connected(broker, connections_max_idle_ms=100) as network:
        await network.send(1, PROBE())
        await until(lambda: not broker._writers)
        assert (await network.send(1, PROBE())).cluster_id == "probe"


async def test_close_fails_unanswered_requests_and_may_be_repeated() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        await network.send(1, PROBE())
        broker.on(ApiKey.DESCRIBE_CLUSTER, SILENCE)
        task = asyncio.create_task(network.send(1, PROBE()))
        await until(lambda: network.in_flight(1) == 1)
        await network.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await task
        with pytest.raises(Closed):
            await network.send(1, PROBE())
        await network.close()


async def test_a_client_that_was_not_started_names_async_with() -> None:
    with pytest.raises(Closed, match="async with"):
        await NetworkClient(AdminConfig.from_settings({})).send(1, PROBE())


async def test_the_least_loaded_node_has_the_fewest_unanswered_requests() -> None:
    one, two = ScriptedBroker(1), ScriptedBroker(2)
    async with Connected(one, two) as network:
        await network.send(1, PROBE())
        await network.send(2, PROBE())
        broker = {1: one, 2: two}
        busy = await network.least_loaded_node()
        broker[busy].on(ApiKey.DESCRIBE_CLUSTER, SILENCE)
        task = asyncio.create_task(network.send(busy, PROBE()))
        await until(lambda: network.in_flight(busy) == 1)
        assert await network.least_loaded_node() == 3 - busy
        task.cancel()


@pytest.mark.parametrize("how", ["close the connection", "leave the cluster"])
async def test_an_attempt_to_connect_ends_with_its_connection(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An attempt that continued could outlive the client, with a socket that it has just opened."""
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        begun = asyncio.Event()

        async def connect(*_: Any) -> Transport:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError("nothing sets the event")

        monkeypatch.setattr(Transport, "connect", connect)
        network.connections.connect_soon(1, lambda: None, "fetch")
        await begun.wait()
        if how == "close the connection":
            network.close_connection(1, "the test wants it so", "fetch")
        else:
            network.connections.drop_all("the test wants it so")
        await network.close()
        tasks = [task.get_name() for task in asyncio.all_tasks()]
        assert not [name for name in tasks if name.startswith("odradek-")]


# --- metadata -------------------------------------------------------------------------------------


async def test_wait_for_metadata_waits_until_topics_exist() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        waiting = asyncio.create_task(network.wait_for_metadata(["t", "u"], 5000))
        await until(lambda: len(broker.received(ApiKey.METADATA)) > 2)
        broker.topics.update({"t": 2, "u": 1})
        await waiting
        assert network.cluster.partitions_of("t") == [0, 1]
        assert network.cluster.leader_of("u", 0) == 1


async def test_a_topic_that_never_exists_times_out_with_the_error_code() -> None:
    async with Connected(ScriptedBroker()) as network:
        with pytest.raises(MetadataTimeout, match=r"'t'.*UNKNOWN_TOPIC_OR_PARTITION"):
            await network.wait_for_metadata(["t"], 60)


async def test_an_invalid_topic_is_an_error_at_once() -> None:
    broker = ScriptedBroker()
    broker.topic_errors["bad/name"] = ErrorCode.INVALID_TOPIC_EXCEPTION
    async with Connected(broker) as network:
        with pytest.raises(InvalidTopic, match="bad/name"):
            await network.wait_for_metadata(["bad/name"], 60_000)


async def test_metadata_update_requests_are_coalesced() -> None:
    broker = ScriptedBroker(topics={"t": 1})
    async with Connected(broker) as network:
        before = len(broker.received(ApiKey.METADATA))
        for _ in range(50):
            network.request_metadata_update()
        await asyncio.gather(*(network.refresh_metadata() for _ in range(20)))
        assert len(broker.received(ApiKey.METADATA)) - before <= 2


async def test_metadata_update_hints_cause_one_request_per_backoff() -> None:
    broker = ScriptedBroker()
    async with Connected(broker, retry_backoff_ms=60) as network:
        before = len(broker.received(ApiKey.METADATA))
        for _ in range(60):
            network.request_metadata_update()
            await asyncio.sleep(0.002)
        assert 1 <= len(broker.received(ApiKey.METADATA)) - before <= 6


def _knows(network: NetworkClient, topics: set[str]) -> bool:
    return network.cluster.topics.keys() >= topics


async def test_c82_newly_wanted_topics_do_not_wait_for_the_backoff() -> None:
    broker = ScriptedBroker(topics={"t": 1, "u": 1})
    async with Connected(broker, retry_backoff_ms=600_000, retry_backoff_max_ms=600_000) as network:
        for topics in ({"t"}, {"t", "u"}):
            network.cluster.want(topics)
            network.request_metadata_update()
            await until(partial(_knows, network, topics))
        before = len(broker.received(ApiKey.METADATA))
        network.request_metadata_update()
        await asyncio.sleep(0.05)
        assert len(broker.received(ApiKey.METADATA)) == before


async def test_metadata_is_refreshed_at_least_every_max_age() -> None:
    broker = ScriptedBroker()
    async with Connected(broker, metadata_max_age_ms=20):
        await until(lambda: len(broker.received(ApiKey.METADATA)) > 4)


async def test_listeners_are_called_on_changes_though_another_one_raises() -> None:
    broker = ScriptedBroker(topics={"t": 1})
    heard: list[int] = []

    def bad(_: object) -> None:
        raise RuntimeError("listener")

    async with Connected(broker) as network:
        network.add_listener(bad)
        network.add_listener(lambda cluster: heard.append(cluster.version))
        await network.wait_for_metadata(["t"], 5000)
        broker.topics["t"] = 3
        await network.refresh_metadata()
        await network.refresh_metadata()
        assert len(heard) == 2
        network.remove_listener(bad)


async def test_a_client_rebootstraps_when_the_broker_requires_it() -> None:
    broker = ScriptedBroker()
    async with Connected(broker) as network:
        broker.on(
            ApiKey.METADATA, MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED), DEFAULT
        )
        await network.refresh_metadata()
        assert set(network.cluster.brokers) == {1}


async def test_auto_topic_creation_is_requested_only_if_set() -> None:
    broker = ScriptedBroker(topics={"t": 1})
    for allowed in (True, False):
        async with Connected(broker, allow_auto_create_topics=allowed) as network:
            broker.requests.clear()
            await network.wait_for_metadata(["t"], 5000)
            request: MetadataRequest = broker.received(ApiKey.METADATA)[-1]
            assert request.allow_auto_topic_creation == allowed


# --- coordinators ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3, 4, 6])
async def test_a_coordinator_is_cached_until_it_is_forgotten(version: int) -> None:
    one = ScriptedBroker(1, versions={ApiKey.FIND_COORDINATOR: (0, version)})
    two = ScriptedBroker(2)
    async with Connected(one, two) as network:
        two.always(ApiKey.FIND_COORDINATOR, one._find_coordinator)
        assert await network.find_coordinator("group") == 1
        asked = len(one.received(ApiKey.FIND_COORDINATOR) + two.received(ApiKey.FIND_COORDINATOR))
        assert await network.find_coordinator("group") == 1
        assert asked == 1, "remembered"
        network.forget_coordinator("group")
        await network.find_coordinator("group")
        now = len(one.received(ApiKey.FIND_COORDINATOR) + two.received(ApiKey.FIND_COORDINATOR))
        assert now == 2


@pytest.mark.parametrize(("version", "requests"), [(3, 700), (4, 2)])
async def test_many_coordinators_are_found_with_few_requests(version: int, requests: int) -> None:
    broker = ScriptedBroker(versions={ApiKey.FIND_COORDINATOR: (0, version)})
    names = [f"group-{number}" for number in range(700)]
    async with Connected(broker) as network:
        await network.find_coordinators(names, GROUP_COORDINATOR)
        await network.find_coordinators(names, GROUP_COORDINATOR)
        assert {await network.find_coordinator(name) for name in names} == {1}
    assert len(broker.received(ApiKey.FIND_COORDINATOR)) == requests


async def test_a_coordinator_missing_in_a_batched_answer_is_asked_for_again() -> None:
    def none_of_bad(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=-1, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
                if key == "bad"
                else Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker.port)
                for key in request.coordinator_keys
            ]
        )

    broker = ScriptedBroker()
    async with Connected(broker) as network:
        broker.always(ApiKey.FIND_COORDINATOR, none_of_bad)
        await network.find_coordinators(["good", "bad"], GROUP_COORDINATOR)
        assert await network.find_coordinator("good") == 1
        with pytest.raises(GroupAuthorizationFailed):
            await network.find_coordinator("bad")
    asked = [request.coordinator_keys for request in broker.received(ApiKey.FIND_COORDINATOR)]
    assert asked == [["good", "bad"], ["bad"]]


async def test_a_coordinator_unknown_to_the_metadata_is_reachable() -> None:
    one, two = ScriptedBroker(1), ScriptedBroker(2)
    await two.start()
    two.always(ApiKey.HEARTBEAT, lambda request, version: HeartbeatResponse())
    async with Connected(one) as network:
        one.on(ApiKey.FIND_COORDINATOR, two._find_coordinator)
        node = await network.find_coordinator("group")
        assert node == 2
        request = HeartbeatRequest(group_id="group", member_id="m")
        answer = await network.send(node, request, channel="coordinator")
        assert answer.error_code == 0
    await two.stop()


@pytest.mark.parametrize("version", [2, 4])
async def test_a_missing_coordinator_is_a_retriable_error(version: int) -> None:
    broker = ScriptedBroker(versions={ApiKey.FIND_COORDINATOR: (0, version)})
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    async with Connected(broker) as network:
        if version < 4:
            answer = FindCoordinatorResponse(error_code=code)
        else:
            answer = FindCoordinatorResponse(
                coordinators=[Coordinator(key="group", error_code=code, node_id=-1)]
            )
        broker.on(ApiKey.FIND_COORDINATOR, answer)
        with pytest.raises(CoordinatorUnavailable, match="'group'") as caught:
            await network.find_coordinator("group")
        assert caught.value.retriable
        assert await network.find_coordinator("group") == 1


# --- advertised addresses ---


async def test_reach_a_broker_needs_one_reachable_broker() -> None:
    one, two = ScriptedBroker(1), ScriptedBroker(2)
    async with Connected(one, two) as network:
        await two.stop()
        await network.reach_a_broker(1_000)


async def test_reach_a_broker_names_the_reason_of_each_broker() -> None:
    one, two = ScriptedBroker(1), ScriptedBroker(2)
    async with Connected(one, two) as network:
        await one.stop()
        await two.stop()
        with pytest.raises(ConnectionLost) as raised:
            await network.reach_a_broker(1_000)
        for broker in (one, two):
            assert f"no connection to {broker.address}: Connection refused" in str(raised.value)
