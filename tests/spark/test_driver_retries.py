"""Retries of the driver, and their limits: elections, nodes that do not answer, deleted topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.network.client import NetworkClient
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyspark_odradek import cluster
from pyspark_odradek.errors import SourceError
from pyspark_odradek.options import SourceOptions, parse_source
from pyspark_odradek.planning import Partition
from scripted_broker import DEFAULT, HANG_UP, SILENCE, ScriptedBroker

#: A number of failures greater than `fetchOffset.numRetries`.
TIMES = 12


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_RETRY_MS_MIN", 1)
    monkeypatch.setattr(cluster, "_RETRY_MS_MAX", 2)


def options(**more: str) -> SourceOptions:
    settings = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    return parse_source({**settings, "fetchOffset.retryIntervalMs": "1", **more})


@asynccontextmanager
async def network(broker: ScriptedBroker, timeout_ms: int = 30_000) -> AsyncIterator[NetworkClient]:
    config = ConsumerConfig.from_settings(
        {
            "bootstrap_servers": broker.address,
            "default_api_timeout_ms": timeout_ms,
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 2,
            "reconnect_backoff_ms": 1,
            "reconnect_backoff_max_ms": 2,
        }
    )
    made = NetworkClient(config)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def offset_7(code: ErrorCode = ErrorCode.NONE) -> Any:
    def answer(request: Any, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            error_code=code,
                            offset=-1 if code else 7,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def first(times: int, then: Any, now: Any) -> Any:
    """A script that responds with `now` to the first `times` requests, and with `then` to later
    requests."""
    left = [times]

    def answer(request: Any, version: int) -> Any:
        left[0] -= 1
        chosen = now if left[0] >= 0 else then
        return chosen(request, version) if callable(chosen) else chosen

    return answer


@pytest.mark.parametrize(
    "trouble",
    [
        HANG_UP,
        offset_7(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        offset_7(ErrorCode.LEADER_NOT_AVAILABLE),
        offset_7(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        offset_7(ErrorCode.OFFSET_NOT_AVAILABLE),
    ],
    ids=["gone", "moved", "no leader", "not heard of it", "not yet"],
)
async def test_temporary_errors_are_retried_more_often_than_num_retries(trouble: Any) -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker, network(broker) as running:
        broker.always(ApiKey.LIST_OFFSETS, first(TIMES, offset_7(), trouble))
        await cluster.find_partitions(running, options())
        found = await cluster.list_offsets(running, {Partition("t", 0): -1}, options())
    assert found == {Partition("t", 0): 7}


async def test_an_election_is_waited_for_longer_than_num_retries() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker, network(broker) as running:
        broker.always(ApiKey.LIST_OFFSETS, offset_7())
        broker.leaders = {("t", 0): -1}
        asked = [0]

        def metadata(request: Any, version: int) -> Any:
            asked[0] += 1
            if asked[0] > TIMES:
                broker.leaders = {}
            return DEFAULT

        broker.always(ApiKey.METADATA, metadata)
        await cluster.find_partitions(running, options())
        found = await cluster.list_offsets(running, {Partition("t", 0): -1}, options())
    assert found == {Partition("t", 0): 7}


@pytest.mark.full
async def test_retries_end_after_default_api_timeout_ms_with_the_cause() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker, network(broker, 2000) as running:
        broker.always(ApiKey.LIST_OFFSETS, offset_7(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await cluster.find_partitions(running, options())
        with pytest.raises(
            SourceError, match=r"t-0 cannot be obtained: .*default\.api\.timeout\.ms"
        ):
            await cluster.list_offsets(running, {Partition("t", 0): -1}, options())


@pytest.mark.full
async def test_the_timeout_names_the_cause_if_no_broker_answers() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker, network(broker, 2000) as running:
        broker.always(ApiKey.LIST_OFFSETS, offset_7(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await cluster.find_partitions(running, options())
        broker.always(ApiKey.METADATA, lambda request, version: SILENCE)
        with pytest.raises(
            SourceError, match=r"t-0 cannot be obtained: .* and then no broker returned"
        ):
            await cluster.list_offsets(running, {Partition("t", 0): -1}, options())


async def test_a_deleted_topic_fails_after_num_retries() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker, network(broker) as running:
        await cluster.find_partitions(running, options())
        del broker.topics["t"]
        broker.always(ApiKey.LIST_OFFSETS, offset_7(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        with pytest.raises(SourceError, match="t-0 cannot be obtained: the cluster says"):
            await cluster.list_offsets(running, {Partition("t", 0): -1}, options())
        with pytest.raises(SourceError, match="there is no topic 't'"):
            await cluster.find_partitions(running, options())


async def test_a_topic_that_is_being_created_is_waited_for() -> None:
    async with ScriptedBroker() as broker, network(broker) as running:
        broker.topic_errors["t"] = ErrorCode.LEADER_NOT_AVAILABLE
        asked = [0]

        def metadata(request: Any, version: int) -> Any:
            asked[0] += 1
            if asked[0] > TIMES:
                broker.topic_errors.clear()
                broker.topics["t"] = 1
            return DEFAULT

        broker.always(ApiKey.METADATA, metadata)
        assert await cluster.find_partitions(running, options()) == [Partition("t", 0)]
