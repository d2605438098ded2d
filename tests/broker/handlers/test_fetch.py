"""Fetch: limits, waiting, sessions (rules F-01..F-28)."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from broker_in_loop import RunningBroker, StartBroker
from node_world import SoonScheduler
from odradek_broker.config.broker import parse_config
from odradek_broker.fetch.sessions import FetchSessions
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.platform.machine import RealRandomness
from odradek_broker.slices import Slices
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from odradek_testkit.simulation.clock import SimulatedClock
from raw_client import RawClient, batch_of, produce_request
from waiting import until


def fetch(
    *wanted: tuple[str, int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 25,
    partition_max_bytes: int = 1 << 20,
    **fields: Any,
) -> FetchRequest:
    """A Fetch request for the given (topic, partition, offset) triples."""
    topics: dict[str, FetchTopic] = {}
    for name, partition, offset in wanted:
        topic = topics.setdefault(name, FetchTopic(topic=name))
        topic.partitions.append(
            FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=list(topics.values()),
        **fields,
    )


def partitions(response: Any) -> dict[tuple[str, int], Any]:
    return {
        (topic.topic, one.partition_index): one
        for topic in response.responses
        for one in topic.partitions
    }


def offsets(data: Any) -> list[int]:
    """The base offsets of the batches."""
    return [header.base_offset for _, header in iter_batches(data)]


@pytest.fixture
async def topic(client: RawClient) -> str:
    """A topic with two partitions: five batches of 1,000 bytes in the first, two in the second."""
    await client.create_topic("t", partitions=2)
    for _ in range(5):
        await client.call(produce_request("t", batch_of(b"x" * 932)), 9)
    for _ in range(2):
        await client.call(produce_request("t", batch_of(b"y" * 932), partition=1), 9)
    return "t"


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_below_13_fetches_by_topic_name(
    client: RawClient, topic: str, version: int
) -> None:
    answer = partitions(await client.call(fetch((topic, 0, 2)), version))[topic, 0]
    assert answer.error_code == 0
    assert offsets(answer.records) == [2, 3, 4]
    assert answer.high_watermark == 5


@pytest.mark.parametrize("version", range(13, 19))
async def test_f14_every_version_since_13_fetches_by_topic_id(
    client: RawClient, broker: RunningBroker, topic: str, version: int
) -> None:
    request = fetch(("", 0, 0))
    request.topics[0].topic_id = broker.node.metadata.topic_id(topic)
    answer = partitions(await client.call(request, version))["", 0]
    assert offsets(answer.records) == [0, 1, 2, 3, 4]
    request.topics[0].topic_id = b"\7" * 16
    answer = partitions(await client.call(request, version))["", 0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_f01_a_fetch_without_records_waits_for_max_wait_ms(
    client: RawClient, topic: str
) -> None:
    started = asyncio.get_running_loop().time()
    answer = partitions(await client.call(fetch((topic, 0, 5), max_wait_ms=60), 11))[topic, 0]
    assert answer.records == b""
    assert asyncio.get_running_loop().time() - started >= 0.05


async def test_f01_a_fetch_of_available_records_is_not_parked(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    """Consumers with short queues fetch one batch at a time: the broker must not wait for more
    records, and the kernel must send small answers immediately (TCP_NODELAY)."""
    for offset in range(5):
        request = fetch((topic, 0, offset), max_wait_ms=2**31 - 1, partition_max_bytes=1200)
        answer = partitions(await client.call(request, 11))[topic, 0]
        assert offsets(answer.records) == [offset]
        assert not broker.node.parked_fetches
    for session in broker.server.sessions:
        assert session._transport is not None
        accepted = session._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_f01_f03_a_parked_fetch_is_answered_after_an_append(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    client.send(fetch((topic, 0, 5), max_wait_ms=60_000), 11)
    await until(lambda: broker.node.parked_fetches)
    other = await broker.client()
    await other.call(produce_request(topic, batch_of(b"new")), 9)
    answer = partitions(await client.receive())[topic, 0]
    assert offsets(answer.records) == [5]
    assert not broker.node.parked_fetches
    assert not broker.node.partition(topic, 0).data_waiters


async def test_f01_a_fetch_waits_for_min_bytes(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    client.send(fetch((topic, 0, 5), max_wait_ms=60_000, min_bytes=1500), 11)
    other = await broker.client()
    await other.call(produce_request(topic, batch_of(b"z" * 932)), 9)
    assert broker.node.parked_fetches
    await other.call(produce_request(topic, batch_of(b"z" * 932)), 9)
    answer = partitions(await client.receive())[topic, 0]
    assert offsets(answer.records) == [5, 6]


LARGE = b"z" * 2000


async def with_large_batches(client: RawClient) -> None:
    await client.create_topic("large", partitions=3)
    for partition in (1, 2):
        for _ in range(2):
            await client.call(produce_request("large", batch_of(LARGE), partition=partition), 9)


@pytest.mark.parametrize(
    "wanted",
    [[("large", 1, 0)], [("large", 0, 0), ("large", 1, 0), ("large", 2, 0)]],
    ids=["alone", "among others"],
)
async def test_f04_a_first_batch_over_the_limit_counts_whole_for_min_bytes(
    client: RawClient, broker: RunningBroker, wanted: list[tuple[str, int, int]]
) -> None:
    await with_large_batches(client)
    limits = {"min_bytes": 1500, "partition_max_bytes": 100}
    answer = await client.call(fetch(*wanted, max_wait_ms=2**31 - 1, **limits), 11)
    assert offsets(partitions(answer)["large", 1].records) == [0]


@pytest.mark.parametrize(
    "wanted", [[("large", 0, 0)], [("large", 0, 0), ("large", 1, 2)]], ids=["alone", "among others"]
)
async def test_f04_a_parked_fetch_counts_a_first_batch_whole_for_min_bytes(
    client: RawClient, broker: RunningBroker, wanted: list[tuple[str, int, int]]
) -> None:
    await with_large_batches(client)
    limits = {"min_bytes": 1500, "partition_max_bytes": 100}
    client.send(fetch(*wanted, max_wait_ms=2**31 - 1, **limits), 11)
    await until(lambda: broker.node.parked_fetches)
    other = await broker.client()
    await other.call(produce_request("large", batch_of(LARGE)), 9)
    assert offsets(partitions(await client.receive())["large", 0].records) == [0]


async def test_f04_only_the_very_first_batch_counts_beyond_its_limit(
    client: RawClient, broker: RunningBroker
) -> None:
    await with_large_batches(client)
    wanted = ("large", 1, 0), ("large", 2, 0)
    limits = {"min_bytes": 3000, "partition_max_bytes": 1000}
    client.send(fetch(*wanted, max_wait_ms=2**31 - 1, **limits), 11)
    other = await broker.client()
    await other.call(produce_request("large", batch_of(LARGE), partition=2), 9)
    assert len(broker.node.parked_fetches) == 1


async def test_f04_a_first_batch_in_a_session_counts_whole_for_min_bytes(client: RawClient) -> None:
    await with_large_batches(client)
    first = await open_session(client, ("large", 1, 2), ("large", 2, 2))
    request = fetch(
        ("large", 1, 0),
        max_wait_ms=2**31 - 1,
        min_bytes=1500,
        partition_max_bytes=100,
        session_id=first.session_id,
        session_epoch=1,
    )
    answer = await client.call(request, 11)
    assert offsets(partitions(answer)["large", 1].records) == [0]


async def test_f01_a_fetch_with_an_error_is_answered_at_once(client: RawClient, topic: str) -> None:
    response = await client.call(
        fetch((topic, 0, 5), ("absent", 0, 0), max_wait_ms=60_000, min_bytes=10_000), 11
    )
    answers = partitions(response)
    assert answers["absent", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answers[topic, 0].error_code == 0


async def test_f05_f06_records_are_limited_in_whole_batches_and_partition_order(
    client: RawClient, topic: str
) -> None:
    answers = partitions(
        await client.call(fetch((topic, 0, 0), (topic, 1, 0), partition_max_bytes=2500), 11)
    )
    assert offsets(answers[topic, 0].records) == [0, 1]
    assert offsets(answers[topic, 1].records) == [0, 1]
    answers = partitions(await client.call(fetch((topic, 0, 0), (topic, 1, 0), max_bytes=3500), 11))
    assert offsets(answers[topic, 0].records) == [0, 1, 2]
    assert answers[topic, 1].records == b""


async def test_f06_r15_the_first_batch_is_answered_whole_despite_the_limits(
    client: RawClient, topic: str
) -> None:
    answers = partitions(
        await client.call(
            fetch((topic, 0, 3), (topic, 1, 0), max_bytes=10, partition_max_bytes=10), 11
        )
    )
    assert offsets(answers[topic, 0].records) == [3]
    assert answers[topic, 1].records == b""


async def test_f07_offsets_outside_the_log_are_out_of_range(client: RawClient, topic: str) -> None:
    for offset in (-1, 6):
        answer = partitions(await client.call(fetch((topic, 0, offset)), 11))[topic, 0]
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (answer.high_watermark, answer.log_start_offset) == (-1, -1)
    answer = partitions(await client.call(fetch((topic, 0, 5)), 11))[topic, 0]
    assert (answer.error_code, answer.records) == (0, b"")


async def test_f08_the_list_of_aborted_transactions_is_null_or_empty_by_isolation(
    client: RawClient, topic: str
) -> None:
    answer = partitions(await client.call(fetch((topic, 0, 0)), 11))[topic, 0]
    assert answer.aborted_transactions is None
    answer = partitions(await client.call(fetch((topic, 0, 0), isolation_level=1), 11))[topic, 0]
    assert answer.aborted_transactions == []
    assert answer.last_stable_offset == 5


async def test_f11_an_unknown_leader_epoch_is_refused(client: RawClient, topic: str) -> None:
    request = fetch((topic, 0, 0))
    request.topics[0].partitions[0].current_leader_epoch = 9
    answer = partitions(await client.call(request, 11))[topic, 0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_f15_the_last_entry_of_a_repeated_partition_counts(
    client: RawClient, topic: str
) -> None:
    response = await client.call(fetch((topic, 0, 0), (topic, 0, 4)), 11)
    (answer,) = response.responses[0].partitions
    assert offsets(answer.records) == [4]


async def test_f15_a_fetch_without_partitions_is_answered_at_once(client: RawClient) -> None:
    response = await client.call(fetch(max_wait_ms=60_000, min_bytes=1), 11)
    assert response.responses == []


async def test_n10_a_parked_fetch_ends_with_its_connection(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    client.send(fetch((topic, 0, 5), max_wait_ms=600_000), 11)
    await until(lambda: broker.node.parked_fetches)
    client.close()
    await until(lambda: not broker.node.parked_fetches)
    assert not broker.node.partition(topic, 0).data_waiters


async def test_n15_a_stop_answers_parked_fetches(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    client.send(fetch((topic, 0, 5), max_wait_ms=600_000), 11)
    await until(lambda: broker.node.parked_fetches)
    stopping = asyncio.create_task(broker.server.stop())
    assert partitions(await client.receive())[topic, 0].records == b""
    await stopping


async def test_f14_the_deletion_of_a_topic_answers_its_parked_fetches(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest

    client.send(fetch((topic, 0, 5), max_wait_ms=600_000), 11)
    other = await broker.client()
    await until(lambda: broker.node.parked_fetches)
    await other.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5)
    answer = partitions(await client.receive())[topic, 0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- Sessions (KIP-227) ---


async def open_session(client: RawClient, *wanted: tuple[str, int, int]) -> Any:
    response = await client.call(fetch(*wanted, session_epoch=0), 11)
    assert response.session_id > 0
    return response


async def test_f20_f23_f24_incremental_answers_have_changed_partitions_only(
    client: RawClient, topic: str
) -> None:
    first = await open_session(client, (topic, 0, 5), (topic, 1, 2))
    assert set(partitions(first)) == {(topic, 0), (topic, 1)}
    session = {"session_id": first.session_id}
    quiet = await client.call(fetch(session_epoch=1, **session), 11)
    assert quiet.responses == []
    await client.call(produce_request(topic, batch_of(b"new"), partition=1), 9)
    told = await client.call(fetch(session_epoch=2, **session), 11)
    assert list(partitions(told)) == [(topic, 1)]
    assert offsets(partitions(told)[topic, 1].records) == [2]


async def test_f23_forgotten_partitions_leave_a_session_and_close_an_empty_one(
    client: RawClient, topic: str
) -> None:
    first = await open_session(client, (topic, 0, 0), (topic, 1, 0))
    request = fetch(session_id=first.session_id, session_epoch=1)
    request.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[0])]
    assert list(partitions(await client.call(request, 11))) == [(topic, 1)]
    request = fetch(session_id=first.session_id, session_epoch=2)
    request.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[1])]
    closed = await client.call(request, 11)
    assert (closed.session_id, closed.responses) == (0, [])
    gone = await client.call(fetch(session_id=first.session_id, session_epoch=3), 11)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_f02_min_bytes_over_max_bytes_is_lowered_to_max_bytes(
    client: RawClient, topic: str
) -> None:
    """With the requested min.bytes the fetch would wait in vain."""
    request = fetch((topic, 0, 0), max_wait_ms=60_000, min_bytes=1 << 24, max_bytes=1_500)
    answer = partitions(await client.call(request, 11))[topic, 0]
    assert offsets(answer.records) == [0]


async def test_f02_min_bytes_is_limited_by_the_brokers_fetch_max_bytes(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(fetch_max_bytes="2048")
    client = await broker.client()
    await client.create_topic("t")
    for _ in range(4):
        await client.call(produce_request("t", batch_of(b"x" * 932)), 9)
    request = fetch(("t", 0, 0), max_wait_ms=60_000, min_bytes=1 << 24)
    answer = partitions(await client.call(request, 11))["t", 0]
    assert offsets(answer.records) == [0, 1]


async def test_f22_session_epoch_1_follows_the_largest_epoch(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    first = await client.call(fetch((topic, 0, 5), session_epoch=0), 11)
    (session,) = broker.node.fetch_sessions.by_id.values()
    session.epoch = 2**31 - 2
    for epoch in (2**31 - 2, 2**31 - 1, 1, 2):
        request = fetch(session_id=first.session_id, session_epoch=epoch)
        assert (await client.call(request, 11)).error_code == ErrorCode.NONE, epoch


async def test_f27_an_error_of_one_partition_leaves_the_others_alone(
    client: RawClient, topic: str
) -> None:
    wanted = fetch((topic, 0, 0), (topic, 7, 0), ("absent", 0, 0), (topic, 1, 99), (topic, 1, 0))
    answer = await client.call(wanted, 11)
    assert answer.error_code == ErrorCode.NONE
    assert {where: found.error_code for where, found in partitions(answer).items()} == {
        (topic, 0): ErrorCode.NONE,
        (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic, 1): ErrorCode.NONE,
    }
    out = partitions(await client.call(fetch((topic, 1, 99), (topic, 0, 0)), 11))
    assert out[topic, 1].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(out[topic, 0].records)[0] == 0


async def test_f28_unknown_partitions_are_answered_last(client: RawClient, topic: str) -> None:
    wanted = (("nobody", 0, 0), (topic, 9, 0), (topic, 1, 99), (topic, 0, 0))
    answer = await client.call(fetch(*wanted, isolation_level=1), 11)
    in_order = [(t.topic, one.partition_index) for t in answer.responses for one in t.partitions]
    assert in_order == [(topic, 1), (topic, 0), ("nobody", 0), (topic, 9)]
    aborted = [one.aborted_transactions for one in partitions(answer).values()]
    assert aborted == [None, [], [], []]


async def test_f28_unknown_topic_ids_are_answered_before_missing_partitions(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    request = fetch((topic, 9, 0), ("nobody", 0, 0), (topic, 0, 0))
    ids = {topic: broker.node.metadata.topic_id(topic), "nobody": b"\1" * 16}
    for asked in request.topics:
        asked.topic_id = ids[asked.topic]
    answer = await client.call(request, 13)
    in_order = [(t.topic_id, one.partition_index) for t in answer.responses for one in t.partitions]
    assert in_order == [(ids[topic], 0), (ids["nobody"], 0), (ids[topic], 9)]


async def test_f14_a_session_distinguishes_deleted_and_recreated_topics(
    client: RawClient, broker: RunningBroker
) -> None:
    await client.create_topic("passing")
    await client.create_topic("other")
    request = fetch(("passing", 0, 0), ("other", 0, 0), session_epoch=0)
    for asked in request.topics:
        asked.topic_id = broker.node.metadata.topic_id(asked.topic)
    session_id = (await client.call(request, 13)).session_id

    async def told(epoch: int) -> list[tuple[int, Any]]:
        answer = await client.call(fetch(session_id=session_id, session_epoch=epoch), 13)
        found = [one for each in answer.responses for one in each.partitions]
        return [(one.error_code, one.aborted_transactions) for one in found]

    doomed = [DeleteTopicState(name="passing")]
    await client.call(DeleteTopicsRequest(topics=doomed, timeout_ms=10_000), 6)
    assert await told(1) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])]
    await client.create_topic("passing")
    for epoch in (2, 3):
        assert await told(epoch) == [(ErrorCode.INCONSISTENT_TOPIC_ID, None)]


async def test_f21_invalid_session_ids_and_epochs_are_refused(
    client: RawClient, topic: str
) -> None:
    answer = await client.call(fetch((topic, 0, 0), session_id=77, session_epoch=1), 11)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert answer.responses == []
    first = await open_session(client, (topic, 0, 0))
    wrong = await client.call(fetch(session_id=first.session_id, session_epoch=5), 11)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    crossed = await client.call(fetch(session_id=first.session_id, session_epoch=1), 13)
    assert crossed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_f25_a_partition_with_records_moves_to_the_end_of_its_session(
    client: RawClient, topic: str
) -> None:
    """The answers have room for one batch, so the partitions take turns."""
    request = fetch((topic, 0, 0), (topic, 1, 0), max_bytes=1100, session_epoch=0)
    first = await client.call(request, 11)
    assert partitions(first)[topic, 0].records and not partitions(first)[topic, 1].records
    turns = []
    for epoch in range(1, 5):
        answer = await client.call(
            fetch(session_id=first.session_id, session_epoch=epoch, max_bytes=1100), 11
        )
        turns.append(list(partitions(answer)))
    # The first answer moved no partition.
    assert turns == [[(topic, 0)], [(topic, 1)], [(topic, 0)], [(topic, 1)]]


async def test_f25_a_session_begins_in_the_order_of_its_first_answer(
    client: RawClient, topic: str
) -> None:
    await client.create_topic("other")
    request = fetch(
        ("other", 0, 0), ("missing", 0, 0), (topic, 1, 0), partition_max_bytes=1, session_epoch=0
    )
    first = await client.call(request, 11)
    assert list(partitions(first)) == [("other", 0), (topic, 1), ("missing", 0)]
    # `topic` has one entry in the answer only if its partitions are neighbours in the session.
    second = await client.call(
        fetch((topic, 0, 7), session_id=first.session_id, session_epoch=1), 11
    )
    assert [
        (each.topic, [one.partition_index for one in each.partitions]) for each in second.responses
    ] == [(topic, [1, 0]), ("missing", [0])]


async def test_f26_no_session_begins_if_the_session_cache_is_full(start_broker: Any) -> None:
    broker = await start_broker(max_incremental_fetch_session_cache_slots="1")
    client = await broker.client()
    await client.create_topic("t")
    await open_session(client, ("t", 0, 0))
    refused = await client.call(fetch(("t", 0, 0), session_epoch=0), 11)
    assert (refused.error_code, refused.session_id) == (0, 0)
    assert ("t", 0) in partitions(refused)


def test_f26_d11_the_partitions_of_all_sessions_are_limited() -> None:
    clock = SimulatedClock(wall_start_ms=0)
    config, _ = parse_config({})
    topics = ClusterMetadata(config, RealRandomness())
    slices = Slices(lambda: 0, SoonScheduler())
    sessions = FetchSessions(clock, RealRandomness(), 10, topics, slices, partitions_max=5)

    def ask(count: int, session_id: int = 0, epoch: int = 0, first: int = 0) -> Any:
        wanted = [("t", index, 0) for index in range(first, first + count)]
        return sessions.plan(fetch(*wanted, session_id=session_id, session_epoch=epoch), 11)

    held = ask(3)
    assert ask(3).session is None
    assert ask(2).session is not None
    assert len(sessions) == 2
    grown = ask(1, held.session.id, 1, first=3)
    assert grown is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "it would grow without end"
    assert len(sessions) == 1
    assert ask(3).session is not None
    clock.now_ms += 120_000
    assert ask(5).session is not None, "those that nobody uses make room"
    assert len(sessions) == 1


# --- Epochs and errors ---


def after(epoch: int, offset: int, **fields: Any) -> FetchRequest:
    """A fetch that waits for 10 minutes, by a client whose last record has the given epoch."""
    request = fetch(("t", 0, offset), max_wait_ms=600_000, **fields)
    request.topics[0].partitions[0].last_fetched_epoch = epoch
    return request


async def test_f12_a_diverging_log_is_answered_at_once_with_the_diverging_epoch(
    client: RawClient, topic: str
) -> None:
    """The fetch does not wait, although nothing can be read."""
    answer = partitions(await client.call(after(0, 9), 12))[topic, 0]
    assert (answer.error_code, bytes(answer.records)) == (ErrorCode.NONE, b"")
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 5)
    assert (answer.high_watermark, answer.log_start_offset) == (5, 0)


async def test_f12_records_are_read_if_the_last_fetched_epoch_agrees(
    client: RawClient, topic: str
) -> None:
    answer = partitions(await client.call(after(0, 2), 12))[topic, 0]
    assert offsets(answer.records) == [2, 3, 4]
    assert answer.diverging_epoch.epoch == -1


async def test_f12_a_last_fetched_epoch_of_the_future_is_out_of_range(
    client: RawClient, topic: str
) -> None:
    answer = partitions(await client.call(after(5, 2), 12))[topic, 0]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_f24_a_session_repeats_the_diverging_epoch_in_each_answer(
    client: RawClient, topic: str
) -> None:
    opened = await client.call(after(0, 9, session_epoch=0), 12)
    for epoch in (1, 2):
        again = FetchRequest(
            max_wait_ms=600_000, min_bytes=1, session_id=opened.session_id, session_epoch=epoch
        )
        answer = partitions(await client.call(again, 12))[topic, 0]
        assert answer.diverging_epoch.end_offset == 5


@pytest.mark.parametrize(
    ("wanted", "fields", "error", "aborted"),
    [
        (("t", 0, 9), {}, ErrorCode.OFFSET_OUT_OF_RANGE, None),
        (("t", 0, 0), {"replica_id": 5}, ErrorCode.NOT_LEADER_OR_FOLLOWER, None),
        (("t", 9, 0), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        (("nobody", 0, 0), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ],
)
async def test_an_answer_with_an_error_has_no_offsets_and_transactions(
    client: RawClient,
    topic: str,
    wanted: tuple[str, int, int],
    fields: dict[str, Any],
    error: ErrorCode,
    aborted: list[Any] | None,
) -> None:
    """A partition that does not exist has an empty list of aborted transactions, as in Kafka."""
    answer = partitions(await client.call(fetch(wanted, **fields), 11))[wanted[:2]]
    assert answer.error_code == error
    assert answer.aborted_transactions == aborted
    told = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
    assert told == (-1, -1, -1)
