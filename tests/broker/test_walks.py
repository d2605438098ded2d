"""Requests execute code only in the files that their walks in `docs/understand/design.md` name."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import odradek_broker
from broker_in_loop import RunningBroker
from odradek import Producer
from odradek_protocol.common_structs import AcknowledgementBatch
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek_protocol.schemas.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from raw_client import RawClient
from waiting import until
from walks import EVERY_REQUEST, left_out, named

#: The maximum number of files that take part in a request. Files that append the records of the
#: request are not counted.
FILES_MAX = 12
_FOLDER = odradek_broker.__path__[0] + "/"
#: The module that starts the broker's periodic work, which no request causes.
_MAINTENANCE = _FOLDER + "server/server.py"


class Tracer:
    """Notes the broker's files whose functions are called, in the loop and in worker threads."""

    def __init__(self) -> None:
        self.entered: set[str] = set()
        self._on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if not self._on or event != "call" or not path.startswith(_FOLDER):
            return
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_filename == _MAINTENANCE:
                return
            caller = caller.f_back
        self.entered.add(path.removeprefix(_FOLDER))

    @contextmanager
    def on(self) -> Iterator[None]:
        self.entered.clear()
        self._on = True
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False

    def check(self, walk: str, *, then: str = "", files_max: int = FILES_MAX) -> None:
        """Check that the walk names all entered files, and that they are not too many.

        `then`: the walk with which the request continues; its files are not counted.
        """
        decided = {each for each in self.entered if not left_out(each)}
        if then:
            decided -= named(then) - named(walk)
        assert decided - named(walk) - named(EVERY_REQUEST) == set()
        assert len(decided) <= files_max


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    """A tracer for threads that start during the test. A test must request it before the broker."""
    tracer = Tracer()
    threading.setprofile(tracer)
    yield tracer
    threading.setprofile(None)


async def _all_readable(broker: RunningBroker) -> None:
    """Wait until all appended records of the topic can be read."""
    log = broker.node.partition("t", 0).log
    await until(lambda: log.last_stable_offset == log.high_watermark == log.log_end_offset)


async def test_produce_and_fetch(tracer: Tracer, broker: RunningBroker, client: RawClient) -> None:
    await client.create_topic("t")
    address = f"{broker.host}:{broker.port}"
    async with Producer(bootstrap_servers=address) as producer:
        await producer.send_and_wait("t", b"first")
        await _all_readable(broker)
        with tracer.on():
            await producer.send_and_wait("t", b"second")
            await _all_readable(broker)
    tracer.check("Produce")
    assert "storage/journal.py" in tracer.entered

    partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    await client.call(request, 12)
    with tracer.on():
        await client.call(request, 12)
    tracer.check("Fetch")
    assert "storage/reading.py" in tracer.entered


async def test_end_txn(tracer: Tracer, broker: RunningBroker, client: RawClient) -> None:
    await client.create_topic("t")
    address = f"{broker.host}:{broker.port}"
    async with Producer(bootstrap_servers=address, transactional_id="tx") as producer:
        await producer.init_transactions()
        for _ in range(2):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"record")
            with tracer.on():
                await producer.commit_transaction()
                await _all_readable(broker)
    # One more, so that a transaction over thousands of topics does not hold the loop.
    tracer.check("EndTxn", then="Produce", files_max=FILES_MAX + 1)
    assert "coordinator/transactions/completion.py" in tracer.entered


async def test_join_group(tracer: Tracer, broker: RunningBroker, client: RawClient) -> None:
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    while not request.member_id:
        request.member_id = (await client.call(request)).member_id
        await asyncio.sleep(0.01)
    assert (await client.call(request)).error_code == 0
    request.protocols[0].metadata = b"another"
    with tracer.on():
        assert (await client.call(request)).error_code == 0
    tracer.check("JoinGroup (classic protocol)", then="Produce")
    assert "coordinator/groups/classic/join_phase.py" in tracer.entered


async def test_share_fetch_and_share_acknowledge(
    tracer: Tracer, broker: RunningBroker, client: RawClient
) -> None:
    await client.create_topic("t")
    topic_id = broker.node.metadata.topic_id("t")
    heartbeat = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m" * 22, member_epoch=0, subscribed_topic_names=["t"]
    )
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    answer = await client.call(heartbeat)
    while answer.error_code or not answer.assignment.topic_partitions:
        await asyncio.sleep(0.01)
        if answer.error_code == 0:
            heartbeat.member_epoch = answer.member_epoch
        answer = await client.call(heartbeat)

    partition = ShareFetchPartition(partition_index=0)
    fetch = ShareFetchRequest(
        group_id="g",
        member_id="m" * 22,
        max_bytes=1 << 20,
        max_records=1,
        batch_size=1,
        topics=[ShareFetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    assert (await client.call(fetch)).error_code == 0
    fetch.topics, fetch.max_wait_ms, fetch.min_bytes = [], 500, 1
    async with Producer(bootstrap_servers=f"{broker.host}:{broker.port}") as producer:
        for offset in range(2):
            await producer.send_and_wait("t", b"record")
            await _all_readable(broker)
            fetch.share_session_epoch = 2 * offset + 1
            with tracer.on():
                answer = await client.call(fetch)
            assert len(answer.responses[0].partitions[0].acquired_records) == 1
            tracer.check("ShareFetch", then="Fetch")
            assert "share/acquisition.py" in tracer.entered

            batch = AcknowledgementBatch(
                first_offset=offset, last_offset=offset, acknowledge_types=[1]
            )
            ended = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
            acknowledge = ShareAcknowledgeRequest(
                group_id="g",
                member_id="m" * 22,
                share_session_epoch=2 * offset + 2,
                topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[ended])],
            )
            with tracer.on():
                answer = await client.call(acknowledge)
            assert answer.responses[0].partitions[0].error_code == 0
            tracer.check("ShareAcknowledge", then="Produce")
            assert "share/led_partition.py" in tracer.entered
