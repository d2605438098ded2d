"""The rows in which one producer, or a producer of single records, shares the broker with many slow
writers."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import selectors
import socket
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from benchmarks.broker import Load
from benchmarks.many_connections import raise_open_files
from benchmarks.race.contenders import topic_at
from benchmarks.race.librdkafka import produced, scaled, single_ms
from benchmarks.race.rows import MS, Row, Run, Trial
from benchmarks.support import Target, percentile
from benchmarks.waits import address_of, ask

from odradek_protocol import frames
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

#: The interval in seconds at which each slow writer sends one record.
PERIOD_S = 10.0
_TICK_S = 0.01
_SPARE_FILES = 200
_PATIENCE_S = 60.0
#: A version that all brokers of the race know.
_PRODUCE_VERSION = 8
_LOAD = Load(1000, 16_384, False, 100_000)


@contextlib.contextmanager
def _beside(connections: int, target: Target, scale: float) -> Iterator[Run]:
    def run() -> tuple[float, float]:
        with crowd(target, connections):
            rate = produced(target, scaled(_LOAD, scale))
            return rate, percentile(single_ms(target, scale), 0.99)

    yield run


@contextlib.contextmanager
def crowd(target: Target, connections: int) -> Iterator[None]:
    """A process with this number of connections, each of which sends a record every `PERIOD_S`."""
    context = multiprocessing.get_context("spawn")
    with topic_at(target) as topic:
        ours, theirs = context.Pipe()
        arguments = (theirs, target.bootstrap, topic, connections)
        process = context.Process(target=_be_many, args=arguments, daemon=True)
        process.start()
        theirs.close()
        try:
            if not ours.poll(_PATIENCE_S) or ours.recv() != "ready":
                raise SystemExit(f"{target.name}: {connections} connections could not be made")
            yield
            if ours.poll():
                raise SystemExit(f"{target.name}: the connections ended early: {ours.recv()}")
        except EOFError as ended:
            raise SystemExit(f"{target.name}: the connections ended early") from ended
        finally:
            ours.close()
            process.join(_PATIENCE_S)
            if process.is_alive():
                process.kill()
                process.join(_PATIENCE_S)


def _be_many(pipe: Connection, bootstrap: str, topic: str, connections: int) -> None:
    """Run the connections until the other end of the pipe is closed. Sends an error through the
    pipe."""
    raise_open_files(connections + _SPARE_FILES)
    request = _request(topic)
    with contextlib.ExitStack() as held, selectors.DefaultSelector() as ready:
        others = []
        for _ in range(connections):
            other = held.enter_context(
                socket.create_connection(address_of(bootstrap), timeout=_PATIENCE_S)
            )
            # Each connection waits for its first answer before the next is opened, because a
            # connection that does not fit into the listener's queue would wait for a second.
            ask(other)
            others.append(other)
            if len(others) == 1:
                _first(other, request)
            other.setblocking(False)
            ready.register(other, selectors.EVENT_READ)
        pipe.send("ready")
        sent, started_s = 0, time.perf_counter()
        with contextlib.suppress(EOFError):
            while not pipe.poll(_TICK_S):
                due = int((time.perf_counter() - started_s) * connections / PERIOD_S)
                for number in range(sent, due):
                    others[number % connections].sendall(request)
                sent = max(sent, due)
                for key, _ in ready.select(0):
                    assert isinstance(key.fileobj, socket.socket)
                    if not key.fileobj.recv(65_536):
                        pipe.send("the broker closed one")
                        return


def _request(topic: str) -> bytes:
    """A Produce request with one record of 100 B."""
    partition = PartitionProduceData(
        index=0, records=simple_batch([(None, bytes(100))], int(time.time() * 1000))
    )
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    return b"".join(frames.encode_request(request, _PRODUCE_VERSION, 1, "crowd"))


def _first(connection: socket.socket, request: bytes) -> None:
    """Send a first record. Raises SystemExit unless the broker acknowledges it."""
    connection.sendall(request)
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    body = memoryview(connection.recv(size, socket.MSG_WAITALL))
    answer = frames.decode_response(APIS[ApiKey.PRODUCE], _PRODUCE_VERSION, body)
    assert isinstance(answer, ProduceResponse)
    code = answer.responses[0].partition_responses[0].error_code
    if code:
        raise SystemExit(f"the broker answers with error {code}")


def _trial(connections: int) -> Trial:
    title = f"beside {connections:,} connections"
    rows = (
        Row(f"connections-{connections}", f"1 KB in 16 KB, {title}"),
        Row(f"connections-{connections}-p99", f"one record {title}, p99", MS),
    )
    # There is no warm-up round, because opening 5,000 connections takes a while, and earlier rows
    # have already warmed up the brokers.
    return Trial(rows, functools.partial(_beside, connections), warm=False)


CONNECTIONS = tuple(_trial(count) for count in (10, 1_000, 5_000))
