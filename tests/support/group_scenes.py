"""Situations of a consumer group, each built by real clients in virtual time, with the sentence
about the group."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek_client.admin import Admin, NewTopic
from odradek_client.admin.acls import AclBinding
from odradek_client.admin.history import Subject
from odradek_client.admin.quotas import QuotaEntity
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType
from odradek_testkit.simulation.world import World

GROUP, TOPIC = "billing", "orders"
DURATION = re.compile(r"\d+(\.\d)? (ms|s|min|h)\b")


class Scene:
    """A broker with the topic "orders", and clients of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bootstrap = world.broker.bootstrap
        self.admin = Admin(bootstrap_servers=self.bootstrap, client_id="admin")

    @property
    def node(self) -> Any:
        return self.world.broker.server.node

    async def topic(self, partitions: int = 2, name: str = TOPIC, **configs: str) -> None:
        await self.admin.create_topics(NewTopic(name, partitions, configs=configs))

    async def produce(self, count: int, partition: int = 0, topic: str = TOPIC) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(count):
                await producer.send(topic, b"%d" % number, partition=partition)

    async def commit(self, offset: int, partition: int = 0, topic: str = TOPIC) -> None:
        """Commit an offset without being a member."""
        await self.admin.alter_group_offsets(GROUP, {(topic, partition): offset})

    def consume(
        self, name: str = "reader", *, hangs_after_s: float = 1e9, topic: str = TOPIC,
        pause_s: float = 0.0, **settings: Any,
    ) -> None:  # fmt: skip
        """Start a member, which polls for so long and then hangs."""
        own: dict[str, Any] = {"auto_offset_reset": "earliest", **settings}
        world = self.world

        async def main() -> None:
            consumer = Consumer(
                bootstrap_servers=self.bootstrap, group_id=GROUP, client_id=name, **own
            )
            await consumer.start()
            consumer.subscribe([topic])
            end_ms = world.now_ms + hangs_after_s * 1000
            while world.now_ms < end_ms:
                try:
                    await consumer.getmany(timeout_ms=500)
                except OdradekError as error:
                    world.note(name, repr(error))
                    await world.sleep(500)
                await world.sleep(pause_s * 1000)
            await world.sleep(10**9)

        world.start_client(name, main)

    async def open_transaction(self, *, two_phase: bool = False, name: str = "payer") -> None:
        """Let a client send records in a transaction that it does not end."""
        own: dict[str, Any] = {"transaction_timeout_ms": 600_000}
        if two_phase:
            own = {"transaction_two_phase_commit_enable": True}

        async def main() -> None:
            producer = Producer(
                bootstrap_servers=self.bootstrap,
                transactional_id="payments",
                client_id=name,
                **own,
            )
            await producer.start()
            await producer.init_transactions()
            await producer.begin_transaction()
            for number in range(5):
                await producer.send(TOPIC, b"%d" % number, partition=0)
            await producer.flush()
            await self.world.sleep(10**9)

        self.world.start_client(name, main)
        await self.world.sleep(2_000)

    async def forbid(self, kind: AclResourceType, name: str) -> None:
        """Take the right READ away from everybody."""
        user = "User:ANONYMOUS"
        denial = AclBinding(user, AclOperation.READ, kind, name, permission=AclPermission.DENY)
        await self.admin.create_acls([AclBinding(user, AclOperation.ALL, kind, name), denial])

    async def wait(self, seconds: float) -> None:
        await self.world.sleep(seconds * 1000)

    async def sentence(self) -> str:
        (found,) = await self.admin.describe_history(Subject.GROUP, GROUP, limit=0)
        (state,) = (each for each in found.states if each.name == "now_verdict")
        return DURATION.sub("T", state.text)


ACLS: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


async def reads_all(scene: Scene) -> None:
    await scene.topic()
    scene.consume()
    await scene.produce(5)
    await scene.produce(5, 1)
    await scene.wait(100)


async def waits_for_a_short_time(scene: Scene) -> None:
    await scene.topic()
    await scene.produce(20)
    await scene.commit(12)
    await scene.commit(0, 1)
    await scene.wait(35)


async def has_no_members(scene: Scene) -> None:
    await waits_for_a_short_time(scene)
    await scene.wait(60)


async def read_and_left(scene: Scene) -> None:
    """The last offset of the partition is that of a marker."""
    await scene.topic()
    async with Producer(bootstrap_servers=scene.bootstrap, transactional_id="x") as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(TOPIC, b"1", partition=0)
    await scene.commit(1)
    await scene.wait(100)


async def lost_what_it_had_not_read(scene: Scene) -> None:
    await scene.topic()
    await scene.produce(20)
    await scene.commit(3)
    await scene.admin.delete_records({(TOPIC, 0): 20})
    await scene.wait(100)


async def stands_in_a_hole(scene: Scene) -> None:
    """Only a marker is between the position and an open transaction."""
    await scene.topic(1)
    async with Producer(bootstrap_servers=scene.bootstrap, transactional_id="x") as producer:
        await producer.init_transactions()
        for _ in range(3):
            async with producer.transaction():
                await producer.send(TOPIC, b"1", partition=0)
    await scene.commit(5)
    scene.consume(isolation_level="read_committed", enable_auto_commit=False)
    await scene.open_transaction()
    await scene.wait(100)


async def falls_behind(scene: Scene) -> None:
    await scene.topic(1)
    await scene.produce(10)
    for number in range(20):
        await scene.produce(50)
        await scene.commit(number)
        await scene.wait(10)


async def commits_the_same(scene: Scene) -> None:
    await scene.topic()
    await scene.produce(20)
    for _ in range(15):
        await scene.commit(5)
        await scene.wait(10)


async def waits_for_a_transaction(scene: Scene, **how: Any) -> None:
    await scene.topic()
    scene.consume(isolation_level="read_committed", **how)
    await scene.produce(5)
    await scene.produce(5, 1)
    await scene.open_transaction()
    await scene.wait(100)


async def waits_for_a_client_with_a_long_name(scene: Scene) -> None:
    """The history has only a part of the name."""
    await scene.topic()
    scene.consume(isolation_level="read_committed")
    await scene.produce(5)
    await scene.produce(5, 1)
    await scene.open_transaction(name="p" * 400)
    await scene.wait(100)


async def waits_for_a_dead_client(scene: Scene) -> None:
    await waits_for_a_transaction(scene, group_protocol="consumer")
    next(process for name, process in scene.world.clients.items() if name == "payer").kill()
    scene.world.network.cut_all()
    await scene.wait(20)


async def waits_for_two_phases(scene: Scene) -> None:
    await scene.topic()
    scene.consume(isolation_level="read_committed")
    await scene.produce(5)
    await scene.open_transaction(two_phase=True)
    await scene.wait(100)


async def waits_for_a_moment(scene: Scene) -> None:
    await scene.topic()
    scene.consume(isolation_level="read_committed")
    await scene.produce(5)
    await scene.open_transaction()
    await scene.wait(30)


async def reads_uncommitted(scene: Scene) -> None:
    await scene.topic(1)
    scene.consume()
    await scene.produce(5)
    await scene.open_transaction()
    await scene.wait(100)


async def hangs(scene: Scene, **how: Any) -> None:
    await scene.topic()
    scene.consume(hangs_after_s=20, **how)
    await scene.produce(5)
    await scene.wait(25)
    await scene.produce(9)
    await scene.wait(95)


async def hangs_in_the_consumer_protocol(scene: Scene) -> None:
    await hangs(scene, group_protocol="consumer", group_instance_id="one")


async def never_commits(scene: Scene) -> None:
    await scene.topic()
    await scene.produce(5)
    await scene.commit(2)
    scene.consume(enable_auto_commit=False)
    await scene.wait(100)


async def may_not_join(scene: Scene) -> None:
    await scene.topic()
    await scene.produce(5)
    await scene.commit(2)
    await scene.forbid(AclResourceType.GROUP, GROUP)
    scene.consume()
    await scene.wait(100)


async def may_not_read(scene: Scene) -> None:
    await scene.topic()
    scene.consume()
    await scene.produce(5)
    await scene.wait(20)
    await scene.forbid(AclResourceType.TOPIC, TOPIC)
    await scene.produce(5)
    await scene.wait(100)


async def is_throttled(scene: Scene) -> None:
    await scene.topic()
    quotas = {QuotaEntity(client_id="reader"): {"consumer_byte_rate": 100.0}}
    await scene.admin.alter_client_quotas(quotas)
    scene.consume()
    await scene.produce(500)
    await scene.wait(20)
    await scene.produce(5000)
    await scene.wait(100)


async def is_offline(scene: Scene) -> None:
    await scene.topic()
    await scene.produce(5)
    await scene.commit(2)
    scene.node.partition(TOPIC, 0).log.go_offline("a disk error")
    scene.consume()
    await scene.wait(100)


async def may_not_jump(scene: Scene) -> None:
    await scene.topic()
    await scene.produce(20)
    await scene.commit(3)
    await scene.admin.delete_records({(TOPIC, 0): 10})
    scene.consume(auto_offset_reset="none")
    await scene.wait(100)


async def stands_after_the_end(scene: Scene) -> None:
    await scene.topic()
    await scene.produce(20)
    await scene.commit(500)
    await scene.wait(100)


async def reads_another_topic(scene: Scene) -> None:
    await scene.topic()
    await scene.topic(1, "other")
    await scene.produce(20)
    await scene.commit(3)
    scene.consume(topic="other")
    await scene.wait(100)


async def rebalances(scene: Scene) -> None:
    await hangs(scene)
    scene.consume("second")
    await scene.wait(90)


async def was_restarted(scene: Scene) -> None:
    await hangs(scene)
    await scene.world.restart_broker()
    await scene.wait(90)


class Situation(NamedTuple):
    """A situation, the kind of its cause (empty without one), and the sentence about the group,
    with its durations as T."""

    build: Callable[[Scene], Awaitable[None]]
    cause: str
    sentence: str
    settings: Mapping[str, object] = MappingProxyType({})


SITUATIONS = [
    Situation(
        reads_all,
        "",
        "OK: it keeps up in all 2 partitions",
    ),
    Situation(
        waits_for_a_short_time,
        "",
        "OK: 8 records wait in 1 of 2 partitions, and its last commit there was T ago; in orders-0",
    ),
    Situation(
        has_no_members,
        "no_members",
        "STOPPED: 8 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: it has no members; in orders-0",
    ),
    Situation(
        read_and_left,
        "",
        "OK: it keeps up",
    ),
    Situation(
        lost_what_it_had_not_read,
        "",
        "OK: it keeps up",
    ),
    Situation(
        stands_in_a_hole,
        "open_transaction",
        "STALLED: 5 records wait, and its last commit there was T ago: they are behind an"
        " open transaction of transactional id payments, which has been open for T and"
        " ends by itself after T; its client payer at client is connected; in orders-0",
    ),
    Situation(
        falls_behind,
        "slow",
        "WARNING: it falls behind: 550 records waited T ago, 991 wait now; in orders-0",
    ),
    Situation(
        commits_the_same,
        "slow",
        "STALLED: 15 records wait, and all its commits there for T are of offset 5; in orders-0",
    ),
    Situation(
        waits_for_a_transaction,
        "open_transaction",
        "STALLED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: they are behind an open transaction of transactional id payments, which has"
        " been open for T and ends by itself after T; its client payer at client is"
        " connected; in orders-0",
    ),
    Situation(
        waits_for_a_client_with_a_long_name,
        "open_transaction",
        "STALLED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: they are behind an open transaction of transactional id payments, which has"
        " been open for T and ends by itself after T; in orders-0",
    ),
    Situation(
        waits_for_a_dead_client,
        "open_transaction",
        "STALLED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: they are behind an open transaction of transactional id payments, which has"
        " been open for T and ends by itself after T; its client payer at client is gone;"
        " in orders-0",
    ),
    Situation(
        waits_for_two_phases,
        "open_transaction",
        "STALLED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: they are behind an open transaction of transactional id payments, which has"
        " been open for T; it waits for its client's decision as long as it takes"
        " (two-phase commit); its client payer at client is connected; in orders-0",
        {"transaction.two.phase.commit.enable": True},
    ),
    Situation(
        waits_for_a_moment,
        "",
        "OK: 5 records wait in 1 of 2 partitions, and its last commit there was T ago; in orders-0",
    ),
    Situation(
        reads_uncommitted,
        "",
        "OK: it keeps up",
    ),
    Situation(
        hangs,
        "no_poll",
        "STOPPED: 9 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: client reader at client does not poll, its last fetch was T ago, and it was"
        " last heard of T ago; in orders-0",
    ),
    Situation(
        hangs_in_the_consumer_protocol,
        "no_poll",
        "STOPPED: 9 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: client reader at client does not poll, its last fetch was T ago, and it was"
        " last heard of T ago; in orders-0",
    ),
    Situation(
        never_commits,
        "no_commit",
        "STOPPED: 3 records wait, and its last commit there was T ago: client reader at"
        " client fetches, the last time T ago, but does not commit; in orders-0",
    ),
    Situation(
        may_not_join,
        "missing_right",
        "STOPPED: 3 records wait, and its last commit there was T ago: members may not"
        " join, the right READ on the group is missing for User:ANONYMOUS, and JoinGroup"
        " was refused T ago; in orders-0",
        ACLS,
    ),
    Situation(
        may_not_read,
        "missing_right",
        "STOPPED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: fetches of client reader at client return TOPIC_AUTHORIZATION_FAILED, the"
        " last time T ago; in orders-0",
        ACLS,
    ),
    Situation(
        is_throttled,
        "quota",
        "STALLED: 5500 records wait in 1 of 2 partitions, and all its commits there for T"
        " are of offset 0: client reader at client is throttled by its quota consumer_byte_rate, at"
        " present; in orders-0",
    ),
    Situation(
        is_offline,
        "offline",
        "STALLED: 3 records wait in 1 of 2 partitions, and all its commits there for T are of offset"
        " 2: the partition is offline because of a disk error; in orders-0",
    ),
    Situation(
        may_not_jump,
        "out_of_range",
        "STALLED: 10 records wait, and all its commits there for T are of offset 3:"
        " fetches of client reader at client return OFFSET_OUT_OF_RANGE, the last time T"
        " ago; in orders-0",
    ),
    Situation(
        stands_after_the_end,
        "out_of_range",
        "STOPPED: it reads nothing, and its last commit there was T ago: its position 500"
        " is after the end of the partition, 20; in orders-0",
    ),
    Situation(
        reads_another_topic,
        "unassigned",
        "STOPPED: 17 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: its member is not assigned this partition; in orders-0",
    ),
    Situation(
        rebalances,
        "rebalance",
        "STOPPED: 9 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: it rebalances, for T, and waits for client reader at client; in orders-0",
    ),
    Situation(
        was_restarted,
        "no_poll",
        "STOPPED: 9 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: client reader at client does not poll, it has fetched nothing since it"
        " connected, and it was last heard of T ago; in orders-0",
    ),
]
