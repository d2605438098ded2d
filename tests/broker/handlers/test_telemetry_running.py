"""Metrics that clients push to a running broker, over real connections and after a restart."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pytest

import otlp_messages as otlp
from broker_in_loop import StartBroker
from odradek_broker.config.client_metrics_settings import DEFAULT_INTERVAL_MS
from odradek_protocol.compression import Codec, compress
from odradek_protocol.constants import RESOURCE_CLIENT_METRICS
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek_protocol.schemas.push_telemetry import PushTelemetryRequest
from raw_client import RawClient
from waiting import until

E = ErrorCode
ID = bytes(range(1, 17))


async def subscribe(client: RawClient, name: str = "s", **settings: str) -> None:
    """Change settings of a subscription; an empty value restores the default."""
    configs = [
        AlterableConfig(
            name=key.replace("_", "."), config_operation=0 if value else 1, value=value or None
        )
        for key, value in settings.items()
    ]
    resource = AlterConfigsResource(
        resource_type=RESOURCE_CLIENT_METRICS, resource_name=name, configs=configs
    )
    answer = await client.call(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == E.NONE


async def get(client: RawClient, instance: bytes = ID) -> Any:
    return await client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance))


async def push(client: RawClient, data: bytes, codec: Codec = Codec.NONE) -> ErrorCode:
    """Request the subscription and push once; returns the error of the push."""
    subscription = await get(client)
    assert subscription.error_code == E.NONE
    request = PushTelemetryRequest(
        client_instance_id=ID,
        subscription_id=subscription.subscription_id,
        compression_type=codec,
        metrics=data,
    )
    return E((await client.call(request)).error_code)


async def test_m01_the_apis_are_advertised_while_there_is_a_subscription(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    client = await broker.client()

    async def advertised() -> set[int]:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        answer = await client.call(request, 3)
        return {each.api_key for each in answer.api_keys} & {71, 72}

    assert await advertised() == set()
    assert (await get(client)).error_code == E.NONE
    await subscribe(client, metrics="a.")
    assert await advertised() == {71, 72}
    await subscribe(client, metrics="")
    assert await advertised() == set()


async def test_m03_subscriptions_survive_a_restart(start_broker: StartBroker) -> None:
    first = await start_broker()
    client = await first.client()
    await subscribe(client, "s", metrics="a.", interval_ms="4000")
    await subscribe(client, "gone", metrics="*")
    await subscribe(client, "gone", metrics="")
    before = await get(client)
    assert (before.requested_metrics, before.push_interval_ms) == (["a."], 4000)
    await first.stop()
    client = await (await start_broker()).client()
    after = await get(client)
    assert after.subscription_id == before.subscription_id
    assert (after.requested_metrics, after.push_interval_ms) == (["a."], 4000)


async def test_m04_a_client_is_matched_by_its_software_and_its_port(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    client, other = await broker.client(), await broker.client()
    await client.call(
        ApiVersionsRequest(client_software_name="tool", client_software_version="7"), 3
    )
    await subscribe(client, metrics="*", match="client_software_name=tool")
    assert (await get(client)).requested_metrics == ["*"]
    assert (await get(other, bytes(16))).requested_metrics == []
    port = next(peer.port for peer in broker.node.connections.peers.values() if peer.software_name)
    assert port > 0
    await subscribe(client, match=f"client_source_port={port},client_source_address=127.*")
    assert (await get(client)).requested_metrics == ["*"]
    assert (await get(other, bytes(16))).requested_metrics == []


@pytest.mark.parametrize("codec", list(Codec))
async def test_m12_a_large_push_is_accepted(start_broker: StartBroker, codec: Codec) -> None:
    broker = await start_broker()
    client = await broker.client()
    await subscribe(client, metrics="*")
    many = [otlp.gauge(f"a.{number}", otlp.point(1, {"k": "v" * 99})) for number in range(900)]
    assert await push(client, compress(codec, otlp.metrics_data(many)), codec) is E.NONE
    assert broker.node.telemetry.series.series == 900
    client.close()
    await until(lambda: broker.node.telemetry.series.get(ID).forget_ms is not None)
    kept_ms = 2 * DEFAULT_INTERVAL_MS
    broker.node.telemetry.series.expire(broker.node.clock.monotonic_ms() + kept_ms)
    assert broker.node.telemetry.series.series == 0


@pytest.mark.parametrize(
    ("make", "codec"),
    [
        (lambda: gzip.compress(bytes(100_000_000), 1), Codec.GZIP),
        (lambda: compress(Codec.ZSTD, bytes(100_000_000)), Codec.ZSTD),
        (lambda: compress(Codec.ZSTD, otlp.metrics_data([b""] * 1_000_000)), Codec.ZSTD),
        (lambda: b"\x0a\xff\xff\xff\xff\x0f" * 2000, Codec.NONE),
        (lambda: bytes(range(256)) * 100, Codec.LZ4),
    ],
    ids=["gzip bomb", "zstd bomb", "many fields", "lengths", "noise"],
)
async def test_m13_a_hostile_push_is_refused_and_the_next_push_is_accepted(
    start_broker: StartBroker, make: Callable[[], bytes], codec: Codec
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await subscribe(client, metrics="*", interval_ms="100")
    assert await push(client, make(), codec) is E.INVALID_RECORD
    instance = broker.node.telemetry.instances.get(ID)
    instance.last_get_ms = instance.last_push_ms = None
    assert await push(client, otlp.metrics_data([otlp.gauge("a", otlp.point(1))])) is E.NONE
    assert broker.node.telemetry.series.series == 1
