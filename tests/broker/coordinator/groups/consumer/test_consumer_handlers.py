"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as requests of a client (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from broker_in_loop import StartBroker
from odradek_broker.config.broker import BrokerConfigError, parse_config
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from raw_client import RawClient

E = ErrorCode
PROTOCOLS = "group.coordinator.rebalance.protocols"


def join(*topics: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
        **fields,
    )


async def test_a_member_is_described_with_its_host_as_java_prints_it(client: RawClient) -> None:
    await client.create_topic("t")
    await client.call(FindCoordinatorRequest(key="g"), 3)
    assert (await client.call(join("t"), 1)).error_code == E.NONE
    group = (await client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups[0]
    assert group.members[0].client_host == "/127.0.0.1"


async def test_consumer_group_requests_are_refused_if_the_protocol_is_disabled(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(group_coordinator_rebalance_protocols="classic")
    client = await broker.client()
    await client.create_topic("t")
    await client.call(FindCoordinatorRequest(key="g"), 3)
    refused = await client.call(join("t"), 1)
    assert refused.error_code == E.UNSUPPORTED_VERSION
    assert PROTOCOLS in refused.error_message
    described = await client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    assert [group.error_code for group in described.groups] == [E.UNSUPPORTED_VERSION]


@pytest.mark.parametrize("given", ["consumer", "", "classic,sometimes"])
def test_rebalance_protocols_must_be_known_and_include_classic(given: str) -> None:
    with pytest.raises(BrokerConfigError, match=r"rebalance\.protocols"):
        parse_config({PROTOCOLS: given})
