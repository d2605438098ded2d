"""The blocking classes: the methods of the asyncio classes, calls from any thread, Ctrl+C, and
listeners in the polling thread."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interrupts import interrupted_at_line
from live_brokers import LiveBroker, live_broker
from odradek import sync
from odradek.testing import make_unique_topic
from odradek_client import admin, errors
from odradek_client.blocking_calls import loop_thread
from odradek_client.consumer.consumer import Consumer as AsyncConsumer
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.producer.producer import Producer as AsyncProducer
from odradek_client.structs import ConsumerRecord, TopicPartition

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def broker(pytestconfig: pytest.Config) -> Iterator[LiveBroker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "log.durability": "page-cache"}
    with live_broker(pytestconfig, settings) as running:
        yield running


@pytest.fixture
def topic(broker: LiveBroker) -> str:
    """A new topic with two partitions."""
    name = make_unique_topic()
    with sync.Admin(bootstrap_servers=broker.bootstrap) as client:
        client.create_topics([admin.NewTopic(name, 2)])
    return name


def produce(broker: LiveBroker, topic: str, count: int) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        deliveries = [producer.send(topic, b"%d" % n, partition=n % 2) for n in range(count)]
        for n, delivery in enumerate(deliveries):
            assert delivery.result(DEADLINE_S * 1000).offset == n // 2
            assert delivery.done()
            assert delivery.exception() is None


def a_consumer(broker: LiveBroker, *topics: str, **settings: Any) -> sync.Consumer:
    settings.setdefault("auto_offset_reset", "earliest")
    return sync.Consumer(*topics, bootstrap_servers=broker.bootstrap, **settings)


def take(consumer: sync.Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize(
    ("blocking", "original"),
    [
        (sync.Producer, AsyncProducer),
        (sync.Consumer, AsyncConsumer),
        (sync.Admin, admin.Admin),
    ],
)
def test_every_public_method_has_a_blocking_form(blocking: Any, original: Any) -> None:
    # `send_nowait` is for programs with a running event loop, and is not faster than `send` here.
    # The other methods need objects that must be used in the thread of the event loop.
    left_out = {"send_nowait", "produce_lines", "produce_batch", "poll_rows"}
    left_out |= {"next_buffered", "take_buffered"}
    for name, _ in inspect.getmembers(original, inspect.isfunction):
        if name.startswith("_") or name in left_out:
            continue
        made = getattr(blocking, name)
        assert not inspect.iscoroutinefunction(made), name
        if name not in ("start", "close"):
            assert made.__doc__, name


def test_the_blocking_consumer_reads_and_seeks(broker: LiveBroker, topic: str) -> None:
    produce(broker, topic, 100)
    with a_consumer(broker, topic) as consumer:
        records = take(consumer, 100)
        assert sorted(int(record.value) for record in records) == list(range(100))
        assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert consumer.position((topic, 0)) == 50
        assert consumer.end_offsets() == dict.fromkeys(consumer.assignment(), 50)
        consumer.seek((topic, 0), 48)
        assert [record.offset for record in take(consumer, 2)] == [48, 49]
        assert consumer.poll(20) == []


def test_commit_in_an_iteration_commits_returned_records_only(
    broker: LiveBroker, topic: str
) -> None:
    produce(broker, topic, 100)
    with a_consumer(broker, topic, group_id=topic, enable_auto_commit=False) as consumer:
        seen = take(consumer, 30)
        consumer.commit()
    with a_consumer(broker, topic, group_id=topic) as consumer:
        seen += take(consumer, 70)
    assert sorted(int(record.value) for record in seen) == list(range(100))


def test_many_threads_use_one_consumer(broker: LiveBroker, topic: str) -> None:
    produce(broker, topic, 400)
    seen: list[bytes] = []
    with a_consumer(broker, topic) as consumer:
        threads = [
            threading.Thread(target=lambda: seen.extend(r.value for r in take(consumer, 100)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert sorted(map(int, seen)) == list(range(400))


def test_closing_from_another_thread_ends_the_iteration(broker: LiveBroker, topic: str) -> None:
    consumer = a_consumer(broker, topic)
    consumer.start()
    seen: list[Any] = ["not ended"]
    reader = threading.Thread(target=lambda: seen.__setitem__(0, list(consumer)))
    reader.start()
    consumer.close()
    reader.join(DEADLINE_S)
    assert seen == [[]]


def test_listeners_run_in_the_polling_thread_and_may_call_back(
    broker: LiveBroker, topic: str
) -> None:
    produce(broker, topic, 10)
    entries: list[tuple[str, int, threading.Thread]] = []

    with a_consumer(broker, group_id=topic, enable_auto_commit=False) as consumer:

        class Listener(RebalanceListener):
            def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
                for partition in partitions:
                    consumer.seek(partition, 3)
                entries.append(("assigned", len(partitions), threading.current_thread()))

            async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
                consumer.commit()
                entries.append(("revoked", len(partitions), threading.current_thread()))

        consumer.subscribe([topic], listener=Listener())
        assert {record.offset for record in take(consumer, 4)} == {3, 4}
        consumer.unsubscribe()
        committed = consumer.committed((topic, 0))
        assert committed is not None
        assert committed.offset == 5
    here = threading.current_thread()
    assert entries == [("assigned", 2, here), ("revoked", 2, here)]


def test_an_exception_of_a_listener_is_raised_by_the_poll(broker: LiveBroker, topic: str) -> None:
    class Grumpy(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            raise LookupError("no")

    with a_consumer(broker, group_id=topic) as consumer:
        consumer.subscribe([topic], listener=Grumpy())
        with pytest.raises(LookupError):
            take(consumer, 1)


def test_errors_are_those_of_the_asynchronous_classes(broker: LiveBroker, topic: str) -> None:
    with pytest.raises(errors.ConfigError):
        sync.Consumer(nonsense=1)  # type: ignore[call-arg]
    with a_consumer(broker, topic) as consumer, pytest.raises(errors.IllegalState):
        consumer.commit()
    with sync.Admin(bootstrap_servers=broker.bootstrap) as client:
        assert topic in client.list_topics()


def test_a_client_that_was_not_started_names_with_and_start(broker: LiveBroker) -> None:
    producer = sync.Producer(bootstrap_servers=broker.bootstrap)
    consumer = sync.Consumer("t", bootstrap_servers=broker.bootstrap)
    admin = sync.Admin(bootstrap_servers=broker.bootstrap)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("producer", lambda: producer.send("t", b"x")),
        ("producer", producer.flush),
        ("consumer", lambda: consumer.poll(0)),
        ("consumer", lambda: next(consumer)),
        ("admin", admin.list_topics),
    ]
    for name, call in calls:
        with pytest.raises(errors.Closed) as caught:
            call()
        assert str(caught.value) == f'this {name} was not started; use "with" or call start()'
    producer.close()
    consumer.close()
    admin.close()


@pytest.mark.full
def test_ctrl_c_interrupts_an_iteration(broker: LiveBroker, topic: str) -> None:
    program = textwrap.dedent(
        """
        import json, sys
        from odradek import sync
        with sync.Consumer(sys.argv[2], bootstrap_servers=sys.argv[1]) as consumer:
            try:
                print("waiting", flush=True)
                for record in consumer:
                    pass
            except KeyboardInterrupt:
                print(json.dumps(sorted(consumer.subscription())), flush=True)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, broker.bootstrap, topic],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"waiting\n"
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=DEADLINE_S)
    finally:
        child.kill()
        child.wait()
    assert json.loads(rest) == [topic]
    assert child.returncode == 0


@pytest.mark.full
def test_ctrl_c_at_any_moment_of_a_call_interrupts_it(broker: LiveBroker, topic: str) -> None:
    """A timer takes the place of Ctrl+C: it interrupts 500 calls before, while or after they begin
    to wait for the loop's thread."""
    program = textwrap.dedent(
        """
        import random, signal, sys
        from odradek import sync

        def interrupt(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        moments = random.Random(7)
        count = 0
        with sync.Consumer(sys.argv[2], bootstrap_servers=sys.argv[1]) as consumer:
            while count < 500:
                try:
                    signal.setitimer(signal.ITIMER_REAL, moments.uniform(5e-6, 2.5e-4))
                    consumer.getone()
                except KeyboardInterrupt:
                    count += 1
                assert consumer.subscription() == {sys.argv[2]}
        print(count, len(consumer._serving))
        """
    )
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, broker.bootstrap, topic],
        check=False,
        capture_output=True,
        timeout=4 * DEADLINE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout == b"500 0\n"
    assert child.stderr == b""


def values_of(taken: Any) -> list[bytes]:
    """The values in the result of a call that takes records."""
    if isinstance(taken, ConsumerRecord):
        return [taken.value]
    if isinstance(taken, dict):
        return [record.value for records in taken.values() for record in records]
    if isinstance(taken, list):
        return [record.value for record in taken]
    return list(taken.column("value").to_pylist())


@pytest.mark.parametrize(
    ("taking", "before"),
    [("poll", 0), ("getmany", 0), ("poll_arrow", 0), ("getone", 0), ("getone", 1)],
)
def test_c80_ctrl_c_at_any_line_of_a_blocking_poll_loses_no_record(
    taking: str, before: int, broker: LiveBroker, topic: str
) -> None:
    """`before`: the number of records that are read shortly before, so that the call takes a
    buffered record without the loop's thread."""
    produce(broker, topic, 8)
    with a_consumer(broker, fetch_max_wait_ms=10) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        for moment in itertools.count(1):
            for number in (0, 1):
                consumer.seek((topic, number), 0)
            seen = [consumer.getone().value for _ in range(before)]
            found = interrupted_at_line(moment, getattr(consumer, taking))
            if found is not None:
                seen += values_of(found)
            while len(seen) < 8 and (records := consumer.poll(2_000)):
                seen += values_of(records)
            assert sorted(seen) == [b"%d" % n for n in range(8)], moment
            if found is not None:
                break
    assert moment > 5


def test_a_blocking_call_on_the_loops_own_thread_is_refused() -> None:
    thread = loop_thread()
    refused: list[Exception] = []
    done = threading.Event()

    def call() -> None:
        try:
            sync.Consumer("t").assignment()
        except errors.IllegalState as error:
            refused.append(error)
        done.set()

    thread.loop.call_soon_threadsafe(call)
    assert done.wait(DEADLINE_S)
    assert "never return" in str(refused[0])


@pytest.mark.full
def test_a_client_in_a_forked_child_is_an_error(broker: LiveBroker, topic: str) -> None:
    program = textwrap.dedent(
        """
        import json, os, sys
        from odradek import sync
        bootstrap, topic = sys.argv[1:]
        with (
            sync.Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer,
            sync.Consumer(topic, bootstrap_servers=bootstrap) as consumer,
            sync.Admin(bootstrap_servers=bootstrap) as admin,
        ):
            delivery = producer.send(topic, b"x")
            calls = {
                "Producer": lambda: producer.send(topic, b"y"),
                "Producer metrics": producer.metrics,
                "Producer start": producer.start,
                "Consumer": lambda: consumer.poll(timeout_ms=10),
                "Admin": admin.list_topics,
                "Delivery": delivery.result,
            }
            child = os.fork()
            if child == 0:
                told = {}
                for name, call in calls.items():
                    try:
                        call()
                    except Exception as error:
                        told[name] = f"{type(error).__name__} {error}"
                producer.close()
                with sync.Producer(bootstrap_servers=bootstrap) as another:
                    another.send(topic, b"of the child").result()
                print(json.dumps(told), flush=True)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            producer.flush()
            print(delivery.result().topic, flush=True)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, broker.bootstrap, topic],
        stdout=subprocess.PIPE, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    told, written = done.stdout.decode().splitlines()
    assert written == topic
    for name, text in json.loads(told).items():
        assert text.startswith(f"IllegalState this {name.split()[0]} belongs to process "), name
    assert len(json.loads(told)) == 6


@pytest.mark.full
def test_a_forked_child_does_not_wait_for_a_poll_of_the_parent(
    broker: LiveBroker, topic: str
) -> None:
    program = textwrap.dedent(
        """
        import os, signal, sys, threading, time
        from odradek import sync
        from odradek_client.errors import IllegalState
        bootstrap, topic = sys.argv[1:]
        with (
            sync.Consumer(topic, bootstrap_servers=bootstrap) as consumer,
            sync.ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=topic) as share,
        ):
            polls = [
                threading.Thread(target=each.poll, kwargs={"timeout_ms": 2000})
                for each in (consumer, share)
            ]
            for each in polls:
                each.start()
            # The fork comes while both threads are inside of their polls.
            time.sleep(0.5)
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                refused = 0
                calls = [consumer.poll, consumer.getmany, consumer.getone, consumer.poll_arrow]
                for call in [*calls, share.poll, share.getmany, share.getone]:
                    try:
                        call()
                    except IllegalState:
                        refused += 1
                os._exit(refused)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            for each in polls:
                each.join()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, broker.bootstrap, topic],
        stdout=subprocess.PIPE, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    assert int(done.stdout) == 7


def test_the_blocking_consumer_has_is_member_and_commit_soon(
    broker: LiveBroker, topic: str
) -> None:
    produce(broker, topic, 3)
    with a_consumer(broker, topic, group_id=topic, enable_auto_commit=False) as consumer:
        assert not consumer.is_member
        take(consumer, 3)
        assert consumer.is_member
        assert consumer.commit_soon().result(10_000) is None
        assert consumer.commit_soon({(topic, 0): 1}).exception(10) is None
        committed = consumer.committed((topic, 0))
        assert committed is not None
        assert committed.offset == 1
    assert not consumer.is_member
