"""Batches of an Apache Kafka in mirror topics of our broker: the same bytes at the same offsets,
and the same results for read_committed consumers (I-03, I-05, I-08)."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from kafka_cluster import KafkaCluster
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    MirroredPartition,
    MirroredPartitionResult,
    MirroredTopic,
)
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from odradek_protocol.schemas.promote_mirror_topics import PromoteMirrorTopicsRequest
from raw_client import RawClient

pytestmark = pytest.mark.kafka

SOURCE = "kafka:AAAAAAAAAAAAAAAAAAAAAA"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_DEADLINE_S = 60.0
_EARLIEST = -2
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1",
}


async def connect(bootstrap: str) -> RawClient:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    return RawClient(*await asyncio.open_connection(host, int(port)))


async def fetch(client: RawClient, topic: str, offset: int, isolation: int) -> PartitionData:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
    request = FetchRequest(
        isolation_level=isolation,
        max_wait_ms=0,
        max_bytes=2**24,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    found: PartitionData = (await client.call(request, 12)).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE, found
    return found


async def whole_log(client: RawClient, topic: str) -> tuple[bytes, PartitionData]:
    """Read all whole batches from the log start on. Returns them with the last response."""
    earliest = ListOffsetsPartition(partition_index=0, timestamp=_EARLIEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[earliest])]
    )
    offset = (await client.call(request, 6)).topics[0].partitions[0].offset
    parts: list[bytes] = []
    while True:
        found = await fetch(client, topic, offset, 0)
        data = bytes(found.records or b"")
        batches = list(iter_batches(data))
        if not batches:
            return b"".join(parts), found
        position, last = batches[-1]
        parts.append(data[: position + last.size_bytes])
        offset = last.next_offset


async def committed(client: RawClient, topic: str, start: int) -> tuple[int, list[tuple[int, int]]]:
    """The last stable offset, and the aborted transactions."""
    found = await fetch(client, topic, start, 1)
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or []]
    return found.last_stable_offset, sorted(aborted)


async def leader_epoch(client: RawClient, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer = await client.call(request, 9)
    epoch: int = answer.topics[0].partitions[0].leader_epoch
    return epoch


async def mirror(client: RawClient, topic: str, part: MirroredPartition) -> MirroredPartitionResult:
    named = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    topic_id = (await client.call(named, 12)).topics[0].topic_id
    asked = MirroredTopic(name=topic, topic_id=topic_id, source=SOURCE, partitions=[part])
    request = AppendMirrorRecordsRequest(timeout_ms=20_000, topics=[asked])
    result: MirroredPartitionResult = (await client.call(request, 0)).topics[0].partitions[0]
    return result


def consumed(bootstrap: str, topic: str, count: int) -> list[tuple[Any, ...]]:
    """Read the committed records up to the last stable offset with librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    rows: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        problem = message.error()
        if problem is not None:
            assert problem.code() == confluent_kafka.KafkaError._PARTITION_EOF, problem
            break
        rows.append(
            (
                message.offset(),
                message.key(),
                message.value(),
                message.timestamp(),
                message.headers(),
            )
        )
    consumer.close()
    assert len(rows) >= count
    return rows


def produce(bootstrap: str, topic: str, **settings: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(40):
        producer.produce(
            topic,
            b"value %d" % number * 20,
            key=b"k%d" % (number % 3),
            partition=0,
            headers=[("h", b"x")],
        )
    assert producer.flush(_DEADLINE_S) == 0


def transactions(bootstrap: str, topic: str) -> confluent_kafka.Producer:
    """Write committed, aborted and interleaved transactions. Returns a producer whose transaction
    is open."""
    made = []
    for name in ("a", "b"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{name}"}
        )
        producer.init_transactions(_DEADLINE_S)
        made.append(producer)
    for round_number in range(4):
        for producer in made:
            producer.begin_transaction()
            producer.produce(topic, b"in %d" % round_number, key=b"t", partition=0)
            producer.flush(_DEADLINE_S)
        made[0].commit_transaction(_DEADLINE_S)
        made[1].abort_transaction(_DEADLINE_S)
    made[1].begin_transaction()
    made[1].produce(topic, b"left open", partition=0)
    made[1].flush(_DEADLINE_S)
    plain = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, b"behind it", partition=0)
    plain.flush(_DEADLINE_S)
    return made[1]


def create(bootstrap: str, topic: str, **config: str) -> None:
    wanted = NewTopic(topic, 1, 1, config={k.replace("_", "."): v for k, v in config.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([wanted]).values():
        future.result()


async def assert_mirrored(kafka: str, ours: str, topic: str, *, few: int = 1 << 30) -> None:
    """Mirror a topic, at most `few` bytes at a time, and compare both sides."""
    create(ours, topic, mirror_source=SOURCE)
    source, target = await connect(kafka), await connect(ours)
    content, last = await whole_log(source, topic)
    end, at, epoch = 0, 0, await leader_epoch(source, topic)
    bounds = [position + header.size_bytes for position, header in iter_batches(content)]
    while at < len(content):
        upto = max([b for b in bounds if at < b <= at + few] or [min(b for b in bounds if b > at)])
        part = MirroredPartition(
            partition_index=0,
            expected_end_offset=end,
            fetch_offset=max(end, last.log_start_offset),
            source_leader_epoch=epoch,
            source_log_start_offset=last.log_start_offset,
            source_high_watermark=last.high_watermark,
            records=content[at:upto],
        )
        result = await mirror(target, topic, part)
        assert result.error_code == ErrorCode.NONE, result
        end, at = result.log_end_offset, upto
    assert end == last.high_watermark
    copied, told = await whole_log(target, topic)
    assert copied == content
    assert (told.high_watermark, told.log_start_offset) == (
        last.high_watermark,
        last.log_start_offset,
    )
    start = last.log_start_offset
    assert await committed(target, topic, start) == await committed(source, topic, start)
    assert await leader_epoch(target, topic) >= epoch
    theirs = await asyncio.to_thread(consumed, kafka, topic, 1)
    assert await asyncio.to_thread(consumed, ours, topic, 1) == theirs
    source.close()
    target.close()


@pytest.mark.parametrize("few", [1, 1 << 30])
async def test_i03_i05_transactions_of_kafka_are_mirrored_byte_by_byte(
    kafka: KafkaCluster, address: str, few: int
) -> None:
    topic = f"transactions-{few}"
    create(kafka.bootstrap, topic)
    opened = await asyncio.to_thread(transactions, kafka.bootstrap, topic)
    await assert_mirrored(kafka.bootstrap, address, topic, few=few)
    client = await connect(address)
    answer = await client.call(PromoteMirrorTopicsRequest(timeout_ms=20_000, topics=[topic]), 0)
    (promoted,) = answer.topics
    assert (promoted.error_code, promoted.aborted_transactions) == (ErrorCode.NONE, 1)
    stable, _ = await committed(client, topic, 0)
    content, last = await whole_log(client, topic)
    assert stable == last.high_watermark
    await asyncio.to_thread(transactions, address, topic)
    client.close()
    await asyncio.to_thread(opened.abort_transaction, _DEADLINE_S)
    assert content


@pytest.mark.parametrize("codec", CODECS)
async def test_i03_batches_of_every_codec_of_kafka_are_mirrored(
    kafka: KafkaCluster, address: str, codec: str
) -> None:
    topic = f"codec-{codec}"
    append_time = "LogAppendTime" if codec in ("none", "zstd") else "CreateTime"
    create(kafka.bootstrap, topic, message_timestamp_type=append_time)
    settings = {"compression.type": codec, "linger.ms": 50, "enable.idempotence": True}
    await asyncio.to_thread(lambda: produce(kafka.bootstrap, topic, **settings))
    await assert_mirrored(kafka.bootstrap, address, topic)


async def test_i08_a_log_of_kafka_that_begins_later_is_mirrored(
    kafka: KafkaCluster, address: str
) -> None:
    topic = "trimmed"
    create(kafka.bootstrap, topic)
    await asyncio.to_thread(produce, kafka.bootstrap, topic)
    await asyncio.to_thread(transactions, kafka.bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    at = confluent_kafka.TopicPartition(topic, 0, 17)
    for future in admin.delete_records([at]).values():
        await asyncio.to_thread(future.result)
    await assert_mirrored(kafka.bootstrap, address, topic)


async def test_i03_compacted_logs_of_kafka_are_mirrored(kafka: KafkaCluster, address: str) -> None:
    """The source has gaps, batches without records, and markers of transactions whose records
    compaction has removed."""
    topic = "compacted"
    create(kafka.bootstrap, topic, **{k.replace(".", "_"): v for k, v in _COMPACTED.items()})
    client = await connect(kafka.bootstrap)
    async with asyncio.timeout(300):
        while True:
            await asyncio.to_thread(produce, kafka.bootstrap, topic)
            await asyncio.sleep(0.3)
            content, _ = await whole_log(client, topic)
            headers = [header for _, header in iter_batches(content)]
            if any(h.record_count < h.last_offset_delta + 1 for h in headers) and any(
                after.base_offset > before.next_offset for before, after in pairwise(headers)
            ):
                break
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    resource = ConfigResource("topic", topic)
    resource.add_incremental_config(
        ConfigEntry(
            "min.compaction.lag.ms",
            "9000000000000",
            incremental_operation=AlterConfigOpType.SET,
        )
    )
    for future in admin.incremental_alter_configs([resource]).values():
        await asyncio.to_thread(future.result)
    before, after = b"", b"x"
    while before != after:
        before = after
        await asyncio.sleep(1.0)
        after, _ = await whole_log(client, topic)
    await assert_mirrored(kafka.bootstrap, address, topic)
    client.close()
