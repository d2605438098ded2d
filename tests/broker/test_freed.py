"""What is closed or deleted is freed by its reference count: collections of garbage do not visit
what has lived for long (rule N-57)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from broker_in_loop import RunningBroker, StartBroker
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.producers.producer_files import Producers
from odradek_broker.storage.segment import Segment
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from sasl_clients import LISTENER, plain, plain_users
from waiting import until


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_n57_a_closed_connection_is_freed(broker: RunningBroker) -> None:
    client = await broker.client()
    await client.call(ApiVersionsRequest(), 0)
    (session,) = map(weakref.ref, broker.server.sessions)
    client.close()
    await until(lambda: session() is None)


async def test_n57_a_closed_connection_with_authentication_is_freed(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(keys=LISTENER | plain_users(alice="secret"))
    client = await broker.client()
    assert (await plain(client, "alice", "secret")).error_code == 0
    (session,) = map(weakref.ref, broker.server.sessions)
    client.close()
    await until(lambda: session() is None)


async def test_n57_a_connection_is_freed_that_is_closed_while_a_fetch_waits(
    broker: RunningBroker,
) -> None:
    client = await broker.client()
    await client.create_topic("topic")
    asked = FetchTopic(topic="topic", partitions=[FetchPartition(partition_max_bytes=1)])
    client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1, topics=[asked]), 12)
    await until(lambda: len(broker.node.parked_fetches) == 1)
    (session,) = map(weakref.ref, broker.server.sessions)
    client.close()
    await until(lambda: session() is None)


async def test_n57_a_deleted_partition_is_freed(broker: RunningBroker) -> None:
    client = await broker.client()
    before = _parts_of_logs()
    await client.create_topic("topic")
    assert _parts_of_logs() == before + 3
    await client.call(DeleteTopicsRequest(topic_names=["topic"]), 5)
    await until(lambda: _parts_of_logs() == before)


def _parts_of_logs() -> int:
    """The logs, their segments and their states of producers that are in memory."""
    return sum(type(each) in (PartitionLog, Producers, Segment) for each in gc.get_objects())
