"""Members of one share group acquire records, acknowledge or keep them, die, join and leave.

At the same time, records are produced in and out of transactions, compacted and deleted; a topic is
deleted and created again; and the group's offsets are reset, or the group is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

from tests.sim.checkers.share_dead_letters import Named, check_dead_letters, read_dead_letters
from tests.sim.checkers.share_deliveries import Place, ShareDeliveries
from tests.sim.checkers.share_messages import ShareMessages
from tests.sim.checkers.share_readers import Fate, ShareReaders
from tests.sim.checkers.share_resets import ShareResets
from tests.sim.checkers.share_states import (
    StoredStates,
    check_noted,
    check_share_partitions,
    is_finished,
    stored_states,
)
from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS, OF_DEAD_LETTERS, OF_NEW_GROUPS
from tests.sim.workloads.clients import keep_running
from tests.sim.workloads.share_member import Plan, ShareMember

from odradek_broker.server.server import Server
from odradek_client.admin import LATEST, Admin, ConfigResource, NewTopic
from odradek_client.errors import InvalidGroup, OdradekError
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek_testkit.simulation.world import World

GROUP = "workers"
#: The topic that is never deleted, and the topic that is deleted and created again.
_JOBS, _TASKS = "jobs", "tasks"
_PARTITIONS = {_JOBS: 2, _TASKS: 1}
#: The topic for the group's dead letters.
_LETTERS, _LETTER_PARTITIONS = "dlq.workers", 2
_LOCK_MS = 1_000
_RECORDS_MAX = 30
#: The number of polls of a member that keeps polling after its session has expired.
_MANY_POLLS = 100
_TRANSACTIONS_MAX = 8
_KEYS = 4
_TRANSACTION_TIMEOUT_MS = 3_000
#: The time after the faults in which every record must be finished. The time is long because the
#: wall clock may have been set back: a transaction then stays open long after its client's end.
_SETTLE_MS = 240_000
_OBSERVE_EVERY_MS = 40
#: The number of attempts to reset the group while its members stop, and the pause between two
#: attempts.
_RESET_ATTEMPTS = 20
_RESET_EVERY_MS = 100
#: The time in which no heartbeat succeeds: longer than a member's session timeout.
_UNHEARD_MS = 1_600


class ShareGroupsWorkload:
    """The seed chooses the settings of the group and of its topics for the whole run."""

    name: ClassVar[str] = "share-groups"
    settings: ClassVar[dict[str, object]] = {
        "group.share.min.session.timeout.ms": 100,
        "group.share.session.timeout.ms": 1_000,
        "group.share.min.heartbeat.interval.ms": 10,
        "group.share.heartbeat.interval.ms": 200,
        "group.share.assignment.interval.ms": 100,
        "group.share.min.record.lock.duration.ms": _LOCK_MS,
        "group.share.record.lock.duration.ms": _LOCK_MS,
        "share.coordinator.state.topic.num.partitions": 2,
        "share.coordinator.state.topic.segment.bytes": 2_000,
        "share.coordinator.snapshot.update.records.per.snapshot": 4,
        "share.coordinator.state.topic.prune.interval.ms": 700,
        "share.coordinator.cold.partition.snapshot.interval.ms": 1_500,
        "auto.create.topics.enable": "false",
        "log.cleaner.backoff.ms": 86_400_000,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.segment.delete.delay.ms": 500,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS + (OF_NEW_GROUPS + OF_DEAD_LETTERS) * 2

    def __init__(self, world: World) -> None:
        self._world = world
        random = self._random = world.chance("workload")
        self._committed = random.random() < 0.6
        limit = random.choice((2, 3, 5))
        self._config = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed" if self._committed else "read_uncommitted",
            "share.delivery.count.limit": str(limit),
            "share.renew.acknowledge.enable": random.choice(("true", "true", "false")),
        }
        # These settings use separate random numbers, so that the seeds of known bugs keep all other
        # settings and still show the bugs.
        letters = world.chance("dead letters")
        self._has_letters = letters.random() < 0.6
        self._rejects = self._has_letters and letters.random() < 0.6
        if self._has_letters:
            self._config |= {
                "errors.deadletterqueue.topic.name": _LETTERS,
                "errors.deadletterqueue.copy.record.enable": letters.choice(("true", "false")),
            }
        pauses = world.chance("redelivery")
        delay_ms = pauses.choice((0, 0, 150, 400))
        longest_ms = pauses.choice((300, 700, 5_000))
        if delay_ms:
            self._config |= {
                "share.redelivery.delay.ms": str(delay_ms),
                "share.redelivery.delay.max.ms": str(longest_ms),
            }
        self._resetting = world.chance("resets")
        self._resets = self._resetting.random() < 0.4
        self._visiting = world.chance("visits")
        #: No member starts before this time, and running members stop.
        self._stopped_until_ms = 0
        self._members = random.randint(1, 3)
        self._compacts = random.random() < 0.4
        self._deletes = random.random() < 0.4
        self._churns = random.random() < 0.4
        # The broker's clock counts whole milliseconds: a lock or a pause may be up to 1 ms shorter.
        self._deliveries = ShareDeliveries(
            limit, _LOCK_MS - 1, lambda count: _pause_ms(delay_ms, longest_ms, count)
        )
        self._readers = ShareReaders(self._deliveries, committed=self._committed)
        self._stored = StoredStates()
        self._messages = ShareMessages(
            GROUP,
            self._deliveries,
            lambda: world.loop.time() * 1_000,
            lambda problem: world.violated("deliveries", problem),
        )
        self._begun_anew = ShareResets(
            GROUP,
            tuple(_PARTITIONS),
            self._deliveries,
            lambda: world.loop.time() * 1_000,
            lambda problem: world.violated("resets", problem),
        )
        world.on_broker_ready = self._ready
        self._settled = asyncio.Event()
        self._values = 0

    def _ready(self, server: Server) -> None:
        self._stored.restarted()
        self._messages.begin(server)
        self._begun_anew.begin(server)

    async def prepare(self) -> None:
        """Create the topics, and set what the group needs."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            for topic in _PARTITIONS:
                await self._create(admin, topic)
            if self._has_letters:
                configs = {"errors.deadletterqueue.group.enable": "true", "retention.ms": "-1"}
                await admin.create_topics([NewTopic(_LETTERS, _LETTER_PARTITIONS, configs=configs)])
            await admin.alter_configs({ConfigResource.group(GROUP): dict(self._config)})

    async def _create(self, admin: Admin, topic: str) -> None:
        configs = {"segment.bytes": self._random.choice(("300", "800", "16384"))}
        if topic == _JOBS and self._compacts:
            configs |= {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
        await admin.create_topics([NewTopic(topic, _PARTITIONS[topic], configs=configs)])

    async def work(self) -> None:
        """Run all clients at the same time; then let two members take the remaining records."""
        world = self._world
        observing = [
            asyncio.ensure_future(each()) for each in (self._observe, self._kill, self._clean)
        ]
        await asyncio.gather(
            keep_running(world, "member", self._members, self._live),
            keep_running(world, "producer", 2, self._produce),
            keep_running(world, "transactions", 2, self._transact),
            keep_running(world, "admin", 1, self._administer),
        )
        drains = [self._drain(f"drain-{number}") for number in (1, 2)]
        await asyncio.gather(self._settle(), *drains)
        for task in observing:
            task.cancel()
        await asyncio.gather(*observing, return_exceptions=True)

    # --- Members ---

    async def _live(self, name: str) -> None:
        while self._must_stop() and not self._world.faults_over.is_set():
            await self._world.sleep(20)
        plan = Plan.of(self._random)
        if self._resets and self._resetting.random() < 0.5:
            plan.polls = _MANY_POLLS
        plan.rejects = self._rejects
        await self._run(name, plan)

    def _must_stop(self) -> bool:
        over = self._world.faults_over.is_set()
        return over or self._world.now_ms < self._stopped_until_ms

    async def _run(self, name: str, plan: Plan) -> None:
        member = ShareMember(
            self._world, self._random, name, GROUP, _PARTITIONS, plan, self._readers
        )
        await member.run(self._must_stop, self._settled)

    async def _drain(self, name: str) -> None:
        plan = Plan("explicit", "batch_optimized", 0, 500, drains=True)
        await self._world.start_client(name, lambda: self._run(name, plan))

    async def _kill(self) -> None:
        """Kill a member from time to time. A killed member does not leave the group by a
        request."""
        world, random = self._world, self._random
        while True:
            await world.sleep(random.choice((300, 1_000, 3_000)))
            living = [name for name in world.clients if name.startswith("member")]
            if living and not world.faults_over.is_set():
                name = random.choice(living)
                world.note(name, "dies")
                world.clients[name].kill()

    # --- Producers ---

    def _value(self, name: str, fate: Fate) -> bytes:
        self._values += 1
        value = f"{name}/{self._values}/".encode().ljust(self._random.choice((0, 60)), b".")
        self._readers.fates[value] = fate
        return value

    def _place(self) -> tuple[str, int]:
        topic = self._random.choice((_JOBS, _JOBS, _TASKS))
        return topic, self._random.randrange(_PARTITIONS[topic])

    async def _send(self, producer: Producer, value: bytes) -> asyncio.Future[object]:
        topic, partition = self._place()
        key = b"%d" % self._random.randrange(_KEYS)
        delivery = await producer.send(topic, value, key=key, partition=partition)
        return asyncio.ensure_future(_outcome(delivery))

    async def _produce(self, name: str) -> None:
        world, random = self._world, self._random
        waiting = []
        async with Producer(
            bootstrap_servers=world.broker.bootstrap,
            batch_size=random.choice((100, 600)),
            linger_ms=random.choice((0, 50)),
            request_timeout_ms=1_500,
            delivery_timeout_ms=30_000,
            max_block_ms=1_000,
            client_id=name,
        ) as producer:
            for _ in range(random.randint(1, _RECORDS_MAX)):
                try:
                    waiting.append(await self._send(producer, self._value(name, Fate.PLAIN)))
                except OdradekError as problem:
                    world.note(name, f"was not taken: {problem}")
                await world.sleep(random.choice((0, 0, 20, 100, 300)))
            await asyncio.gather(*waiting)

    async def _transact(self, name: str) -> None:
        world, random = self._world, self._random
        async with Producer(
            bootstrap_servers=world.broker.bootstrap,
            transactional_id=f"id-{random.randrange(3)}",
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=1_500,
            max_block_ms=3_000,
            client_id=name,
        ) as producer:
            await producer.init_transactions()
            for _ in range(random.randint(1, _TRANSACTIONS_MAX)):
                await producer.begin_transaction()
                values = [self._value(name, Fate.OPEN) for _ in range(random.randint(1, 4))]
                waiting = [await self._send(producer, value) for value in values]
                await asyncio.gather(*waiting)
                await world.sleep(random.choice((0, 20, 300)))
                commits = random.random() < 0.6
                fate = Fate.COMMITTING if commits else Fate.ABORTED
                self._readers.fates.update(dict.fromkeys(values, fate))
                if commits:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
                await world.sleep(random.choice((0, 50, 300)))

    # --- The administrator ---

    async def _administer(self, name: str) -> None:
        world, random = self._world, self._random
        async with Admin(
            bootstrap_servers=world.broker.bootstrap, request_timeout_ms=2_000
        ) as admin:
            for _ in range(random.randint(1, 4)):
                await world.sleep(random.choice((300, 800)))
                try:
                    if self._deletes:
                        await self._delete_records(admin, name)
                    if self._churns:
                        await self._create_again(admin, name)
                    if self._resets:
                        await self._begin_anew(admin, name)
                except OdradekError as problem:
                    world.note(name, f"{problem}")

    async def _delete_records(self, admin: Admin, name: str) -> None:
        place = TopicPartition(_JOBS, self._random.randrange(_PARTITIONS[_JOBS]))
        described = (await admin.describe_topics([_JOBS]))[_JOBS]
        end = (await admin.list_offsets({place: LATEST}))[place]
        offset = self._random.randint(0, end.offset if end is not None else 0)
        self._deliveries.may_be_deleted(Place(described.topic_id, place.partition), offset)
        start = (await admin.delete_records({place: offset}))[place]
        self._world.note(name, f"{place}: the log starts at {start}")

    async def _create_again(self, admin: Admin, name: str) -> None:
        self._world.note(name, f"creates {_TASKS} again")
        try:
            await admin.delete_topics([_TASKS])
        except OdradekError as problem:
            if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        await self._world.sleep(self._random.choice((0, 100, 600)))
        await self._create(admin, _TASKS)

    async def _begin_anew(self, admin: Admin, name: str) -> None:
        """Reset the group's offsets, or delete its state.

        The attempts are made after all members have stopped, or while members start again. In some
        seeds no heartbeat succeeds for longer than the session timeout, although the members still
        fetch.
        """
        random, world = self._resetting, self._world
        reset = random.choice((self._alter, self._alter, self._delete_offsets, self._delete_group))
        opens = random.choice((3, 6, _RESET_ATTEMPTS))
        unheard = random.random() < 0.4
        if unheard:
            opens = -1
            world.order(
                fault="fail",
                api="ShareGroupHeartbeat",
                code="COORDINATOR_LOAD_IN_PROGRESS",
                times=None,
                for_ms=_UNHEARD_MS,
            )
        for attempt in range(_RESET_ATTEMPTS):
            if attempt <= opens:
                self._stopped_until_ms = world.now_ms + 2 * _RESET_EVERY_MS
            try:
                await reset(admin, name)
                break
            except InvalidGroup as problem:
                world.note(name, f"{problem}")
            await world.sleep(_RESET_EVERY_MS)
        self._stopped_until_ms = 0
        if unheard:
            await world.sleep(_UNHEARD_MS)

    async def _alter(self, admin: Admin, name: str) -> None:
        random = self._resetting
        places = [
            TopicPartition(topic, index)
            for topic in random.choice(((_JOBS,), (_JOBS, _TASKS)))
            for index in range(_PARTITIONS[topic])
        ]
        ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
        starts: dict[tuple[str, int], int] = {
            place: random.choice((0, random.randint(0, end.offset), end.offset))
            for place, end in ends.items()
            if end is not None
        }
        altered = await admin.alter_share_group_offsets(GROUP, starts, raise_errors=False)
        self._world.note(name, f"begins the group anew at {starts}: {altered.errors}")
        for problem in altered.errors.values():
            raise problem

    async def _delete_offsets(self, admin: Admin, name: str) -> None:
        topics = self._resetting.choice(((_JOBS,), (_JOBS, _TASKS)))
        deleted = await admin.delete_share_group_offsets(GROUP, topics, raise_errors=False)
        self._world.note(name, f"deletes the offsets of {topics}: {deleted.errors}")
        for problem in deleted.errors.values():
            raise problem

    async def _delete_group(self, admin: Admin, name: str) -> None:
        visits = self._visiting.random() < 0.5
        visit = asyncio.ensure_future(self._visit()) if visits else None
        try:
            await admin.delete_groups(GROUP)
        finally:
            if visit is not None:
                visit.cancel()
                await asyncio.gather(visit, return_exceptions=True)
        self._world.note(name, "deletes the group")

    async def _visit(self) -> None:
        """Let a member join and leave while the states of the group are being deleted."""
        random, world = self._visiting, self._world
        while True:
            await world.sleep(1)
            if not world.broker.running or not hasattr(world.broker.server, "node"):
                continue
            group = world.broker.server.node.groups.share_group(GROUP)
            if group is not None and group.states and group.states.deleting and not group.members:
                break
        world.note("visitor", "joins")
        self._beat(JOIN_EPOCH, random.choice(([_JOBS], [_TASKS], [_JOBS, _TASKS])))
        await world.sleep(random.choice((0, 0, 1, 5)))
        world.note("visitor", "leaves")
        self._beat(LEAVE_EPOCH, None)

    def _beat(self, epoch: int, topics: list[str] | None) -> None:
        """Call the broker's handler with a heartbeat of the visitor, without a network."""
        broker = self._world.broker
        if broker.running and hasattr(broker.server, "node"):
            request = ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id="visitor",
                member_epoch=epoch,
                rack_id=None,
                subscribed_topic_names=topics,
            )
            share = broker.server.node.groups.share
            broker.process.call(share.heartbeat, request, "visitor", "/127.0.0.1")

    # --- Observation ---

    async def _clean(self) -> None:
        """Run the cleaner all the time."""
        broker = self._world.broker
        while self._compacts:
            await self._world.sleep(100)
            if broker.running and hasattr(broker.server, "node"):
                cleaner = broker.server.node.cleaner
                cleaner._next_look_ms = 0.0
                broker.process.call(cleaner.tick)

    async def _observe(self) -> None:
        world = self._world
        while True:
            await world.sleep(_OBSERVE_EVERY_MS)
            if world.broker.running and hasattr(world.broker.server, "node"):
                self._look()

    def _look(self) -> None:
        world, node = self._world, self._world.broker.server.node
        for problem in check_share_partitions(node):
            world.violated("share partitions", problem)
        for problem in check_noted(node, GROUP):
            world.violated("share states", problem)
        found = stored_states(node, GROUP)
        for problem in self._stored.check(found, self._begun_anew.take_changed()):
            world.violated("stored", problem)

    # --- The end ---

    async def _settle(self) -> None:
        """Wait until every record is finished."""
        world = self._world
        until_ms = world.now_ms + _SETTLE_MS
        missing = "the broker is down"
        while missing and world.now_ms < until_ms:
            await world.sleep(300)
            missing = self._what_is_missing()
        if missing:
            world.violated("liveness", f"{_SETTLE_MS} ms after the faults: {missing}")
        self._settled.set()

    def _what_is_missing(self) -> str:
        """Name a partition with records that are not finished; empty if there is none."""
        broker = self._world.broker
        if not broker.running or not hasattr(broker.server, "node"):
            return "the broker is down"
        node = broker.server.node
        led = {
            (each.topic, each.key.partition): each.state
            for each in node.share_partitions._led.values()
            if each.key.group_id == GROUP
        }
        for topic, index, partition in node.replicas.partitions():
            log = partition.log
            if topic not in _PARTITIONS or not log.log_end_offset:
                continue
            state = led.get((topic, index))
            if log.last_stable_offset < log.log_end_offset:
                return f"{topic}-{index} has an open transaction"
            if state is None or state.start_offset < log.log_end_offset:
                at = None if state is None else state.start_offset
                return f"{topic}-{index} is finished up to {at} of {log.log_end_offset}"
        return ""

    async def check(self) -> Iterator[str]:
        """Check that each record of the logs was delivered, and that its final state is the one
        that the broker confirmed to a member."""
        bootstrap = self._world.broker.bootstrap
        self._look()
        stored = stored_states(self._world.broker.server.node, GROUP)
        states = {Place(*key[1:]): state for key, state in stored.items()}
        problems: list[str] = []
        letters: list[Named] = []
        if self._has_letters:
            letters = await read_dead_letters(bootstrap, _LETTERS, _LETTER_PARTITIONS)
        async with Admin(bootstrap_servers=bootstrap) as admin:
            names = await admin.list_topics()
            described = await admin.describe_topics([each for each in _PARTITIONS if each in names])
        for topic, description in described.items():
            logs = await read_all(
                bootstrap, topic, len(description.partitions), committed=self._committed
            )
            for name, records in logs.items():
                place = Place(description.topic_id, int(name.rpartition("-")[2]))
                found = dict(records)
                state = states.get(place)
                finished = [each for each in found if state and is_finished(state, each)]
                problems += self._deliveries.check_finished(place, found, finished)
                problems += self._readers.check_values(place, found)
                if self._has_letters:
                    problems += check_dead_letters(letters, place, found, self._deliveries)
        for place, state in states.items():
            for first, last, delivery_state, _ in state.batches:
                for offset in range(max(first, state.start_offset), last + 1):
                    if delivery_state:
                        problems += self._deliveries.check_stored(
                            place, offset, delivery_state == 2
                        )
        return iter(problems)


def _pause_ms(delay_ms: int, longest_ms: int, count: int) -> int:
    """The minimum pause in ms after the delivery with this delivery count (H-200)."""
    if not delay_ms:
        return 0
    doubled_ms = delay_ms
    for _ in range(count - 1):
        doubled_ms += doubled_ms
    return min(doubled_ms, max(delay_ms, longest_ms)) - 1


async def _outcome(delivery: object) -> OdradekError | None:
    """Wait for a delivery; returns its error instead of raising it."""
    try:
        await delivery  # type: ignore[misc]
    except OdradekError as problem:
        return problem
    return None
