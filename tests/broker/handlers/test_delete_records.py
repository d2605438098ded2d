"""DeleteRecords over the wire (rules L-10 to L-12, A-17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker, StartBroker
from logs import small_file
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.storage.errors import DataDirectoryError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raw_client import RawClient, batch_of, produce_request

E = ErrorCode


async def delete(
    client: RawClient, *offsets: int, topic: str = "t", version: int = 2
) -> list[tuple[int, int]]:
    """Delete records of partitions 0, 1, ... before the given offsets; returns (error, low
    watermark) of each."""
    partitions = [
        DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in enumerate(offsets)
    ]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1_000
    )
    (answer,) = (await client.call(request, version)).topics
    assert answer.name == topic
    return [(part.error_code, part.low_watermark) for part in answer.partitions]


@pytest.fixture(autouse=True)
async def topic(client: RawClient) -> None:
    """Create a topic of two partitions, the first of which has six records."""
    await client.create_topic("t", partitions=2)
    for _ in range(2):
        await client.call(produce_request("t", batch_of(b"a", b"b", b"c")), 9)


def log(broker: RunningBroker) -> Any:
    return broker.node.partition("t", 0).log


def starts_on_disk(broker: RunningBroker) -> list[str]:
    """The log start offsets in the checkpoint, which a start after a crash reads."""
    path = Path(broker.node.logs.directories[0].path_of("log-start-offset-checkpoint"))
    return small_file(path.read_bytes()).splitlines()


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_l11_records_below_the_offset_are_deleted(
    client: RawClient, broker: RunningBroker, version: int
) -> None:
    assert await delete(client, 4, version=version) == [(E.NONE, 4)]
    assert log(broker).log_start_offset == 4
    assert await delete(client, 2, version=version) == [(E.NONE, 4)], "it only grows"
    assert await delete(client, -1, version=version) == [(E.NONE, 6)]


async def test_l11_each_partition_has_its_own_error_code(client: RawClient) -> None:
    assert await delete(client, 7, 0, 0) == [
        (E.OFFSET_OUT_OF_RANGE, -1),
        (E.NONE, 0),
        (E.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert await delete(client, -2) == [(E.OFFSET_OUT_OF_RANGE, -1)]
    assert await delete(client, 0, topic="nowhere") == [(E.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert await delete(client, 0, topic="__consumer_offsets") == [(E.INVALID_TOPIC_EXCEPTION, -1)]


async def test_a17_delete_records_needs_the_right_to_delete(
    client: RawClient, broker: RunningBroker
) -> None:
    broker.node.authorizer = RuleList(Rule(Operation.WRITE, ResourceType.TOPIC, "t"))
    assert await delete(client, 4) == [(E.TOPIC_AUTHORIZATION_FAILED, -1)]
    assert log(broker).log_start_offset == 0
    broker.node.authorizer = RuleList(Rule(Operation.DELETE, ResourceType.TOPIC, "t"))
    assert await delete(client, 4) == [(E.NONE, 4)]


async def test_l10_the_new_log_start_is_on_disk_before_the_answer(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker("other")
    client = await broker.client()
    await client.create_topic("t", partitions=2)
    await client.call(produce_request("t", batch_of(b"a", b"b", b"c")), 9)
    assert await delete(client, 2, 0) == [(E.NONE, 2), (E.NONE, 0)]
    assert "t 0 2" in starts_on_disk(broker)


async def test_l10_a_log_start_moved_by_retention_is_on_disk_before_the_answer(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker("other")
    client = await broker.client()
    await client.create_topic("t")
    for _ in range(2):
        await client.call(produce_request("t", batch_of(b"a", b"b", b"c")), 9)
    log = broker.node.logs.get("t", 0)
    assert log is not None
    log.trimming.advance_log_start(3)
    assert (await delete(client, 1))[0] == (E.NONE, 3)
    assert "t 0 3" in starts_on_disk(broker)


async def test_l10_a_failed_write_of_log_starts_fails_the_request(
    client: RawClient, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(produce_request("t", batch_of(b"a", b"b"), partition=1), 9)
    writes = 0
    fails = False
    (directory,) = broker.node.logs.directories
    original = directory.write

    def watched(name: str, content: bytes) -> None:
        nonlocal writes
        writes += name == "log-start-offset-checkpoint"
        if fails:
            raise DataDirectoryError("no room")
        original(name, content)

    monkeypatch.setattr(directory, "write", watched)
    assert await delete(client, 1, 1) == [(E.NONE, 1), (E.NONE, 1)]
    assert writes == 1
    assert await delete(client, 1, 0) == [(E.NONE, 1), (E.NONE, 1)]
    assert writes == 1, "nothing moved"
    fails = True
    for _ in range(2):
        assert await delete(client, 2, 99) == [
            (E.KAFKA_STORAGE_ERROR, -1),
            (E.OFFSET_OUT_OF_RANGE, -1),
        ]
    log = broker.node.logs.get("t", 0)
    assert log is not None
    assert log.log_start_offset == 1, "what is refused is not done"
    fails = False
    assert await delete(client, 2) == [(E.NONE, 2)]
    assert "t 0 2" in starts_on_disk(broker)
