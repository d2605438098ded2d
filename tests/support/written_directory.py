"""A broker that writes every kind of file, as test data for readers of a data directory."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.admin import ConfigResource, NewTopic
from odradek_client.admin.history import Subject
from odradek_protocol.common_structs import ShareStateBatch
from odradek_protocol.message import Message
from odradek_protocol.schemas.delete_share_group_state import (
    DeletedPartition,
    DeletedTopic,
    DeleteShareGroupStateRequest,
)
from odradek_protocol.schemas.initialize_share_group_state import (
    InitializedPartition,
    InitializedTopic,
    InitializeShareGroupStateRequest,
)
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from odradek_protocol.schemas.write_share_group_state import (
    WriteShareGroupStateRequest,
    WrittenPartition,
    WrittenTopic,
)
from raw_client import RawClient
from waiting import wait_until

START_MS = 1_700_000_000_000
CODECS: tuple[Any, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
#: Few partitions of the internal topics, small segments, and an index entry for every batch or two.
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.snapshot.update.records.per.snapshot": 2,
    "log.index.interval.bytes": 100,
    "log.retention.ms": -1,
    "group.initial.rebalance.delay.ms": 0,
}
#: The topic with all codecs, nulls and headers, in two partitions.
FRUIT = "fruit"
#: The topic with transactions, over several segments.
MONEY = "money"
#: The topic whose first records were deleted, by DeleteRecords and by retention.
TRIMMED = "trimmed"
#: The topic whose timestamps the broker sets (LogAppendTime).
STAMPED = "stamped"
GROUPS = ("classic", "modern")
SHARE_GROUP = "sharing"


class WrittenData(NamedTuple):
    """Two copies of a data directory: `killed` after a SIGKILL; `stopped` after another start and a
    clean stop."""

    killed: Path
    stopped: Path


def write_data(folder: Path) -> WrittenData:
    """Write both directories of `WrittenData` below a folder."""
    written = WrittenData(folder / "killed", folder / "stopped")
    with data_directory_broker(written.stopped) as broker:
        write_everything(broker)
        broker.kill()
        shutil.copytree(written.stopped, written.killed)
        broker.start()
        _wait_for_lags(broker)
    return written


def _wait_for_lags(broker: SubprocessBroker) -> None:
    """Wait until the broker has sampled the lag of each group, which a clean stop then writes."""
    with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        wait_until(
            lambda: all(admin.describe_history(Subject.GROUP, each)[0].lag for each in GROUPS),
            "each group has a lag",
        )


def data_directory_broker(folder: Path, **settings: object) -> SubprocessBroker:
    """A broker with a data directory; it is not started yet."""
    return SubprocessBroker(data_dir=folder, settings={**SETTINGS, **settings})


def write_everything(broker: SubprocessBroker, records: int = 40) -> None:
    """Write every kind of file. Each topic gets about `records` records; the broker restarts in
    between."""
    _make_topics(broker)
    _produce(broker, records)
    _transactions(broker, records, "first")
    _consume(broker)
    asyncio.run(_store_share_states(broker))
    broker.restart()
    _transactions(broker, records, "second")
    _delete(broker, records)


def _make_topics(broker: SubprocessBroker) -> None:
    small = {"segment.bytes": "1500"}
    with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics(
            [
                NewTopic(FRUIT, 2, configs=small),
                NewTopic(MONEY, 1, configs=small),
                NewTopic(TRIMMED, 1, configs=small),
                NewTopic(STAMPED, 1, configs={"message.timestamp.type": "LogAppendTime"}),
                NewTopic("gone", 1),
            ]
        )
        admin.alter_configs({ConfigResource.topic(FRUIT): {"max.message.bytes": "100000"}})
        admin.alter_configs({ConfigResource.topic(MONEY): {"flush.ms": "9000"}})
        admin.alter_configs({ConfigResource.topic(MONEY): {"flush.ms": None}})
        admin.alter_configs({ConfigResource.broker(None): {"log.roll.ms": "900000000"}})
        admin.alter_configs(
            {ConfigResource.group(GROUPS[1]): {"consumer.session.timeout.ms": "50000"}}
        )
        admin.create_partitions({STAMPED: 2})
        admin.delete_topics("gone")


def _produce(broker: SubprocessBroker, records: int) -> None:
    for codec in CODECS:
        with sync.Producer(
            bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=20
        ) as producer:
            for number in range(records // len(CODECS)):
                for topic in (FRUIT, TRIMMED, STAMPED):
                    producer.send(
                        topic,
                        None if number % 7 == 6 else f"{codec} {number} ".encode() * 20,
                        None if number % 5 == 4 else b"key-%d" % number,
                        headers=[("h", b"\xff\x00"), ("n", None)] if number % 3 == 0 else (),
                        partition=number % 2 if topic == FRUIT else 0,
                        timestamp_ms=START_MS + number * 1000,
                    )
                if number % 3 == 2:
                    producer.flush()


def _transactions(broker: SubprocessBroker, records: int, name: str) -> None:
    """Alternate two producers, so that transactions overlap; every third one is aborted."""
    one, two = (
        sync.Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"{name}-{at}")
        for at in range(2)
    )
    with one, two:
        for producer in (one, two):
            producer.init_transactions()
        for number in range(records // 4):
            one.begin_transaction()
            two.begin_transaction()
            for producer in (one, two):
                producer.send_and_wait(MONEY, b"%d" % number, b"account", partition=0)
                producer.send_and_wait(FRUIT, b"paid", partition=number % 2)
            one.send_offsets_to_transaction({(MONEY, 0): number}, "spending")
            _end((one, two) if number % 2 else (two, one), commit=number % 3 != 0)


def _end(producers: Iterable[sync.Producer], *, commit: bool) -> None:
    for producer in producers:
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def _consume(broker: SubprocessBroker) -> None:
    """Read and commit in a group of each protocol, classic and consumer."""
    protocols: tuple[Any, ...] = ("classic", "consumer")
    for group, protocol in zip(GROUPS, protocols, strict=True):
        with sync.Consumer(
            FRUIT,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.getone()
            consumer.commit()


async def _store_share_states(broker: SubprocessBroker) -> None:
    """Store, change and delete states of share partitions, with the requests of share group
    coordinators and partition leaders."""
    host, _, port = broker.bootstrap.rpartition(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    names = [MetadataRequestTopic(name=name) for name in (FRUIT, "__share_group_state")]
    metadata = await client.call(
        MetadataRequest(topics=names, allow_auto_topic_creation=True), version=12
    )
    topic_id = metadata.topics[0].topic_id
    for request in _share_state_requests(topic_id):
        answer = await client.call(request)
        codes = [part.error_code for topic in answer.results for part in topic.partitions]
        assert set(codes) == {0}, answer
    client.close()


def _share_state_requests(topic_id: bytes) -> Iterator[Message]:
    parts = [InitializedPartition(partition=index, state_epoch=1) for index in range(2)]
    topic = InitializedTopic(topic_id=topic_id, partitions=parts)
    yield InitializeShareGroupStateRequest(group_id=SHARE_GROUP, topics=[topic])
    for offset in range(4):
        batch = ShareStateBatch(
            first_offset=offset, last_offset=offset + 1, delivery_state=2, delivery_count=1
        )
        part = WrittenPartition(
            partition=0,
            state_epoch=1,
            start_offset=offset,
            delivery_complete_count=1,
            state_batches=[batch],
        )
        yield WriteShareGroupStateRequest(
            group_id=SHARE_GROUP, topics=[WrittenTopic(topic_id=topic_id, partitions=[part])]
        )
    deleted = DeletedTopic(topic_id=topic_id, partitions=[DeletedPartition(partition=1)])
    yield DeleteShareGroupStateRequest(group_id=SHARE_GROUP, topics=[deleted])


def _delete(broker: SubprocessBroker, records: int) -> None:
    with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({(TRIMMED, 0): records // 3})


def prepare_a_transaction(broker: SubprocessBroker) -> None:
    """Leave a transaction open without a timeout. Needs `transaction.two.phase.commit.enable`."""
    with sync.Producer(
        bootstrap_servers=broker.bootstrap,
        transactional_id="prepared",
        transaction_two_phase_commit_enable=True,
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_and_wait(MONEY, b"waits", b"account", partition=0)
        producer.prepare_transaction()
