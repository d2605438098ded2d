"""Requests with very many names, and of large batches: the waits of another client meanwhile.

    python -m benchmarks.long_requests [--elements 95000] [--only Metadata] [--kafka] [--json]

One client sends a request of each API that names so many things, first as a user without rights and
then as one with all rights. Then four connections send eight such Metadata requests. Another client
sends ApiVersions all the time, and its answers are counted. A user with all rights also produces
batches of 1 MB or less that inflate to 120 MB, searches them for a timestamp, and produces 40
batches of 1 MB in one request. With --kafka an Apache Kafka is measured as well, whose user has all
rights.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.support import Report, parser, run_on_uvloop, say
from benchmarks.waits import address_of, others_wait

from odradek.broker import SubprocessBroker
from odradek_protocol.compression import Codec
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import Message
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.metadata import MetadataRequest
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import raw_client
from kafka_cluster import KafkaCluster
from large_requests import array_paths, large_request
from raw_client import RawClient, batch_of, produce_request

raw_client.PATIENCE_S = 300
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_CROWD, _CROWD_REQUESTS = 4, 8
_NO_RIGHTS = "no rights"
#: The content of a large batch, and the partitions of a request with many batches.
_LARGE_BYTES, _LARGE_RECORDS, _MANY_PARTITIONS = 120_000_000, 120_000, 40
_FIRST_MS = 1_700_000_000_000
#: The array of each API that has the names.
_ARRAYS: dict[ApiKey, tuple[str, ...]] = {
    ApiKey.METADATA: ("topics",),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("topics",),
    ApiKey.DELETE_TOPICS: ("topics",),
    ApiKey.CREATE_TOPICS: ("topics",),
    ApiKey.DESCRIBE_GROUPS: ("groups",),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("group_ids",),
    ApiKey.DELETE_GROUPS: ("groups_names",),
    ApiKey.DESCRIBE_PRODUCERS: ("topics",),
    ApiKey.FIND_COORDINATOR: ("coordinator_keys",),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transactional_ids",),
    ApiKey.ELECT_LEADERS: ("topic_partitions",),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("users",),
    ApiKey.LIST_OFFSETS: ("topics",),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics",),
    ApiKey.OFFSET_FETCH: ("groups", "topics"),
    ApiKey.FETCH: ("topics",),
    ApiKey.DESCRIBE_CONFIGS: ("resources",),
}


def _asking(key: ApiKey, elements: int) -> Message:
    """A request with so many elements, those in the arrays of each name included."""
    api, path = APIS[key], _ARRAYS[key]
    inner = [
        other for other in array_paths(api.request, api.versions.last) if other[: len(path)] == path
    ]
    request = large_request(key, path, elements // len(inner), lambda number: f"n{number}")
    if isinstance(request, MetadataRequest):
        request.allow_auto_topic_creation = False
        for topic in request.topics or ():
            topic.topic_id = bytes(16)
    return request


async def _connect(bootstrap: str) -> RawClient:
    return RawClient(*await asyncio.open_connection(*address_of(bootstrap), limit=2**27))


def _one(request: Message) -> Callable[[str], Awaitable[None]]:
    async def run(bootstrap: str) -> None:
        client = await _connect(bootstrap)
        client.send(request)
        await client.receive_frame()
        client.close()

    return run


def _crowd(elements: int) -> Callable[[str], Awaitable[None]]:
    request = _asking(ApiKey.METADATA, elements)

    async def ask(bootstrap: str) -> None:
        client = await _connect(bootstrap)
        for _ in range(_CROWD_REQUESTS // _CROWD):
            client.send(request)
        for _ in range(_CROWD_REQUESTS // _CROWD):
            await client.receive_frame()
        client.close()

    async def run(bootstrap: str) -> None:
        await asyncio.gather(*(ask(bootstrap) for _ in range(_CROWD)))

    return run


def _large(name: str, codec: Codec) -> ProduceRequest:
    builder = BatchBuilder(codec)
    for index in range(_LARGE_RECORDS):
        builder.append(_FIRST_MS + index, None, bytes(_LARGE_BYTES // _LARGE_RECORDS))
    return produce_request(name, builder.build())


def _many(name: str) -> ProduceRequest:
    records = batch_of(*[bytes(1000)] * 1000)
    parts = [
        PartitionProduceData(index=index, records=bytearray(records))
        for index in range(_MANY_PARTITIONS)
    ]
    topic = TopicProduceData(name=name, partition_data=parts)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def _produced(
    request: ProduceRequest, *, searched: bool = False
) -> Callable[[str], Awaitable[None]]:
    name = request.topic_data[0].name

    async def run(bootstrap: str) -> None:
        client = await _connect(bootstrap)
        await client.create_topic(name, _MANY_PARTITIONS, max_message_bytes="20000000")
        answer = await client.call(request, 9)
        for each in answer.responses[0].partition_responses:
            if each.error_code:
                raise SystemExit(f"the batch was refused: {each.error_code} {each.error_message}")
        if searched:
            asked = ListOffsetsPartition(timestamp=_FIRST_MS + _LARGE_RECORDS - 1)
            topic = ListOffsetsTopic(name=name, partitions=[asked])
            await client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
        client.close()

    return run


async def _measure(report: Report, who: str, bootstrap: str, options: Any) -> None:
    cases = {APIS[key].name: _one(_asking(key, options.elements)) for key in _ARRAYS}
    cases[f"{_CROWD_REQUESTS} Metadata, {_CROWD} connections"] = _crowd(options.elements)
    if who != _NO_RIGHTS:
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
            name = codec.name.lower()
            cases[f"Produce of 120 MB, {name}"] = _produced(_large(name, codec))
        cases["Produce of 40 times 1 MB"] = _produced(_many("many"))
        searched = _produced(_large("searched", Codec.GZIP), searched=True)
        cases["Produce and ListOffsets by time, gzip"] = searched
    for case, run in cases.items():
        if not case.startswith(options.only):
            continue
        say(f"{who}: {case}")
        with others_wait(bootstrap) as waits:
            started = time.perf_counter()
            await run(bootstrap)
            took_s = time.perf_counter() - started
        report.row(
            [
                f"{who}: {case}",
                f"{waits.worst_ms:.0f}",
                f"{waits.share_ms(0.99):.1f}",
                f"{took_s:.2f}",
                f"{len(waits.all_ms)}",
            ],
            worst_ms=waits.worst_ms,
            p99_ms=waits.share_ms(0.99),
            took_s=took_s,
            answers=len(waits.all_ms),
        )


async def _run(options: Any) -> None:
    report = Report("long_requests", as_json=options.json)
    report.machine()
    report.table(
        f"Waits of another client during a request with {options.elements} elements",
        ("case", "longest wait, ms", "99 %, ms", "request, s", "answers"),
    )
    for who, user in ((_NO_RIGHTS, "User:nobody"), ("all rights", "User:ANONYMOUS")):
        settings = {"authorizer.class.name": _AUTHORIZER, "super.users": user}
        with SubprocessBroker(settings=settings, timeout_s=60) as broker:
            await _measure(report, who, broker.bootstrap, options)
    if options.kafka:
        settings = {"authorizer.class.name": _AUTHORIZER, "super.users": "User:ANONYMOUS"}
        with (
            tempfile.TemporaryDirectory() as folder,
            KafkaCluster(Path(folder) / "kafka", settings=settings) as cluster,
        ):
            await _measure(report, "Kafka", cluster.bootstrap, options)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--elements", type=int, default=95_000)
    made.add_argument("--kafka", action="store_true", help="measure an Apache Kafka as well")
    made.add_argument("--only", default="", help="only cases whose names begin so")
    run_on_uvloop(_run(made.parse_args()))


if __name__ == "__main__":
    main()
