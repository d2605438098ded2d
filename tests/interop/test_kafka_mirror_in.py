"""`odradek mirror` from Apache Kafka into our broker with the same offsets, started as a user would
start it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)

from kafka_cluster import KafkaCluster
from kafka_sasl import kafka_of_sasl, login_of_alice
from mirror_interop import DEADLINE_S, command, ended, messages, options, row
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, ConfigResource
from odradek_client.admin.configs import ConfigSource
from waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRIMMED_AT = 7
_COORDINATOR_STARTS = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


@pytest.fixture
def ours() -> Iterator[SubprocessBroker]:
    with SubprocessBroker() as running:
        yield running


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()


def produce(bootstrap: str, topic: str, codec: str = "none", partitions: int = PARTITIONS) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(20 * partitions):
        producer.produce(
            topic,
            b"value %d of %s " % (number, codec.encode()) * 20,
            key=b"k%d" % number,
            partition=number % partitions,
            headers=[("h", b"x")],
        )
    assert producer.flush(DEADLINE_S) == 0


def transactions(bootstrap: str, topic: str) -> None:
    """Write a committed and an aborted transaction, each to all partitions."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"}
    )
    producer.init_transactions(DEADLINE_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.produce(topic, end.__name__.encode(), partition=number)
        producer.flush(DEADLINE_S)
        end(DEADLINE_S)


def at(topic: str, offset: int, partition: int = 0) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(topic, partition, offset)


def group(bootstrap: str, name: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": name})


def commit(bootstrap: str, name: str, places: list[confluent_kafka.TopicPartition]) -> None:
    consumer = group(bootstrap, name)
    end_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
            break
        except confluent_kafka.KafkaException as error:
            # The first use of a group in a cluster creates the offsets topic; librdkafka gives up
            # before that is done.
            if error.args[0].code() not in _COORDINATOR_STARTS or time.monotonic() > end_s:
                raise
            time.sleep(0.2)
    consumer.close()


def committed(bootstrap: str, name: str, topic: str) -> list[int]:
    consumer = group(bootstrap, name)
    wanted = [at(topic, 0, number) for number in range(PARTITIONS)]
    found = [each.offset for each in consumer.committed(wanted, timeout=DEADLINE_S)]
    consumer.close()
    return found


def bounds(bootstrap: str, topic: str, count: int = PARTITIONS) -> list[tuple[int, int]]:
    """The log start and the high watermark of each partition."""
    consumer = group(bootstrap, "nobody")
    found: list[Any] = [
        consumer.get_watermark_offsets(at(topic, 0, number), timeout=DEADLINE_S)
        for number in range(count)
    ]
    consumer.close()
    return found


def read(bootstrap: str, topic: str, isolation: str) -> list[list[tuple[object, ...]]]:
    """Read the records of each partition, with the types of their timestamps."""
    found = messages(bootstrap, topic, PARTITIONS, isolation)
    return [[(*row(each), each.timestamp()[0]) for each in part] for part in found]


def test_kafkas_records_are_mirrored_at_the_same_offsets_until_promotion(
    kafka: KafkaCluster, ours: SubprocessBroker, unique_topic: str
) -> None:
    theirs, topic = kafka.bootstrap, unique_topic
    create(theirs, topic)
    for codec in CODECS:
        produce(theirs, topic, codec)
    transactions(theirs, topic)
    admin = AdminClient({"bootstrap.servers": theirs})
    for trimmed in admin.delete_records([at(topic, TRIMMED_AT)]).values():
        trimmed.result()
    ends = bounds(theirs, topic)
    commit(theirs, f"{topic}-behind", [at(topic, 11), at(topic, 3, 2)])
    commit(theirs, f"{topic}-done", [at(topic, end, n) for n, (_, end) in enumerate(ends)])
    both = ("--from", theirs, "--to", ours.bootstrap, "--topics", topic)
    done = ended(*both, "--groups", f"{topic}.*")
    assert done.returncode == 0, done.stderr
    assert ends[0][0] == TRIMMED_AT
    assert bounds(ours.bootstrap, topic) == ends
    for isolation in ("read_committed", "read_uncommitted"):
        assert read(ours.bootstrap, topic, isolation) == read(theirs, topic, isolation)
    for name in (f"{topic}-behind", f"{topic}-done"):
        found = committed(ours.bootstrap, name, topic)
        assert found == committed(theirs, name, topic), done.stderr
    compared = ended("check", *both)
    assert compared.returncode == 0, compared.stderr
    promoted = ended("promote", "--to", ours.bootstrap, "--topics", topic)
    assert promoted.returncode == 0, promoted.stderr
    transactions(ours.bootstrap, topic)
    # A commit is acknowledged before the transaction's markers are written.
    after = (TRIMMED_AT, ends[0][1] + 4)
    wait_until(lambda: bounds(ours.bootstrap, topic)[0] == after, f"the log has {after}")


async def own_settings(bootstrap: str, group: str) -> dict[str, str | None]:
    """The dynamic settings of a group."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        resource = ConfigResource.group(group)
        found = (await admin.describe_configs(resource))[resource]
    return {each.name: each.value for each in found.values() if each.source is ConfigSource.GROUP}


async def test_i43_group_settings_are_mirrored_to_kafka_and_from_kafka(
    kafka: KafkaCluster, ours: SubprocessBroker, unique_topic: str
) -> None:
    known = {"consumer.heartbeat.interval.ms": "6000", "consumer.session.timeout.ms": "60000"}
    pause = {"share.redelivery.delay.ms": "500"}

    async def copied(source: str, target: str, settings: dict[str, str], group: str) -> str:
        await asyncio.to_thread(create, source, group)
        async with Admin(bootstrap_servers=source) as admin:
            await admin.alter_configs({ConfigResource.group(group): settings})
        words = ("--from", source, "--to", target, "--topics", group, "--groups", group)
        done = await asyncio.to_thread(ended, *words, "--name", group)
        assert done.returncode == 0, done.stderr
        assert await own_settings(target, group) == known
        return done.stderr

    theirs = kafka.bootstrap
    await copied(theirs, ours.bootstrap, known, f"{unique_topic}-in")
    said = await copied(ours.bootstrap, theirs, known | pause, f"{unique_topic}-out")
    assert "the setting share.redelivery.delay.ms is not copied" in said


def wait_for(is_so: Callable[[], bool], follower: subprocess.Popen[bytes]) -> None:
    """Wait until the condition is true; fails if the mirror ends."""
    end_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert follower.poll() is None, f"the mirror ended with {follower.returncode}"
        assert time.monotonic() < end_s, "it was not copied in time"
        time.sleep(0.2)


def has_copied(source: str, target: str, topic: str, count: int = PARTITIONS) -> bool:
    """True if the partitions have the same log start and high watermark in both clusters."""
    try:
        return bounds(target, topic, count) == bounds(source, topic, count)
    except confluent_kafka.KafkaException:
        return False


def test_a_following_mirror_survives_kills_and_copies_new_topics(
    kafka: KafkaCluster,
    ours: SubprocessBroker,
    unique_topic: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    theirs, topic, later = kafka.bootstrap, unique_topic, f"{unique_topic}-later"
    log = tmp_path_factory.mktemp("mirror") / "mirror.log"
    both = ("--from", theirs, "--to", ours.bootstrap, "--topics", f"{topic}.*")
    create(theirs, topic)

    def follow() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            words = command(*both, "--groups", f"{topic}.*", "--follow", "--json")
            return subprocess.Popen(words, stdout=output, stderr=output)

    def arrives(name: str = topic, count: int = PARTITIONS) -> None:
        wait_for(lambda: has_copied(theirs, ours.bootstrap, name, count), follower)

    follower = follow()
    try:
        for _ in range(2):
            produce(theirs, topic)
            arrives()
            produce(theirs, topic, "zstd")
            follower.kill()
            follower.wait()
            follower = follow()
        transactions(theirs, topic)
        arrives()
        ours.kill()
        produce(theirs, topic)
        ours.start()
        arrives()
        kafka.nodes[0].suspend()
        time.sleep(3.0)
        kafka.nodes[0].resume()
        create(theirs, later)
        produce(theirs, later)
        admin = AdminClient({"bootstrap.servers": theirs})
        for more in admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)]).values():
            more.result()
        produce(theirs, topic, partitions=PARTITIONS + 1)
        arrives(topic, PARTITIONS + 1)
        arrives(later)
        follower.terminate()
        assert follower.wait(DEADLINE_S) == 143, log.read_text()
        assert "Traceback" not in log.read_text()
    except BaseException:
        print(log.read_text()[-6000:])
        raise
    finally:
        kafka.nodes[0].resume()
        follower.kill()
        follower.wait()
    done = ended(*both, "--groups", f"{topic}.*", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["records"] == 0
    compared = ended("check", *both)
    assert compared.returncode == 0, compared.stderr


def test_a_mirror_copies_from_sasl_to_sasl_with_tls(
    tmp_path_factory: pytest.TempPathFactory, unique_topic: str
) -> None:
    topic = unique_topic
    with (
        kafka_of_sasl(tmp_path_factory.mktemp("sasl")) as (plaintext, sasl),
        SubprocessBroker(users={"carol": "carol-secret"}, tls=True) as secured,
    ):
        create(plaintext, topic)
        produce(plaintext, topic)
        transactions(plaintext, topic)
        settings = secured.client_settings("carol")
        del settings["bootstrap_servers"]
        named = {key.replace("_", "."): str(value) for key, value in settings.items()}
        words = options("--from-config", login_of_alice()) + options("--to-config", named)
        both = ("--from", sasl, "--to", secured.bootstrap, "--topics", topic, *words)
        done = ended(*both)
        assert done.returncode == 0, done.stderr
        compared = ended("check", *both, "--json")
        assert compared.returncode == 0, compared.stderr
        rows = [json.loads(line) for line in compared.stdout.splitlines()]
        # Each partition has 20 records, and one from each of the two transactions.
        assert [row["source_records"] for row in rows] == [22] * PARTITIONS
