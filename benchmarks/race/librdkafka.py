"""The rows of librdkafka's clients: producing, transactions, consuming, single records."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

from benchmarks.broker import (
    Failures,
    Load,
    check_end,
    consume_confluent,
    latencies_ms,
    produce,
)
from benchmarks.race.contenders import MOCK, topic_at
from benchmarks.race.rows import MS, Row, Run, Trial
from benchmarks.support import Target, percentile, say
from confluent_kafka import Producer

_TRANSACTIONS_S = 2.0
_PATIENCE_S = 60.0
_START_S = 20.0
#: The limit of queued records, so that a commit does not wait long for the queued records.
_TRANSACTION_QUEUE = 4_000
_SINGLE_RECORDS = 1_000
_SINGLE_WARMING = 50
#: The load during the measurement of single records. The load is equal for all brokers, and about
#: half of the slowest broker's throughput.
LOAD_MB_PER_S = 40
_LOAD_TICK_S = 0.002
_VALUE = bytes(range(250)) * 4


def scaled(load: Load, scale: float) -> Load:
    """The load, with the number of its records multiplied by `scale`."""
    return replace(load, records=max(load.partitions, int(load.records * scale)))


# --- Producing ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _producing(load: Load, target: Target, scale: float) -> Iterator[Run]:
    given = scaled(load, scale)
    yield lambda: (produced(target, given),)


def produced(target: Target, load: Load) -> float:
    """Produce into a new topic, and check that all records are there. Returns MB/s."""
    with topic_at(target, load.partitions) as topic:
        rate = produce(target, topic, load).mb_per_s
        if target.name != MOCK:
            check_end(target, topic, load)
        return rate


@contextlib.contextmanager
def _producing_to_many(load: Load, target: Target, scale: float) -> Iterator[Run]:
    """Produce all rounds into one topic, so that the creation and deletion of a thousand partitions
    are not measured."""
    given, runs = scaled(load, scale), 0

    def run() -> tuple[float]:
        nonlocal runs
        rate = produce(target, topic, given).mb_per_s
        runs += 1
        check_end(target, topic, given, runs)
        return (rate,)

    with topic_at(target, given.partitions) as topic:
        yield run


def _produce_trial(name: str, load: Load) -> Trial:
    return Trial((Row(name, str(load)),), functools.partial(_producing, load))


def _partitions_trial(count: int) -> Trial:
    load = Load(1000, 16_384, False, 150_000, count)
    row = Row(f"partitions-{count}", f"1 KB in 16 KB, {count:,} partition{'s' * (count > 1)}")
    return Trial((row,), functools.partial(_producing_to_many, load), mock=False)


# --- Transactions ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _transacting(every_ms: int, target: Target, scale: float) -> Iterator[Run]:
    yield lambda: (_committed(target, every_ms, _TRANSACTIONS_S * scale),)


def _committed(target: Target, every_ms: int, seconds: float) -> float:
    """Produce records of 1 KB in transactions, with a commit every `every_ms` milliseconds. Returns
    MB/s."""
    failures, count = Failures(), 0
    with topic_at(target) as topic:
        producer = Producer(
            {
                "bootstrap.servers": target.bootstrap,
                "transactional.id": f"race-{uuid.uuid4().hex}",
                "linger.ms": 5,
                "batch.size": 16_384,
                "queue.buffering.max.messages": _TRANSACTION_QUEUE,
                "delivery.report.only.error": True,
                "log_level": 0,
            }
        )
        producer.init_transactions(_PATIENCE_S)
        # The first transaction is not measured, because it finds the coordinator and the partition.
        for wanted_s in (0.0, seconds):
            count, started_s = 0, time.perf_counter()
            while not count or time.perf_counter() < started_s + wanted_s:
                producer.begin_transaction()
                commit_s = time.perf_counter() + every_ms / 1000
                while time.perf_counter() < commit_s:
                    try:
                        producer.produce(topic, _VALUE, partition=0, on_delivery=failures)
                        count += 1
                    except BufferError:
                        producer.poll(0.001)
                producer.commit_transaction(_PATIENCE_S)
        took_s = time.perf_counter() - started_s
    if failures.count:
        raise SystemExit(f"{target.name}: {failures.count} records failed: {failures.last}")
    return count * len(_VALUE) / 1e6 / took_s


def _transaction_trial(every_ms: int) -> Trial:
    row = Row(f"transactions-{every_ms}ms", f"1 KB in 16 KB, a commit every {every_ms} ms")
    return Trial((row,), functools.partial(_transacting, every_ms))


# --- Consuming ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _consuming(load: Load, target: Target, scale: float) -> Iterator[Run]:
    given = scaled(load, scale)

    def run() -> tuple[float]:
        began, ended = consume_confluent(target, topic, given.records)
        return (given.records * given.record_bytes / 1e6 / (ended.wall_s - began.wall_s),)

    with topic_at(target) as topic:
        produce(target, topic, given)
        yield run


def _consume_trial(name: str, load: Load) -> Trial:
    row = Row(name, f"consume, {load}")
    return Trial((row,), functools.partial(_consuming, load), mock=False)


# --- One record -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _single(loaded: bool, target: Target, scale: float) -> Iterator[Run]:
    def run() -> tuple[float, float]:
        with contextlib.ExitStack() as held:
            if loaded:
                held.enter_context(_load_on(target))
            found = single_ms(target, scale)
        return percentile(found, 0.5), percentile(found, 0.99)

    yield run


def single_ms(target: Target, scale: float) -> list[float]:
    """The latencies of single records of 100 B in milliseconds; each record is acknowledged before
    the next is sent."""
    with topic_at(target) as topic:
        producer = Producer(
            {"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        latencies_ms(producer, topic, _SINGLE_WARMING)
        return latencies_ms(producer, topic, max(_SINGLE_WARMING, int(_SINGLE_RECORDS * scale)))


@contextlib.contextmanager
def _load_on(target: Target) -> Iterator[None]:
    """While the block runs, write `LOAD_MB_PER_S` to another topic, from a producer in a separate
    process."""
    context = multiprocessing.get_context("spawn")
    with topic_at(target) as topic:
        ours, theirs = context.Pipe()
        arguments = (theirs, target.bootstrap, topic)
        process = context.Process(target=_write_steadily, args=arguments, daemon=True)
        process.start()
        theirs.close()
        try:
            if not ours.poll(_START_S) or ours.recv() != "ready":
                raise SystemExit(f"{target.name}: the load did not start")
            yield
            ours.send("enough")
            rate = ours.recv()
            if rate < 0.9 * LOAD_MB_PER_S:
                say(f"{target.name} took only {rate:.0f} of {LOAD_MB_PER_S} MB/s")
        finally:
            ours.close()
            process.join(_START_S)
            if process.is_alive():
                process.kill()
                process.join(_START_S)


def _write_steadily(pipe: Connection, bootstrap: str, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 16_384,
            "delivery.report.only.error": True,
            "log_level": 0,
        }
    )
    producer.produce(topic, _VALUE, partition=0)
    producer.flush(_PATIENCE_S)
    pipe.send("ready")
    count, started_s = 0, time.perf_counter()
    while not pipe.poll(_LOAD_TICK_S):
        due = int((time.perf_counter() - started_s) * LOAD_MB_PER_S * 1e6 / len(_VALUE))
        # If librdkafka's queue is full, the remaining records are produced after the next poll.
        with contextlib.suppress(BufferError):
            while count < due:
                producer.produce(topic, _VALUE, partition=0)
                count += 1
        producer.poll(0)
    left = len(producer)
    pipe.send((count - left) * len(_VALUE) / 1e6 / (time.perf_counter() - started_s))


def _single_trial(name: str, title: str, *, loaded: bool) -> Trial:
    rows = (
        Row(f"{name}-p50", f"{title}, p50", MS),
        Row(f"{name}-p99", f"{title}, p99", MS),
    )
    return Trial(rows, functools.partial(_single, loaded))


PRODUCE = (
    _produce_trial("produce-1kb-1mb", Load(1000, 1_000_000, False, 200_000)),
    _produce_trial("produce-1kb-1mb-idempotent", Load(1000, 1_000_000, True, 200_000)),
    _produce_trial("produce-1kb-16kb", Load(1000, 16_384, False, 200_000)),
    _produce_trial("produce-1kb-16kb-idempotent", Load(1000, 16_384, True, 100_000)),
    _produce_trial("produce-1kb-16kb-4-partitions", Load(1000, 16_384, False, 200_000, 4)),
    _produce_trial("produce-100b-16kb", Load(100, 16_384, False, 600_000)),
    _produce_trial("produce-100b-16kb-idempotent", Load(100, 16_384, True, 400_000)),
)
PARTITIONS = tuple(_partitions_trial(count) for count in (1, 10, 100, 1_000))
TRANSACTIONS = (_transaction_trial(10), _transaction_trial(100))
CONSUME = (
    _consume_trial("consume-1kb", Load(1000, 16_384, False, 300_000)),
    _consume_trial("consume-100b", Load(100, 16_384, False, 600_000)),
)
ONE_RECORD = (
    _single_trial("one-record", "one record of 100 B", loaded=False),
    _single_trial("one-record-loaded", f"one record beside {LOAD_MB_PER_S} MB/s", loaded=True),
)
