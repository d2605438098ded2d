"""The rows of share groups: librdkafka's share consumers drain a backlog of records, or acknowledge
single records that a producer sends at a steady rate."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Self

from benchmarks.broker import Failures, Load, produce
from benchmarks.race.contenders import topic_at
from benchmarks.race.librdkafka import scaled
from benchmarks.race.rows import MS, THOUSANDS_PER_S, Row, Run, Trial
from benchmarks.support import Target, percentile, run_on_uvloop, say
from confluent_kafka import Producer, ShareConsumer

from odradek_client.admin import Admin, ConfigResource, ResourceType

MEMBERS = (1, 4, 16)
_PARTITIONS = 4
_POLL_S = 0.2
_PATIENCE_S = 120.0
_LOOK_S = 0.01
#: The records per second in the rows that measure milliseconds, and the duration of these rows.
_STEADY_PER_S = 200
_STEADY_S = 4.0
_STEADY_TICK_S = 0.001
#: Each value begins with the time at which the record was sent, in nanoseconds, in this number of
#: bytes.
_TIME_BYTES = 8


class Members:
    """Threads, each with a share consumer, that consume between `resume` and `pause`.

    `consumed` is called in these threads with the messages of a poll, after the messages were
    acknowledged.
    """

    def __init__(
        self, target: Target, topic: str, count: int, consumed: Callable[[list[Any]], None]
    ) -> None:
        self._target, self._topic, self._consumed = target, topic, consumed
        self._group = f"race-{uuid.uuid4().hex}"
        self._working, self._over = threading.Event(), threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._consume, daemon=True) for _ in range(count)]

    def __enter__(self) -> Self:
        run_on_uvloop(_read_from_the_beginning(self._target.bootstrap, self._group))
        self._working.set()
        for thread in self._threads:
            thread.start()
        self.wait_until(self._all_have_an_assignment, "assignments for all members")
        self.pause()
        return self

    def _all_have_an_assignment(self) -> bool:
        found = run_on_uvloop(_assigned_members(self._target.bootstrap, self._group))
        return found == len(self._threads)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._working.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def resume(self) -> None:
        self._working.set()

    def pause(self) -> None:
        self._working.clear()

    def wait_until(self, done: Callable[[], bool], wanted: str) -> None:
        """Wait until `done()` is true. If a thread has failed, raise its error. Raises SystemExit
        after `_PATIENCE_S`."""
        end_s = time.monotonic() + _PATIENCE_S
        while not done():
            if self._failures:
                raise self._failures[0]
            if time.monotonic() > end_s:
                raise SystemExit(f"{self._target.name}: no {wanted} within {_PATIENCE_S:.0f} s")
            time.sleep(_LOOK_S)

    def _consume(self) -> None:
        try:
            consumer: Any = ShareConsumer(
                {
                    "bootstrap.servers": self._target.bootstrap,
                    "group.id": self._group,
                    "log_level": 0,
                }
            )
            with consumer:
                consumer.subscribe([self._topic])
                while not self._over.is_set():
                    self._working.wait()
                    messages = consumer.poll(_POLL_S)
                    for message in messages:
                        if message.error():
                            raise SystemExit(f"{self._target.name}: {message.error()}")
                    if messages:
                        consumer.commit_sync(_PATIENCE_S)
                        self._consumed(messages)
        except BaseException as failure:  # noqa: BLE001  raised in the thread that waits
            self._failures.append(failure)


class Tally:
    """The number of records that several threads have consumed, and the time of its last change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count, self.last_s = 0, 0.0

    def add(self, messages: list[Any]) -> None:
        with self._lock:
            self.count += len(messages)
            self.last_s = time.perf_counter()


@contextlib.contextmanager
def _draining(load: Load, members: int, target: Target, scale: float) -> Iterator[Run]:
    """Measure thousands of records per second, from the moment at which all members may poll until
    the last record is acknowledged."""
    given = scaled(load, scale)
    tally = Tally()
    with (
        topic_at(target, given.partitions) as topic,
        Members(target, topic, members, tally.add) as consuming,
    ):

        def run() -> tuple[float]:
            # `produce` sends one record to each partition before it measures.
            wanted = tally.count + given.records + given.partitions
            produce(target, topic, given)
            began_s = time.perf_counter()
            consuming.resume()
            consuming.wait_until(lambda: tally.count >= wanted, f"{wanted} records")
            consuming.pause()
            if tally.count > wanted:
                # A record is delivered again if its lock expires before the acknowledgement.
                say(f"{target.name}: {tally.count - wanted} records came twice")
            return ((given.records + given.partitions) / 1000 / (tally.last_s - began_s),)

        yield run


@contextlib.contextmanager
def _steady(record_bytes: int, members: int, target: Target, scale: float) -> Iterator[Run]:
    """Measure the milliseconds from `produce` to the confirmed acknowledgement, for records that
    are sent one by one at a steady rate."""
    found_ms: list[float] = []

    def consumed(messages: list[Any]) -> None:
        ended_ns = time.perf_counter_ns()
        found_ms.extend(
            (ended_ns - int.from_bytes(message.value()[:_TIME_BYTES], "big")) / 1e6
            for message in messages
        )

    padding = bytes(record_bytes - _TIME_BYTES)
    records = max(1, int(_STEADY_PER_S * _STEADY_S * scale))
    with (
        topic_at(target, _PARTITIONS) as topic,
        Members(target, topic, members, consumed) as consuming,
    ):
        producer = Producer(
            {"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )

        def run() -> tuple[float, float]:
            failures = Failures()
            found_ms.clear()
            consuming.resume()
            began_s = time.perf_counter()
            for number in range(records):
                while time.perf_counter() < began_s + number / _STEADY_PER_S:
                    producer.poll(_STEADY_TICK_S)
                value = time.perf_counter_ns().to_bytes(_TIME_BYTES, "big") + padding
                producer.produce(topic, value, partition=number % _PARTITIONS, on_delivery=failures)
            producer.flush(_PATIENCE_S)
            if failures.count:
                raise SystemExit(f"{target.name}: {failures.count} failed: {failures.last}")
            consuming.wait_until(lambda: len(found_ms) >= records, f"{records} records")
            consuming.pause()
            return percentile(found_ms, 0.5), percentile(found_ms, 0.99)

        yield run


async def _read_from_the_beginning(bootstrap: str, group: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        resource = ConfigResource(ResourceType.GROUP, group)
        await admin.alter_configs({resource: {"share.auto.offset.reset": "earliest"}})


async def _assigned_members(bootstrap: str, group: str) -> int:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        found = await admin.describe_share_groups([group], raise_errors=False)
    # Before the first member has joined, the group does not exist.
    members = found[group].members if group in found else []
    return sum(1 for member in members if member.assignment)


def _many(members: int) -> str:
    return f"{members} share consumer{'s' * (members > 1)}"


def _drain_trial(name: str, load: Load, members: int) -> Trial:
    size = "1 KB" if load.record_bytes == 1000 else f"{load.record_bytes} B"
    row = Row(f"share-{name}-{members}", f"{_many(members)}, {size}", THOUSANDS_PER_S)
    return Trial((row,), functools.partial(_draining, load, members), mock=False)


def _steady_trial(name: str, record_bytes: int, members: int) -> Trial:
    title = f"{_many(members)}, {_STEADY_PER_S} records/s of {name}"
    rows = tuple(
        Row(
            f"share-steady-{name.replace(' ', '').lower()}-{members}-{percent}",
            f"{title}, {percent}",
            MS,
        )
        for percent in ("p50", "p99")
    )
    return Trial(rows, functools.partial(_steady, record_bytes, members), mock=False)


SHARE = (
    *(
        _drain_trial("1kb", Load(1000, 16_384, False, 50_000, _PARTITIONS), members)
        for members in MEMBERS
    ),
    *(
        _drain_trial("100b", Load(100, 16_384, False, 100_000, _PARTITIONS), members)
        for members in MEMBERS
    ),
    *(_steady_trial("1 KB", 1000, members) for members in MEMBERS),
    *(_steady_trial("100 B", 100, members) for members in MEMBERS),
)
