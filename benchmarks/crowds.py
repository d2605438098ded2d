"""Requests that are small but expensive: the waits of another client meanwhile.

    python -m benchmarks.crowds [--members 1000] [--topics 1000] [--ids 300] [--kafka] [--json]

One client sends regular expressions that match slowly, then the members of one large group join:
of a consumer, a share, a streams and a classic group, and a record arrives for which many fetches
wait. Another client sends ApiVersions all the time. With --kafka an Apache Kafka is measured as
well, which Java runs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.support import Report, parser, run_on_uvloop, say
from benchmarks.waits import address_of, others_wait

from odradek.broker import SubprocessBroker
from odradek_protocol.common_structs import StreamsSubtopology
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.list_transactions import ListTransactionsRequest
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsTopology,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import raw_client
from kafka_cluster import KafkaCluster
from raw_client import RawClient, batch_of, produce_request

_SLOW = "(?:.?.?.?.?.?.?.?.?.?.?){100}"
_TOPIC = "crowd"
#: A version of InitProducerId that Kafka serves without a feature that is not stable.
_INIT_VERSION = 4
_CONNECTIONS = 20
_PARTITIONS = 100
_ROUNDS_MAX = 40
_ROUND_PAUSE_S = 1.0
_PATIENCE_S = 300
raw_client.PATIENCE_S = _PATIENCE_S

Beat = Callable[[str, int, bool], Any]
"""(member id, epoch, whether a joined member reports what it owns) -> request."""


@dataclass
class Answers:
    """The answers to the requests of a case: how many, and how many of them were errors."""

    number: int = 0
    errors: int = 0

    def count(self, answer: Any) -> None:
        """Count an answer."""
        self.number += 1
        # 79: the member id that a classic member has to join with.
        if answer.error_code not in (0, 79):
            say(str(answer)) if not self.errors else None
            self.errors += 1


async def _connect(bootstrap: str) -> RawClient:
    return RawClient(*await asyncio.open_connection(*address_of(bootstrap), limit=2**24))


async def _prepare(bootstrap: str, topics: int, ids: int) -> None:
    client = await _connect(bootstrap)
    names = [f"{index:04}-{'ab' * 100}" for index in range(topics)]
    wanted = [
        CreatableTopic(name=_TOPIC, num_partitions=_PARTITIONS, replication_factor=-1),
        *(CreatableTopic(name=name, num_partitions=1, replication_factor=-1) for name in names),
    ]
    for at in range(0, len(wanted), 200):
        answer = await client.call(
            CreateTopicsRequest(topics=wanted[at : at + 200], timeout_ms=60_000)
        )
        assert not any(topic.error_code for topic in answer.topics), answer.topics[0]
    for key_type in (0, 1):
        while True:
            found = await client.call(
                FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            )
            if found.coordinators[0].error_code == 0:
                break
            await asyncio.sleep(0.2)
    for index in range(ids):
        request = InitProducerIdRequest(
            transactional_id=f"{index:04}-{'ab' * 100}", transaction_timeout_ms=60_000
        )
        while True:
            made = await client.call(request, _INIT_VERSION)
            if made.error_code == 0:
                break
            await asyncio.sleep(0.2)
    client.close()


async def _list(bootstrap: str, answers: Answers) -> None:
    client = await _connect(bootstrap)
    for _ in range(2):
        answers.count(await client.call(ListTransactionsRequest(transactional_id_pattern=_SLOW)))
    client.close()


async def _subscribe(bootstrap: str, answers: Answers) -> None:
    client = await _connect(bootstrap)
    for _ in range(2):
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"g-{uuid4()}",
            member_id=str(uuid4()),
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex=_SLOW,
            topic_partitions=[],
        )
        answers.count(await client.call(request))
    client.close()


def _consumer(group_id: str) -> Beat:
    return lambda member_id, epoch, owning: ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if not owning else -1,
        subscribed_topic_names=None if owning else [_TOPIC],
        topic_partitions=[],
    )


def _share(group_id: str) -> Beat:
    return lambda member_id, epoch, owning: ShareGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=None if owning else [_TOPIC],
    )


def _streams(group_id: str) -> Beat:
    topology = StreamsTopology(
        epoch=0, subtopologies=[StreamsSubtopology(subtopology_id="0", source_topics=[_TOPIC])]
    )
    return lambda member_id, epoch, owning: StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=-1 if owning else 60_000,
        topology=None if owning else topology,
        active_tasks=None if owning else [],
        standby_tasks=None if owning else [],
        warmup_tasks=None if owning else [],
        process_id=None if owning else member_id,
        client_tags=None if owning else [],
    )


def _crowd(members: int, beats: Callable[[str], Beat]) -> Callable[[str, Answers], Awaitable[None]]:
    async def run(bootstrap: str, answers: Answers) -> None:
        beat = beats(f"g-{uuid4()}")
        epochs = {str(uuid4()): 0 for _ in range(members)}
        clients = [await _connect(bootstrap) for _ in range(_CONNECTIONS)]

        async def turn(client: RawClient, ids: list[str]) -> None:
            for member_id in ids:
                epoch = epochs[member_id]
                answer = await client.call(beat(member_id, epoch, epoch > 0))
                answers.count(answer)
                epochs[member_id] = max(answer.member_epoch, 0)

        # The members join, and then send heartbeats until all have the same epoch.
        for each_round in range(_ROUNDS_MAX):
            shares = [list(epochs)[at::_CONNECTIONS] for at in range(_CONNECTIONS)]
            await asyncio.gather(*map(turn, clients, shares))
            if len(set(epochs.values())) == 1 and each_round:
                break
            await asyncio.sleep(_ROUND_PAUSE_S)
        for client in clients:
            client.close()

    return run


def _classic(members: int) -> Callable[[str, Answers], Awaitable[None]]:
    async def run(bootstrap: str, answers: Answers) -> None:
        group_id = f"g-{uuid4()}"
        clients = [await _connect(bootstrap) for _ in range(members)]

        async def join(client: RawClient) -> None:
            member_id = ""
            for _ in range(2):
                request = JoinGroupRequest(
                    group_id=group_id,
                    session_timeout_ms=60_000,
                    rebalance_timeout_ms=60_000,
                    member_id=member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0" * 8)],
                )
                client.send(request, 9)
                answer = await client.receive()
                answers.count(answer)
                member_id = answer.member_id

        await asyncio.gather(*map(join, clients))
        for client in clients:
            client.close()

    return run


def _fetches(number: int) -> Callable[[str, Answers], Awaitable[None]]:
    topic = "waited-for"
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=30_000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )

    async def run(bootstrap: str, answers: Answers) -> None:
        producer = await _connect(bootstrap)
        await producer.create_topic(topic)
        clients = [await _connect(bootstrap) for _ in range(number)]
        for client in clients:
            client.send(request, 11)
            await asyncio.sleep(0)
        await asyncio.sleep(_ROUND_PAUSE_S)
        await producer.call(produce_request(topic, batch_of(b"record")), 9)
        for client in clients:
            answers.count(await client.receive())
        for client in clients:
            client.close()
            await asyncio.sleep(0.001)

    return run


async def _measure(report: Report, name: str, bootstrap: str, options: Any) -> None:
    say(f"{name}: topics and transactional ids")
    await _prepare(bootstrap, options.topics, options.ids)
    cases: dict[str, Callable[[str, Answers], Awaitable[None]]] = {
        f"ListTransactions, {options.ids} ids": _list,
        f"ConsumerGroupHeartbeat, {options.topics} topics": _subscribe,
        f"consumer group, {options.members} members": _crowd(options.members, _consumer),
        f"share group, {options.members} members": _crowd(options.members, _share),
        f"streams group, {options.members} members": _crowd(options.members, _streams),
        f"classic group, {2 * options.members} members": _classic(2 * options.members),
        f"{2 * options.members} fetches wait for a record": _fetches(2 * options.members),
    }
    for case, run in cases.items():
        if options.only and not case.startswith(options.only):
            continue
        say(f"{name}: {case}")
        answers = Answers()
        started = time.perf_counter()
        with others_wait(bootstrap) as waits:
            await run(bootstrap, answers)
        took_s = time.perf_counter() - started
        report.row(
            [
                f"{name}: {case}",
                f"{waits.worst_ms:.0f}",
                f"{waits.share_ms(0.99):.1f}",
                f"{took_s:.1f}",
                f"{answers.number}",
                f"{answers.errors}",
            ],
            worst_ms=waits.worst_ms,
            p99_ms=waits.share_ms(0.99),
            took_s=took_s,
            answers=answers.number,
            errors=answers.errors,
        )


async def _run(options: Any) -> None:
    report = Report("crowds", as_json=options.json)
    report.machine()
    report.table(
        "Waits of another client",
        ("case", "longest wait, ms", "99 %, ms", "case, s", "answers", "errors"),
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
            "group.share.max.size": 1_000,
        }
        if not options.no_ours:
            with SubprocessBroker(settings=settings, timeout_s=60) as broker:
                await _measure(report, "odradek", broker.bootstrap, options)
        if options.kafka:
            texts = {key: str(value) for key, value in settings.items()}
            with KafkaCluster(Path(folder) / "kafka", settings=texts) as cluster:
                await _measure(report, "Kafka", cluster.bootstrap, options)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--members", type=int, default=1_000)
    made.add_argument("--topics", type=int, default=1_000)
    made.add_argument("--ids", type=int, default=300)
    made.add_argument("--kafka", action="store_true", help="measure an Apache Kafka as well")
    made.add_argument("--no-ours", action="store_true", help="measure only the Apache Kafka")
    made.add_argument("--only", default="", help="only cases whose names begin so")
    run_on_uvloop(_run(made.parse_args()))


if __name__ == "__main__":
    main()
