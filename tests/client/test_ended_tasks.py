"""Every background task of every client, ended from outside (C-83): the client goes on, or its next
call says what happened. No call waits for ever, and no record is lost."""

from __future__ import annotations

import ast
import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer as ForeignConsumer

import budget
from live_brokers import LiveBroker, live_broker
from odradek import Admin, ConfigResource, Consumer, NewTopic, Producer, ShareConsumer, sync
from odradek.testing import make_unique_topic
from odradek_client import tasks
from odradek_client.blocking_calls import loop_thread
from odradek_client.config.common import ClientConfig
from odradek_client.errors import (
    Closed,
    ConnectionLost,
    IllegalState,
    InternalError,
    OdradekError,
    TaskCancelled,
)
from odradek_client.network.client import NetworkClient
from odradek_client.structs import TopicPartition
from odradek_mirror.source import MIRROR_LIMITS, SourceReader
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.metadata import MetadataRequest
from product_modules import PACKAGES
from scripted_broker import SILENCE, ScriptedBroker
from task_killer import Ending, Planted, TaskKiller
from waiting import until, wait_until

T = TypeVar("T")
Scenario = Callable[["World"], Awaitable[None]]

DEADLINE_S = 40.0
RECORDS = 12


@pytest.fixture(scope="module")
def broker(pytestconfig: pytest.Config) -> Iterator[LiveBroker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 100,
        "group.consumer.heartbeat.interval.ms": 50,
        "group.consumer.min.heartbeat.interval.ms": 50,
        "group.share.heartbeat.interval.ms": 50,
        "group.share.min.record.lock.duration.ms": 1000,
        "group.share.min.heartbeat.interval.ms": 50,
        "log.durability": "page-cache",
    }
    with live_broker(pytestconfig, settings) as running:
        yield running


class Loud(Exception):
    """The client has ended with an error that says what happened."""


class World:
    """A broker with a new topic, and a client whose tasks are recorded or ended."""

    def __init__(self, bootstrap: str, killer: TaskKiller) -> None:
        self.bootstrap = bootstrap
        self.killer = killer
        self.topic = make_unique_topic()
        self.partitions = [TopicPartition(self.topic, n) for n in range(2)]
        self.errors: list[Exception] = []
        self.settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "retry_backoff_ms": 10,
            "reconnect_backoff_ms": 10,
        }

    async def start(self, client: Any) -> None:
        try:
            await client.start()
        except OdradekError as error:
            assert "planted" in str(error)
            raise Loud from error

    async def tried(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call until the client raises no error."""
        while True:
            try:
                return await call()
            except (OdradekError, Planted) as error:
                self.errors.append(error)
                if "planted" in str(error) and len(self.errors) > 3:
                    raise Loud from error
                assert len(self.errors) < 20, self.errors
                await asyncio.sleep(0.01)

    @contextmanager
    def spared(self) -> Iterator[None]:
        """Clients in the block are not the victim."""
        self.killer.paused = True
        try:
            yield
        finally:
            self.killer.paused = False

    async def prepare(self) -> None:
        with self.spared():
            async with Admin(bootstrap_servers=self.bootstrap) as admin:
                await admin.create_topics(NewTopic(self.topic, 2))
                resource = ConfigResource.group(self.topic)
                await admin.alter_configs(
                    {
                        resource: {
                            "share.auto.offset.reset": "earliest",
                            "share.record.lock.duration.ms": "1000",
                        }
                    }
                )

    async def fill(self, *values: bytes) -> None:
        with self.spared():
            async with Producer(bootstrap_servers=self.bootstrap) as producer:
                for n, value in enumerate(values or [b"%d" % n for n in range(RECORDS)]):
                    await producer.send(self.topic, value, partition=n % 2)

    async def read_all(self, **settings: Any) -> list[Any]:
        with self.spared():
            async with Consumer(
                bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", **settings
            ) as consumer:
                consumer.assign(self.partitions)
                ends = await consumer.end_offsets()
                found: list[Any] = []
                while any([await consumer.position(each) < end for each, end in ends.items()]):
                    found += await consumer.poll(100)
                return [record.value for record in found]


async def produce(world: World) -> None:
    producer = Producer(**world.settings, linger_ms=1)
    await world.start(producer)
    written = set[bytes]()

    async def send(value: bytes) -> None:
        await producer.send_and_wait(world.topic, value)
        written.add(value)

    try:
        for n in range(RECORDS):
            await world.tried(partial(send, b"%d" % n))
    finally:
        await producer.close()
        assert written == set(await world.read_all())


async def transact(world: World) -> None:
    producer = Producer(**world.settings, transactional_id=world.topic)
    await world.start(producer)
    await world.tried(producer.init_transactions)
    written = set[bytes]()

    async def one(n: int) -> None:
        values = {b"%d" % (2 * n + part) for part in range(2)}
        async with producer.transaction():
            for value in values:
                await producer.send(world.topic, value)
            await producer.send_offsets_to_transaction({(world.topic, 0): n}, world.topic)
        written.update(values)

    try:
        for n in range(3):
            await world.tried(partial(one, n))
    finally:
        await producer.close()
    assert sorted(await world.read_all(isolation_level="read_committed")) == sorted(written)


async def consume(world: World, **settings: Any) -> None:
    await world.fill()
    consumer = Consumer(
        world.topic,
        **world.settings,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
        auto_commit_interval_ms=20,
        default_api_timeout_ms=10_000,
        **settings,
    )
    await world.start(consumer)
    found = set[Any]()

    async def poll() -> None:
        found.update(record.value for record in await consumer.poll(200, max_records=3))

    async def read(count: int) -> None:
        while len(found) < count:
            await world.tried(poll)

    try:
        await read(RECORDS)
        await world.fill(b"more")
        await read(RECORDS + 1)
        await world.tried(consumer.end_offsets)
        if consumer.config.group_id is not None:
            await in_group(world, consumer, poll)
    finally:
        await consumer.close()


async def in_group(world: World, consumer: Consumer, poll: Callable[[], Awaitable[None]]) -> None:
    await world.tried(consumer.commit)
    # The application has this task, and sees what has ended it.
    await asyncio.wait([consumer.commit_soon()])
    await world.tried(lambda: consumer.committed(world.partitions[0]))
    # A second member causes a rebalance, with a commit before it.
    second = ForeignConsumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": world.topic,
            "group.protocol": consumer.config.group_protocol,
        }
    )
    second.subscribe([world.topic])
    while len(second.assignment()) != 1 or len(consumer.assignment()) != 1:
        await world.tried(poll)
        second.poll(0.01)
    second.close()
    while len(consumer.assignment()) != 2:
        await world.tried(poll)


async def consume_classic(world: World) -> None:
    await consume(world, group_id=world.topic, heartbeat_interval_ms=30, session_timeout_ms=3_000)


async def consume_consumer(world: World) -> None:
    await consume(world, group_id=world.topic, group_protocol="consumer")


async def share(world: World) -> None:
    await world.fill()
    consumer = ShareConsumer(
        world.topic,
        **world.settings,
        group_id=world.topic,
        share_acknowledgement_mode="explicit",
        fetch_max_wait_ms=50,
    )
    await world.start(consumer)
    accepted = set[Any]()

    async def poll() -> None:
        records = await consumer.poll(200, max_records=3)
        for record in records:
            record.accept()
        # If an answer is lost, the records are accepted, or come again when their locks expire.
        accepted.update(record.value for record in records)
        for error in (await consumer.commit(timeout_ms=10_000)).values():
            if error is not None:
                raise error

    try:
        while len(accepted) < RECORDS:
            await world.tried(poll)
    finally:
        await consumer.close()


async def administrate(world: World) -> None:
    await world.fill()
    admin = Admin(**world.settings)
    await world.start(admin)
    try:
        for _ in range(3):
            found = await world.tried(
                lambda: admin.list_offsets(dict.fromkeys(world.partitions, "latest"))
            )
            assert [each.offset for each in found.values()] == [RECORDS // 2] * 2
            assert world.topic in await world.tried(admin.list_topics)
    finally:
        await admin.close()


async def mirror_source(world: World) -> None:
    await world.fill()
    admin = Admin(**world.settings)
    await world.start(admin)
    reader = SourceReader(admin, read_committed=False, limits=MIRROR_LIMITS, rate=None)
    try:
        for each in world.partitions:
            reader.assign(each, 0)
        while sum(reader.positions.values()) < RECORDS:
            await world.tried(lambda: reader.poll(200))
    finally:
        await reader.close()
        await admin.close()


#: The scenarios, and tasks that each of them must begin, besides `NETWORK`.
SCENARIOS: dict[Scenario, set[str]] = {
    produce: {"_send_init_producer_id"},
    transact: {"_send_txn_request"},
    consume: {"_fetch", "_find_once", "send"},
    consume_classic: {"_join_group", "_run_heartbeats", "_carry_out", "_carry_out_quietly"},
    consume_consumer: {"_run_heartbeats", "_carry_out_automatically"},
    share: {"_run", "_ask", "_run_heartbeats"},
    administrate: set(),
    mirror_source: {"_ask"},
}
NETWORK = {"_keep_fresh", "_metadata_of", "_opening"}
#: Calls of blocking clients, and of coroutines that wait for their tasks.
CALLS = {"_awaited", "_work", "write"}
#: Tasks that tests of other modules end, or tests below.
BELOW = {"_reauthenticate", "_look_into", "_finish", "finish", "_append", "_ask_leaders"}
#: Tasks whose end is handled where they are begun, with a test at the same place.
ELSEWHERE = {
    "connected": "reach_a_broker takes the errors of its attempts",
    "_ask_ends": "_ask_leaders raises its errors",
    "read": "the comparison of a mirror raises its errors",
    "show_progress": "tests/mirror/test_run.py",
}


@asynccontextmanager
async def world_of(broker: LiveBroker, *victim: Any, **named: Any) -> AsyncIterator[World]:
    world = World(broker.bootstrap, TaskKiller(*victim, **named))
    await world.prepare()
    async with asyncio.timeout(DEADLINE_S):
        with world.killer:
            yield world


@pytest.mark.parametrize("ending", budget.of_which(Ending, [Ending.CANCELLED, Ending.KILLED]))
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_c83_no_task_of_a_client_ends_silently(
    broker: LiveBroker,
    scenario: Scenario,
    ending: Ending,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with world_of(broker) as world:
        await scenario(world)
        victims = sorted(world.killer.begun)
    assert {each.rpartition(".")[2] for each in victims} >= SCENARIOS[scenario] | NETWORK
    failed = list[str]()
    for victim in victims:
        try:
            async with world_of(broker, victim, ending) as world:
                await scenario(world)
        except Loud:
            if ending in (Ending.UNBEGUN, Ending.CANCELLED):
                failed.append(f"{victim}, {ending.value}: does not go on")
        except BaseException as error:  # noqa: BLE001  all are listed
            failed.append(f"{victim}, {ending.value}: {type(error).__name__}: {error}"[:300])
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_c83_a_client_goes_on_when_all_its_tasks_are_cancelled(
    broker: LiveBroker, scenario: Scenario
) -> None:
    async with world_of(broker) as world:
        await scenario(world)
        count = world.killer.begun.total()
    for all_at in {count // 4, count // 2, 3 * count // 4}:
        async with world_of(broker, all_at=all_at) as world:
            await scenario(world)


async def begun(kind: str, bootstrap: str, topic: str) -> Any:
    """A client in the middle of its work."""
    if kind == "producer":
        producer = Producer(bootstrap_servers=bootstrap, transactional_id=topic)
        await producer.start()
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b"x")
        return producer
    made: Any = ShareConsumer if kind == "share" else Consumer
    settings = {} if kind == "share" else {"group_protocol": kind}
    consumer = made(topic, bootstrap_servers=bootstrap, group_id=topic, **settings)
    await consumer.start()
    await consumer.poll(timeout_ms=500)
    return consumer


@pytest.mark.parametrize("kind", ["classic", "consumer", "share", "producer"])
async def test_c83_a_cancelled_close_leaves_no_task(
    broker: LiveBroker, topic: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_AGAIN_S", 0.0)
    before = asyncio.all_tasks()
    for turns in range(1, 40, 4):
        client = await begun(kind, broker.bootstrap, topic)
        closing = asyncio.create_task(client.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        async with asyncio.timeout(DEADLINE_S):
            while left := asyncio.all_tasks() - before:
                await asyncio.wait(left)
        for _ in range(5):
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before, turns


def test_c83_every_place_that_begins_a_task_is_walked() -> None:
    rooms = ("odradek_client", "odradek_mirror", "odradek")
    files = [file for room in rooms for file in PACKAGES[room].rglob("*.py")]
    begun = {
        name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        for name in works_of(node)
    }
    walked = set.union(NETWORK, BELOW, set(ELSEWHERE), *SCENARIOS.values())
    assert begun - CALLS == walked


#: The functions that begin tasks, with the position of the work among their arguments.
_BEGINS = {
    "create_task": 0,
    "ensure_future": 0,
    "_begin": 0,
    "begin": 1,
    "spawn": 1,
    "LastingTask": 1,
}
_TOGETHER = {"together", "all_done", "gather"}


def works_of(call: ast.Call) -> set[str]:
    """The names of the coroutine functions that a call begins in tasks."""
    name = name_of(call.func)
    if name in _BEGINS and len(call.args) > _BEGINS[name]:
        work = call.args[_BEGINS[name]]
        if isinstance(work, ast.Call):
            return {name_of(work.func)}
        return {work.attr} if name == "LastingTask" and isinstance(work, ast.Attribute) else set()
    found = set[str]()
    for starred in call.args if name in _TOGETHER else ():
        works = starred.value if isinstance(starred, ast.Starred) else None
        if isinstance(works, ast.GeneratorExp) and isinstance(works.elt, ast.Call):
            found.add(name_of(works.elt.func))
        elif isinstance(works, ast.Call) and name_of(works.func) == "map":
            found.add(name_of(works.args[0]))
    return found


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


# --- connections ----------------------------------------------------------------------------------


async def never() -> None:
    await asyncio.Event().wait()


async def killed() -> None:
    raise Planted("planted")


@pytest.mark.parametrize("ending", ["cancelled", "planted"])
async def test_c83_a_connection_whose_task_was_ended_is_replaced(ending: str) -> None:
    """The renewal of a session, or the search for the cause of a lost connection, was ended: the
    connection would stay, and answer nothing."""
    async with ScriptedBroker(topics={"t": 1}) as broker:
        network = NetworkClient(ClientConfig.from_settings({"bootstrap_servers": broker.address}))
        await network.start()
        try:
            node_id = await network.least_loaded_node()
            connection = network.ready(node_id, "main")
            assert connection is not None
            broker.on(ApiKey.METADATA, SILENCE)
            waiting = asyncio.ensure_future(network.send(node_id, MetadataRequest(topics=[])))
            await until(lambda: connection.in_flight)
            network.connections.spawn(connection, never() if ending == "cancelled" else killed())
            if ending == "cancelled":
                list(network.connections._attempts)[-1].cancel()
            with pytest.raises(ConnectionLost, match=ending):
                await waiting
            await network.send(node_id, MetadataRequest(topics=[]))
        finally:
            await network.close()


async def test_c83_cancelled_attempts_to_connect_are_an_error() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        network = NetworkClient(ClientConfig.from_settings({"bootstrap_servers": broker.address}))
        await network.start()
        killer = TaskKiller("Connections.connected", Ending.UNBEGUN)
        with killer, pytest.raises(ConnectionLost, match="cancelled"):
            await network.reach_a_broker(1_000)
        await network.close()


# --- the sender of a producer ---------------------------------------------------------------------


@pytest.mark.parametrize("step", ["step", "answered"])
async def test_c83_a_producer_whose_sender_fails_says_so(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        ScriptedBroker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.address, linger_ms=1) as producer,
    ):
        await producer.send_and_wait("t", b"1")

        def fail(*_: Any) -> Any:
            raise Planted("planted")

        monkeypatch.setattr(producer._sender, step, fail)
        first = await producer.send("t", b"2")
        with pytest.raises(InternalError, match="planted"):
            await first
        for call in (producer.send("t", b"3"), producer.partitions_for("t")):
            with pytest.raises(InternalError, match=r"planted.*make a new one"):
                await call
        with pytest.raises(InternalError, match=r"planted"):
            producer.send_nowait("t", b"4")
    assert len(broker.log("t").values) == (1 if step == "step" else 2)


# --- closed loops ---------------------------------------------------------------------------------


def in_closed_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run work in a loop that is closed afterwards, without an end of the tasks."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


@pytest.mark.filterwarnings("ignore")  # the sockets and tasks of the closed loop
@pytest.mark.parametrize("run", [asyncio.run, in_closed_loop])
def test_c83_the_calls_of_a_client_whose_loop_is_closed_say_so(
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    broker: LiveBroker,
    topic: str,
) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap}
    clients: dict[str, Any] = {
        "producer": Producer(**settings, linger_ms=60_000),
        "transactional": Producer(**settings, transactional_id=topic),
        "consumer": Consumer(topic, **settings, group_id=topic),
        "share": ShareConsumer(topic, **settings, group_id=f"{topic}-share"),
        "admin": Admin(**settings),
    }

    async def begin() -> Any:
        for client in clients.values():
            await client.start()
        await clients["transactional"].init_transactions()
        await clients["transactional"].begin_transaction()
        await clients["transactional"].send(topic, b"of the transaction")
        await clients["consumer"].poll(100)
        await clients["share"].poll(100)
        return await clients["producer"].send(topic, b"never sent")

    delivery = run(begin())

    async def go_on() -> None:
        producer, consumer, shared = clients["producer"], clients["consumer"], clients["share"]
        transactional = clients["transactional"]
        # The batch of the first partition is open and has room.
        first = delivery.owner.tp.partition
        for call in (
            lambda: delivery,
            producer.flush,
            partial(producer.send, topic, b"x", partition=first),
            partial(producer.send, topic, b"x", partition=(first + 1) % 3),
            lambda: transactional.send_offsets_to_transaction({(topic, 0): 0}, topic),
            transactional.commit_transaction,
            consumer.poll,
            consumer.getone,
            consumer.commit,
            consumer.end_offsets,
            shared.poll,
            shared.commit,
            clients["admin"].list_topics,
        ):
            with pytest.raises(Closed, match="loop in which this client was started is closed"):
                async with asyncio.timeout(DEADLINE_S):
                    await call()
        for name, client in clients.items():
            with pytest.raises(Closed) if name == "producer" else nullcontext():
                await client.close()
        assert isinstance(delivery.exception(), Closed)

    asyncio.run(go_on())


@pytest.mark.parametrize("kind", [Producer, Consumer, ShareConsumer, Admin])
async def test_c83_a_client_under_another_event_loop_says_whose_it_is(
    broker: LiveBroker, topic: str, kind: Any
) -> None:
    settings = {"group_id": topic} if kind is ShareConsumer else {}
    client = kind(bootstrap_servers=broker.bootstrap, **settings)
    calls = {
        Producer: lambda: client.send_and_wait(topic, b"x"),
        Consumer: lambda: client.end_offsets((topic, 0)),
        ShareConsumer: lambda: client.poll(),
        Admin: lambda: client.list_topics(),
    }
    async with client:
        if kind is ShareConsumer:
            client.subscribe([topic])
        for call in (calls[kind], client.close):
            with pytest.raises(IllegalState, match="another event loop"):
                await asyncio.to_thread(asyncio.run, _awaited(call))
        await calls[kind]()


async def _awaited(call: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await call()


@pytest.mark.parametrize("kind", [Producer, Consumer, ShareConsumer, Admin])
def test_a_client_that_is_pickled_says_where_to_make_one(kind: Any) -> None:
    settings = {"group_id": "g"} if kind is ShareConsumer else {}
    for client in (kind(**settings), getattr(sync, kind.__name__)(**settings)):
        with pytest.raises(IllegalState, match=f"{kind.__name__}.* make one where"):
            pickle.dumps(client)


# --- blocking clients -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # the sockets and tasks of the closed loop
def test_c83_blocking_calls_end_when_the_thread_of_the_loop_ends(
    broker: LiveBroker, topic: str
) -> None:
    consumer = sync.Consumer(topic, bootstrap_servers=broker.bootstrap, group_id=topic)
    consumer.start()
    consumer.poll(10)
    thread = loop_thread()
    waiting = ThreadPoolExecutor(1).submit(consumer.getone)
    committed = thread.future()
    thread.soon(thread.loop.stop)
    for future in (waiting, committed):
        with pytest.raises(Closed, match="make a new one"):
            future.result(DEADLINE_S)
    thread.thread.join(DEADLINE_S)
    for call in (consumer.poll, consumer.getone, consumer.commit, consumer.commit_soon):
        with pytest.raises(Closed, match="make a new one"):
            call()
    consumer.close()
    with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert topic in admin.list_topics()


def test_c83_a_blocking_call_whose_task_is_cancelled_says_so(
    broker: LiveBroker, topic: str
) -> None:
    async def cancel_others() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    with sync.Consumer(topic, bootstrap_servers=broker.bootstrap) as consumer:
        waiting = ThreadPoolExecutor(1).submit(consumer.poll, 60_000)
        wait_until(lambda: consumer.inner._polling.locked(), "the poll waits")
        loop_thread().submit(cancel_others()).result(DEADLINE_S)
        with pytest.raises(TaskCancelled, match="cancelled"):
            waiting.result(DEADLINE_S)
        with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send(topic, b"x").result()
