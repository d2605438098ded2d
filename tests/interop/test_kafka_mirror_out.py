"""The mirror out, from Odradek to Apache Kafka and back: kills, the loss of leaders, foreign
readers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from certificates import Authority
from kafka_cluster import SHORT_LIVED, KafkaCluster, class_path, java
from kafka_sasl import kafka_of_sasl, login_of_alice
from mirror_interop import DEADLINE_S, ended, messages, options, row
from mirrored import Row, check_rows, fill, killed, make_topic, mirror, read_all
from odradek import Admin, Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import ConfigResource
from odradek_client.structs import TopicPartition
from odradek_mirror.exactly_once import CrashPoint
from odradek_mirror.map_topic import map_topic
from odradek_mirror.ownership import MirrorFenced

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PARTITIONS = 3
#: The number of records that `rewrite` writes to each partition in one transaction.
_REWRITTEN = 40
#: The time in ms without a record after which Kafka's console consumer ends.
_JAVA_SILENCE_MS = 60_000
_PLACE = re.compile(r"\tPartition:(\d+)\tOffset:(\d+)\t")


@pytest.fixture(params=["kafka", "kafka_cluster"])
def nodes(request: pytest.FixtureRequest) -> KafkaCluster:
    """A cluster of one node, and a cluster of three."""
    found: KafkaCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    with SubprocessBroker(
        settings={"log.durability": "page-cache", "log.cleaner.backoff.ms": "100"}
    ) as running:
        yield running.bootstrap


def read_with_confluent(bootstrap: str, topic: str) -> list[list[Row]]:
    """Read the committed records of each partition with librdkafka."""
    return [[row(each) for each in part] for part in messages(bootstrap, topic, PARTITIONS)]


def read_with_java(bootstrap: str, topic: str, records: int) -> list[str]:
    """Read `count` committed records of a topic with Kafka's console consumer, sorted by partition
    and offset."""
    shown = ("timestamp", "partition", "offset", "headers", "key")
    words = [java(), *SHORT_LIVED, "-cp", class_path()]
    words += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
    words += ["--topic", topic, "--from-beginning", "--timeout-ms", str(_JAVA_SILENCE_MS)]
    words += ["--max-messages", str(records), "--isolation-level", "read_committed"]
    for name in shown:
        words += ["--formatter-property", f"print.{name}=true"]
    words += ["--formatter-property", "null.literal=none"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    # The console consumer also writes log lines to the standard output.
    found = [(_PLACE.search(line), line) for line in done.stdout.splitlines()]
    lines = sorted((int(place[1]), int(place[2]), line) for place, line in found if place)
    assert lines, done.stdout + done.stderr
    return [line for *_, line in lines]


def as_java_prints(partition: int, found: Row) -> str:
    """A record as a line of Kafka's console consumer."""
    offset, timestamp_ms, key, value, headers = found
    pairs = [f"{name}:{_text(content)}" for name, content in headers]
    told = ",".join(pairs) or "NO_HEADERS"
    return (
        f"CreateTime:{timestamp_ms}\tPartition:{partition}\tOffset:{offset}\t{told}"
        f"\t{_text(key)}\t{_text(value)}"
    )


def _text(content: bytes | None) -> str:
    return "none" if content is None else content.decode()


def checked(
    source: str, target: str, topic: str, *more: str
) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code of `odradek mirror check`, its rows, and its messages."""
    words = ("--from", source, "--to", target, "--topics", topic, "--name", topic)
    done = ended("check", *words, "--mode", "exactly-once", "--json", *more)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


async def write_one(bootstrap: str, topic: str, partition: int, value: bytes = b"more") -> int:
    """Write one more record. Returns its offset."""
    async with Producer(bootstrap_servers=bootstrap) as producer:
        return (await producer.send_and_wait(topic, value, partition=partition)).offset


async def rewrite(bootstrap: str, topic: str, first: int) -> None:
    """Overwrite a few keys of each partition, first in an aborted transaction, then in a committed
    one.

    Every seventh record is a tombstone.
    """
    async with Producer(
        bootstrap_servers=bootstrap, transactional_id=topic, compression_type="lz4", linger_ms=5
    ) as producer:
        await producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            await producer.begin_transaction()
            for number in range(first, first + _REWRITTEN * PARTITIONS):
                value = None if number % 7 == 6 else b"%d" % number
                key = b"key %d" % (number % 40)
                await producer.send(topic, value, key, partition=number % PARTITIONS)
            await producer.flush()
            await end()


async def compacted(bootstrap: str, topic: str) -> list[list[Row]]:
    """Make a topic in which compaction has removed records of each partition, and stop compaction.
    Returns the remaining records."""
    await make_topic(
        bootstrap,
        topic,
        PARTITIONS,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
    )
    async with asyncio.timeout(DEADLINE_S), Admin(bootstrap_servers=bootstrap) as admin:
        for written in count(_REWRITTEN, _REWRITTEN):
            await rewrite(bootstrap, topic, written * PARTITIONS)
            await asyncio.sleep(0.3)
            found = await read_all(bootstrap, topic, PARTITIONS)
            if all(len(part) < written for part in found):
                break
        never = {"min.compaction.lag.ms": "9000000000000"}
        await admin.alter_configs({ConfigResource.topic(topic): never})
        before: list[list[Row]] = []
        while before != found:
            await asyncio.sleep(1.0)
            before, found = found, await read_all(bootstrap, topic, PARTITIONS)
    return found


async def test_every_record_arrives_once_and_is_read_by_other_clients(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS)
    async with mirror(source, nodes.bootstrap, unique_topic) as made:
        await made.drain()
        await fill(source, unique_topic, PARTITIONS, count=100, first=1000)
        await made.drain()
        await made.check(PARTITIONS)
    before = await read_all(source, unique_topic, PARTITIONS)
    found = await asyncio.to_thread(read_with_confluent, nodes.bootstrap, unique_topic)
    check_rows(before, found)
    records = sum(map(len, found))
    printed = await asyncio.to_thread(read_with_java, nodes.bootstrap, unique_topic, records)
    assert printed == [as_java_prints(n, each) for n, part in enumerate(found) for each in part]


@pytest.mark.parametrize("step", list(CrashPoint))
async def test_a_killed_mirror_continues_without_loss_or_duplicates(
    source: str, nodes: KafkaCluster, unique_topic: str, step: CrashPoint
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS, count=200)
    for nth in (1, 2):
        await asyncio.to_thread(killed, source, nodes.bootstrap, unique_topic, step, nth)
    async with mirror(source, nodes.bootstrap, unique_topic) as made:
        await made.drain()
        await made.check(PARTITIONS)


async def test_a_second_instance_ends_the_first(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS, count=100)
    async with (
        mirror(source, nodes.bootstrap, unique_topic) as made,
        mirror(source, nodes.bootstrap, unique_topic) as other,
    ):
        first = made.make()
        await first.start()
        await first.add(await made.planned())
        await other.drain()
        await fill(source, unique_topic, PARTITIONS, count=20, first=500)
        with pytest.raises(MirrorFenced):
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    await first.step(100)
        await first.close()
        await other.drain()
        await other.check(PARTITIONS)


async def test_a_mirror_continues_after_its_transaction_was_aborted(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    """The epoch of the producer is increased, as by the transaction timeout, and no other instance
    takes over."""
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS, count=100)
    async with mirror(source, nodes.bootstrap, unique_topic) as made:
        copier = made.make()
        await copier.start()
        await copier.add(await made.planned())
        await made.target.fence_producer(map_topic(unique_topic))
        async with asyncio.timeout(DEADLINE_S):
            while any(made.counts.positions[tp] < made.counts.ends[tp] for tp in made.counts.ends):
                await copier.step(100)
        await copier.close()
        await made.check(PARTITIONS)


async def test_a_mirror_survives_the_loss_of_leaders(
    source: str, kafka_cluster: KafkaCluster, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS)
    node = kafka_cluster.nodes[0]
    down: list[CrashPoint] = []

    def reached(step: CrashPoint) -> None:
        if step is CrashPoint.MAPPED and not down:
            down.append(step)
            node.kill()

    try:
        settings = {"transaction_bytes": 20_000}
        async with mirror(source, kafka_cluster.bootstrap, unique_topic, **settings) as made:
            await made.drain(reached)
    finally:
        await asyncio.to_thread(node.start)
    assert down
    async with mirror(source, kafka_cluster.bootstrap, unique_topic) as made:
        await made.check(PARTITIONS)


async def test_records_of_apache_kafka_are_copied_exactly_once(
    source: str, kafka: KafkaCluster, unique_topic: str
) -> None:
    """The source has transactions, aborts and append times of Kafka; the copy is in Odradek."""
    append_time = "LogAppendTime"
    await make_topic(kafka.bootstrap, unique_topic, PARTITIONS, message_timestamp_type=append_time)
    await fill(kafka.bootstrap, unique_topic, PARTITIONS)
    async with mirror(kafka.bootstrap, source, unique_topic) as made:
        await made.drain()
        await made.check(PARTITIONS)


async def test_a_compacted_topic_keeps_its_records(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    """The source has batches with gaps, and tombstones."""
    rows = await compacted(source, unique_topic)
    assert any(each[3] is None for part in rows for each in part)
    async with mirror(source, nodes.bootstrap, unique_topic) as made:
        copier = await made.drain()
        assert copier.untouched_batches < copier.batches
        await made.check(PARTITIONS)
        await rewrite(source, unique_topic, 0)
        await made.drain()
        await made.check(PARTITIONS)
    code, _, told = await asyncio.to_thread(checked, source, nodes.bootstrap, unique_topic)
    assert code == 0, told


async def test_a_topic_compacted_by_kafka_keeps_its_records(
    source: str, kafka: KafkaCluster, unique_topic: str
) -> None:
    """The mirror runs from Kafka to Odradek. Kafka's cleaner keeps empty batches with the last
    sequences of producers."""
    every_node = ConfigResource.broker(None)
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        await admin.alter_configs({every_node: {"log.cleaner.backoff.ms": "200"}})
    await compacted(kafka.bootstrap, unique_topic)
    async with mirror(kafka.bootstrap, source, unique_topic) as made:
        await made.drain()
        await made.check(PARTITIONS)
        await rewrite(kafka.bootstrap, unique_topic, 0)
        await made.drain()
        await made.check(PARTITIONS)
    code, _, told = await asyncio.to_thread(checked, kafka.bootstrap, source, unique_topic)
    assert code == 0, told


async def test_a_record_that_is_too_large_ends_its_partition_only(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await make_topic(nodes.bootstrap, unique_topic, PARTITIONS, max_message_bytes="3000")
    for partition in range(PARTITIONS):
        await write_one(source, unique_topic, partition)
    large = await write_one(source, unique_topic, 0, os.urandom(5000))
    async with mirror(source, nodes.bootstrap, unique_topic) as made:
        await made.drain()
        ((tp, why),) = made.counts.failures.items()
        assert tp == TopicPartition(unique_topic, 0)
        assert f"at offset {large} of" in why
        copied = await read_all(nodes.bootstrap, unique_topic, PARTITIONS)
        assert [len(part) for part in copied[1:]] == [1, 1]
        limit = {"max.message.bytes": "100000"}
        await made.target.alter_configs({ConfigResource.topic(unique_topic): limit})
        await made.drain()
        assert not made.counts.failures
        await made.check(PARTITIONS)


async def test_mirror_check_names_the_differences(
    source: str, nodes: KafkaCluster, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, PARTITIONS)
    await fill(source, unique_topic, PARTITIONS)
    sides = source, nodes.bootstrap, unique_topic
    code, _, told = await asyncio.to_thread(checked, *sides)
    assert code == 2 and "nothing was copied there" in told
    async with mirror(*sides) as made:
        await made.drain()
    code, rows, told = await asyncio.to_thread(checked, *sides)
    assert code == 0, told
    written = [len(part) for part in await read_all(source, unique_topic, PARTITIONS)]
    assert [each["target_records"] for each in rows] == written
    foreign = await write_one(nodes.bootstrap, unique_topic, 0)
    late = await write_one(source, unique_topic, 1)
    code, rows, told = await asyncio.to_thread(checked, *sides)
    assert code == 1, told
    found = [each["differences"] for each in rows]
    assert [[each["kind"] for each in part] for part in found] == [["extra"], ["missing"], []]
    assert (found[0][0]["target_offset"], found[1][0]["source_offset"]) == (foreign, late)


async def test_a_mirror_copies_between_clusters_with_sasl_and_tls(
    tmp_path_factory: pytest.TempPathFactory, unique_topic: str
) -> None:
    folder = tmp_path_factory.mktemp("sasl")
    ca = Authority()
    ca.write(folder / "ca.pem")
    with (
        kafka_of_sasl(folder / "kafka", ca) as (plaintext, secure),
        SubprocessBroker(users={"carol": "carol-secret"}, tls=True) as ours,
    ):
        mine = ours.client_settings("carol")
        del mine["bootstrap_servers"]
        await make_topic(ours.bootstrap, unique_topic, PARTITIONS, mine)
        await fill(ours.bootstrap, unique_topic, PARTITIONS, **mine)
        named = {key.replace("_", "."): str(value) for key, value in mine.items()}
        words = ["--from", ours.bootstrap, "--to", secure, "--topics", unique_topic]
        words += options("--from-config", named)
        words += options("--to-config", login_of_alice(folder / "ca.pem"))
        words += ["--mode", "exactly-once"]
        for _ in range(2):
            done = await asyncio.to_thread(ended, *words)
            assert done.returncode == 0, done.stderr
            done = await asyncio.to_thread(ended, "check", *words)
            assert done.returncode == 0, done.stderr
            await fill(ours.bootstrap, unique_topic, PARTITIONS, 50, 1000, **mine)
        copied = await asyncio.to_thread(read_with_confluent, plaintext, unique_topic)
        assert all(copied)
        done = await asyncio.to_thread(ended, "check", *words)
        assert done.returncode == 1, done.stderr
