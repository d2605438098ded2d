"""The exactly-once mirror, when the target refuses the records of one topic: other topics are
copied."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

import budget
from mirrored import DEADLINE_S, Mirror, Planned, check_rows, fill, make_topic, read_all
from odradek import Admin, NewTopic, Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import ConfigResource
from odradek_client.admin.acls import AclBinding, AclBindingFilter
from odradek_client.structs import TopicPartition
from odradek_mirror.exactly_once import ExactlyOnceCopier
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType

REFUSED, FREE = TopicPartition("refused", 0), TopicPartition("free", 0)
PLANNED = [Planned(name, 2) for name in (REFUSED.topic, FREE.topic)]


async def copy_until(copier: ExactlyOnceCopier, is_enough: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_enough():
            await copier.step(100)


def is_copied(made: Mirror, topic: str) -> bool:
    """True if all partitions are copied to their ends."""
    counts = made.counts
    tps = [TopicPartition(topic, number) for number in range(2)]
    return all(tp in counts.ends and counts.positions[tp] >= counts.ends[tp] for tp in tps)


@pytest.mark.full
async def test_i37_a_record_that_is_too_large_ends_its_partition_only() -> None:
    with SubprocessBroker() as source, SubprocessBroker() as target:
        for name in (REFUSED.topic, FREE.topic):
            await make_topic(source.bootstrap, name)
        await fill(source.bootstrap, FREE.topic, count=50)
        await make_topic(target.bootstrap, REFUSED.topic, max_message_bytes="3000")
        await make_topic(target.bootstrap, FREE.topic)
        async with Producer(bootstrap_servers=source.bootstrap) as producer:
            for partition in range(2):
                await producer.send_and_wait(REFUSED.topic, b"small", partition=partition)
            large = await producer.send_and_wait(REFUSED.topic, os.urandom(5000), partition=0)
            await producer.send_and_wait(REFUSED.topic, b"behind it", partition=0)
        async with (
            Admin(bootstrap_servers=source.bootstrap) as there,
            Admin(bootstrap_servers=target.bootstrap) as here,
        ):
            made = Mirror(there, here, "mirror")
            copier = made.make()
            await copier.start()
            await copier.add(PLANNED)
            await copy_until(copier, lambda: is_copied(made, "free") and bool(made.counts.failures))
            assert list(made.counts.failures) == [REFUSED]
            assert f"at offset {large.offset} of refused-0 is larger" in str(made.told)
            await fill(source.bootstrap, "free", count=50, first=100)
            await copy_until(copier, lambda: is_copied(made, "free"))
            await copier.add(PLANNED)
            await copy_until(copier, lambda: REFUSED in made.counts.failures)
            limit = {"max.message.bytes": "100000"}
            await here.alter_configs({ConfigResource.topic(REFUSED.topic): limit})
            await copier.add(PLANNED)
            await copy_until(copier, lambda: is_copied(made, "refused"))
            await copier.close()
            assert len(made.told) == 1
        for name in (REFUSED.topic, FREE.topic):
            check_rows(
                await read_all(source.bootstrap, name), await read_all(target.bootstrap, name)
            )


@pytest.mark.parametrize(
    "emulated", budget.of_which(["", "kafka-3.9"], ["kafka-3.9"]), ids=["version 2", "version 1"]
)
async def test_i37_a_topic_that_the_mirror_may_not_write_stops_no_other(emulated: str) -> None:
    """The test runs with both versions of transactions: the emulated Kafka 3.9 has only version
    1."""
    users = {"root": "root-secret", "mirror": "mirror-secret"}
    settings = {"odradek.emulate": emulated} if emulated else {}
    with (
        SubprocessBroker() as source,
        SubprocessBroker(users=users, superusers="root", settings=settings) as target,
    ):
        root, mirror = target.client_settings("root"), target.client_settings("mirror")
        async with (
            Admin(bootstrap_servers=source.bootstrap) as there,
            Admin(**root) as owner,
            Admin(**mirror) as here,
        ):
            for name in (REFUSED.topic, FREE.topic):
                await there.create_topics(NewTopic(name, 2))
                await owner.create_topics(NewTopic(name, 2))
                await fill(source.bootstrap, name, count=50)
            may = [
                AclBinding("User:mirror", AclOperation.ALL, kind, name)
                for kind, name in (
                    (AclResourceType.TOPIC, "*"),
                    (AclResourceType.TRANSACTIONAL_ID, "*"),
                    (AclResourceType.CLUSTER, "kafka-cluster"),
                )
            ]
            denied = replace(
                AclBinding.topic(REFUSED.topic, "User:mirror", AclOperation.WRITE),
                permission=AclPermission.DENY,
            )
            await owner.create_acls([*may, denied])
            made = Mirror(there, here, "mirror")
            copier = made.make()
            await copier.start()
            await copier.add(PLANNED)
            await copy_until(copier, lambda: is_copied(made, "free") and bool(made.counts.failures))
            assert sorted(made.counts.failures) == [REFUSED, TopicPartition("refused", 1)]
            assert all("lacks a right" in why for why in made.counts.failures.values()), made.told
            await owner.delete_acls(
                AclBindingFilter(AclResourceType.TOPIC, REFUSED.topic, PatternType.LITERAL)
            )
            await copier.add(PLANNED)
            await copy_until(copier, lambda: is_copied(made, "refused"))
            await copier.close()
